"""Sans-IO: the collected data of a message, and text helpers."""

from collections.abc import Mapping

import msgspec

from sessions.records import EntryContext, InboxEntry, MessageTrace

START_HINT = "the gateway is started (holdfast run, or its service)"
NO_GATEWAY = "no gateway is running on this state folder"


class RunningGateway(msgspec.Struct, frozen=True):
    """The state a running gateway reports."""

    stopping: bool = False
    platforms: Mapping[str, str] = {}  # "connected", or the problem


class MessageReport(msgspec.Struct, frozen=True, kw_only=True):
    """A received message with everything that explains the current state."""

    trace: MessageTrace
    around: EntryContext
    now: int
    daemon: RunningGateway | None  # None: not running
    pauses: Mapping[str, int] = {}  # end of the pause a platform asked for, by chat

    @property
    def entry(self) -> InboxEntry:
        """The inbox row of the message."""
        return self.trace.entry


class WaitStatus(msgspec.Struct, frozen=True):
    """The current state of a message, and the event that will change the state, if any."""

    current: str
    unblocked_by: str = ""

    @property
    def is_settled(self) -> bool:
        """True if no further event is expected."""
        return not self.unblocked_by


def format_message_count(count: int) -> str:
    """Return "1 message" or "N messages"."""
    return f"{count} message{'' if count == 1 else 's'}"
