"""Sans-IO: the decisions stored in inbox rows, which `holdfast why` explains.

The decision of an accepted message is its sender's role, the decision of a command its word.
"""

import enum

from gateway.access.policy import Role


class InboxDecision(enum.StrEnum):
    """Decisions other than roles and command words."""

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
    """Decode a row's decision; None for a role or a command's word."""
    return InboxDecision(text) if text in set(InboxDecision) else None
