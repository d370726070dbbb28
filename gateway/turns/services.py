"""Collaborators that all turns share."""

from collections.abc import Callable

import msgspec

from gateway.alerts.admins import AdminAlerts
from gateway.approvals.broker import ApprovalBroker
from gateway.delivery.outbox import Delivery
from gateway.media.fetch import AttachmentFetcher
from gateway.media.outgoing import OutgoingFiles
from gateway.notices.compose import NoticeComposer
from gateway.spending.budgets import Budgets
from gateway.turns.checkpoints import TextCheckpoints
from sessions.store.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.masks import MaskSecrets


class TurnServices(msgspec.Struct, frozen=True, kw_only=True):
    """Store, delivery and everything else that a turn uses; one record serves all turns."""

    store: SessionStore
    checkpoints: TextCheckpoints
    delivery: Delivery
    announcer: NoticeComposer
    approvals: ApprovalBroker
    admin_alerts: AdminAlerts
    budgets: Budgets
    clock: Clock
    mask: MaskSecrets  # replaces secrets in tool results by placeholders
    attachments: AttachmentFetcher
    outgoing_files: OutgoingFiles
    on_waiting: Callable[[], None]
    """Called when a turn starts to wait for an answer to an approval request."""
    on_first_text: Callable[[str], None]
    """Called with the id of a turn that received its first text."""
