"""Sans-IO: what is known of something received, and how that is written."""

from collections.abc import Mapping

import msgspec

from sessions.records import EntryContext, InboxEntry, MessageTrace
from sessions.values.clock import rfc3339

START_HINT = "the gateway runs again (holdfast run, or its service)"
NO_GATEWAY = "no gateway runs on this state folder"


class RunningGateway(msgspec.Struct, frozen=True):
    """The gateway that runs, as it says of itself."""

    stopping: bool = False
    platforms: Mapping[str, str] = {}  # "connected", or what is wrong


class MessageReport(msgspec.Struct, frozen=True, kw_only=True):
    """Something received, and all that is known about why it stands where it stands."""

    trace: MessageTrace
    around: EntryContext
    now: int
    daemon: RunningGateway | None  # None: none runs
    pauses: Mapping[str, int] = {}  # until when a platform wants nothing more, by chat

    @property
    def entry(self) -> InboxEntry:
        """What was received."""
        return self.trace.entry


class WaitStatus(msgspec.Struct, frozen=True):
    """How it stands: what is so now, and what would make it go on; that is empty where nothing is."""

    current: str
    unblocked_by: str = ""

    @property
    def is_settled(self) -> bool:
        """Whether nothing waits."""
        return not self.unblocked_by


def format_message_count(count: int) -> str:
    """Write a number of messages."""
    return f"{count} message{'' if count == 1 else 's'}"


def format_time(milliseconds: int) -> str:
    """Write a moment, in UTC."""
    return rfc3339(milliseconds)[:19].replace("T", " ")


def excerpt(text: str, max_length: int = 60) -> str:
    """Quote the beginning of a text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= max_length else line[: max_length - 1].rstrip() + "…"
