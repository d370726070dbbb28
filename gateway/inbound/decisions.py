"""Sans-IO: how it was decided about something received, as its row says; `holdfast why` explains it.

A message that is taken in carries the role of who sent it, a command its word.
"""

import enum

from gateway.access.policy import Role


class InboxDecision(enum.StrEnum):
    """What was decided besides roles and words of commands."""

    NOT_ADDRESSED = "not addressed"
    BOT = "a bot"
    NOT_ALLOWED = "not allowed"
    STALE = "stale"
    TOO_MANY = "too many"
    EDIT = "InboundEdit"
    DELETE = "InboundDelete"
    BUTTON = "button"
    UNKNOWN_COMMAND = "unknown command"
    BEFORE_RESTORE = "before a restore"


CORRECTIONS = (InboxDecision.EDIT, InboxDecision.DELETE)
ROLE_NAMES = frozenset(role.name.lower() for role in Role)


def read_decision(text: str) -> InboxDecision | None:
    """Read a row's decision; None: it is a role, or a command's word."""
    return InboxDecision(text) if text in set(InboxDecision) else None
