"""Sans-IO: the stored state of a restart, and the report to its requesters afterwards."""

from collections.abc import Iterable, Sequence

import msgspec

from gateway.notices.catalogue import NoticeFields

_MAX_LISTED = 5
_EXCERPT_LENGTH = 60


class RestartRequester(msgspec.Struct, frozen=True):
    """The chat in which a restart was requested."""

    address: str
    direct: bool = False  # a private chat


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
        words = " ".join(plain.split())
        shown = (
            words if len(words) <= _EXCERPT_LENGTH else words[: _EXCERPT_LENGTH - 1].rstrip() + "…"
        )
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


def restart_fields(restart: CompletedRestart, *, direct: bool) -> NoticeFields:
    """Return the fields of the report; requests of other people are listed only in private chats."""
    fields: dict[str, str | int] = {
        "took": format_duration(restart.took),
        "n": len(restart.interrupted),
    }
    if restart.before != restart.after:
        fields |= {"before": restart.before, "after": restart.after}
    if restart.interrupted and direct:
        fields["list"] = "\n" + format_turns(restart.interrupted)
    if not restart.in_order:
        fields["how"] = "I did not shut down cleanly."
    return fields


def format_turns(turns: Sequence[InterruptedTurn]) -> str:
    """Return one line for each of the first turns, and the number of the others."""
    lines = [f"· {task.summary_line}" for task in turns[:_MAX_LISTED]]
    more = len(turns) - len(lines)
    return "\n".join([*lines, f"· and {more} more"] if more else lines)


def format_duration(milliseconds: int) -> str:
    """Return a duration for people, such as "45 s", "3 min" or "2 h"."""
    seconds = max(1, round(milliseconds / 1000))
    if seconds < 120:  # noqa: PLR2004 - two minutes
        return f"{seconds} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{round(minutes / 60)} h"  # noqa: PLR2004 - two hours
