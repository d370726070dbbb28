"""Sans-IO: actions of buttons, written as `ACTION` or `ACTION:SUBJECT`.

Messages keep their buttons for years and platforms send the text back, so the form never changes.
"""

import enum


class ButtonAction(enum.StrEnum):
    """Effect of a button; the subject is a turn, or an approval for the last two."""

    STOP = "stop"
    RETRY = "retry"
    RESUME = "resume.go"
    APPROVE = "approve"
    DENY = "deny"


_ACTIONS = {action.value: action for action in ButtonAction}


def write_action(action: ButtonAction, subject: str | None = None) -> str:
    """Return the text of an action."""
    return f"{action}:{subject}" if subject else action.value


def read_action(text: str) -> tuple[ButtonAction | None, str]:
    """Return action and subject of a text; the action is None if it is not known."""
    name, _, subject = text.partition(":")
    return _ACTIONS.get(name), subject
