"""Sans-IO: what is known of something received, and how that is written."""

from collections.abc import Mapping

import msgspec

from sessions.records import Around, InboxEntry, Traced
from sessions.values.clock import rfc3339

START = "the gateway runs again (holdfast run, or its service)"
NO_GATEWAY = "no gateway runs on this state folder"


class Daemon(msgspec.Struct, frozen=True):
    """The gateway that runs, as it says of itself."""

    stopping: bool = False
    platforms: Mapping[str, str] = {}  # "connected", or what is wrong


class Way(msgspec.Struct, frozen=True):
    """Something received, and all that is known about why it stands where it stands."""

    traced: Traced
    around: Around
    now: int
    daemon: Daemon | None  # None: none runs
    pauses: Mapping[str, int] = {}  # until when a platform wants nothing more, by chat

    @property
    def entry(self) -> InboxEntry:
        """What was received."""
        return self.traced.entry


class Waits(msgspec.Struct, frozen=True):
    """How it stands: what is so now, and what would make it go on; that is empty where nothing is."""

    now: str
    then: str = ""

    @property
    def over(self) -> bool:
        """Whether nothing waits."""
        return not self.then


def messages(count: int) -> str:
    """Write a number of messages."""
    return f"{count} message{'' if count == 1 else 's'}"


def moment(milliseconds: int) -> str:
    """Write a moment, in UTC."""
    return rfc3339(milliseconds)[:19].replace("T", " ")


def excerpt(text: str, most: int = 60) -> str:
    """Quote the beginning of a text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"
