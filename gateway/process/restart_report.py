"""Sans-IO: the stored state of a restart, and the report to its requesters afterwards."""

import enum
from collections.abc import Iterable, Sequence

import msgspec

from sessions.values.address import Address, read_address, write_address
from sessions.values.notices import NoticeFields
from sessions.values.text import excerpt, format_span

_MAX_LISTED = 5
_EXCERPT_LENGTH = 60


class RestartState(enum.StrEnum):
    """State of a restart, as sent to the command line."""

    WAITING = "waiting"  # until no turn runs
    GAVE_UP = "gave_up"  # a turn was running all the time
    REFUSED = "refused"  # the program on disk could not start
    CANCELLED = "cancelled"
    DRAINING = "draining"
    STOPPING = "stopping"  # Holdfast was told to stop instead
    BACK = "back"  # done


class RestartRequester(msgspec.Struct, frozen=True):
    """The chat in which a restart was requested."""

    address_text: str = msgspec.field(name="address")  # as in the database
    direct: bool = False  # a private chat

    @classmethod
    def at(cls, address: Address, *, direct: bool) -> "RestartRequester":
        """Return the requester in a chat."""
        return cls(write_address(address), direct)

    @property
    def address(self) -> Address:
        """The chat."""
        return read_address(self.address_text)


class InterruptedTurn(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A turn that a restart interrupts, or would."""

    turn: str
    key: str
    request: str
    minutes: int
    tool: str = ""
    waits: bool = False  # for an approval

    @property
    def summary_line(self) -> str:
        """One line for people: conversation, request, minutes, running tool."""
        plain = "".join(sign if sign.isprintable() else " " for sign in self.request)
        shown = excerpt(plain, _EXCERPT_LENGTH)
        doing = f", {self.tool} is running" if self.tool else ""
        waits = ", waiting for an approval" if self.waits else ""
        age = f"{self.minutes} min" if self.minutes else "under 1 min"
        return f"{self.key}: “{shown}” ({age}{doing}{waits})"


class PendingRestart(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A restart in progress."""

    id: str
    at: int  # Unix time in milliseconds
    version: str
    askers: tuple[RestartRequester, ...] = ()
    interrupted: tuple[InterruptedTurn, ...] = ()
    drained: bool = False  # the old process stopped cleanly

    def with_requester(self, requester: RestartRequester) -> "PendingRestart":
        """Return a copy with one more chat that gets the report."""
        if any(each.address == requester.address for each in self.askers):
            return self
        return msgspec.structs.replace(self, askers=(*self.askers, requester))


class CompletedRestart(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A finished restart."""

    id: str
    took: int  # milliseconds
    before: str
    after: str
    interrupted: tuple[InterruptedTurn, ...] = ()
    in_order: bool = True
    careful: bool = False  # the new process runs in safe mode

    @property
    def took_text(self) -> str:
        """The duration for people, at least a second."""
        return format_span(max(1, self.took / 1000), days=False)


def complete_restart(
    pending: PendingRestart,
    unfinished: Iterable[InterruptedTurn],
    now: int,
    version: str,
    *,
    safe_mode: bool = False,
) -> CompletedRestart:
    """Return the finished restart; `unfinished` are turns that a crashed process left running."""
    tasks = {task.turn: task for task in (*pending.interrupted, *unfinished)}
    took = max(0, now - pending.at)  # the clock may have been set back
    return CompletedRestart(
        id=pending.id,
        took=took,
        before=pending.version,
        after=version,
        interrupted=tuple(tasks.values()),
        in_order=pending.drained,
        careful=safe_mode,
    )


def restart_fields(restart: CompletedRestart, *, direct: bool, resumed: bool) -> NoticeFields:
    """Return the fields of the report; requests of other people are listed only in private chats."""
    changed, listed = restart.before != restart.after, restart.interrupted and direct
    return {
        "took": restart.took_text,
        "n": len(restart.interrupted),
        "resumed": int(resumed),
        "before": restart.before if changed else "",
        "after": restart.after if changed else "",
        "list": "\n" + format_turns(restart.interrupted) if listed else "",
        "how": "" if restart.in_order else "I did not shut down cleanly.",
    }


def format_turns(turns: Sequence[InterruptedTurn]) -> str:
    """Return one line for each of the first turns, and the number of the others."""
    lines = [f"· {task.summary_line}" for task in turns[:_MAX_LISTED]]
    more = len(turns) - len(lines)
    return "\n".join([*lines, f"· and {more} more"] if more else lines)
