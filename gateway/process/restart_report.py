"""Sans-IO: what is kept of a restart until it is over, and how it is told then."""

from collections.abc import Iterable, Sequence

import msgspec

from gateway.notices.catalogue import NoticeFields

_MAX_LISTED = 5
_EXCERPT_LENGTH = 60


class RestartRequester(msgspec.Struct, frozen=True):
    """Where somebody asked for a restart."""

    address: str
    direct: bool = False  # nobody else reads along there


class InterruptedTurn(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A turn that a restart interrupts, or would."""

    turn: str
    key: str
    request: str
    minutes: int
    tool: str = ""
    waits: bool = False  # for somebody's answer to a question

    @property
    def summary_line(self) -> str:
        """For people: whose it is, what, for how long."""
        plain = "".join(sign if sign.isprintable() else " " for sign in self.request)
        words = " ".join(plain.split())
        shown = (
            words if len(words) <= _EXCERPT_LENGTH else words[: _EXCERPT_LENGTH - 1].rstrip() + "…"
        )
        doing = f", {self.tool} is running" if self.tool else ""
        waits = ", waits for an answer to a question" if self.waits else ""
        return f"{self.key}: “{shown}” ({self.minutes} min{doing}{waits})"


class PendingRestart(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A restart that is under way."""

    id: str
    at: int  # milliseconds
    version: str
    askers: tuple[RestartRequester, ...] = ()
    interrupted: tuple[InterruptedTurn, ...] = ()
    drained: bool = False  # the process came to its end in order

    def with_requester(self, requester: RestartRequester) -> "PendingRestart":
        """With somebody else who is to be told."""
        if any(each.address == requester.address for each in self.askers):
            return self
        return msgspec.structs.replace(self, askers=(*self.askers, requester))


class CompletedRestart(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A restart that is over."""

    id: str
    took: int  # milliseconds
    before: str
    after: str
    interrupted: tuple[InterruptedTurn, ...] = ()
    in_order: bool = True
    careful: bool = False  # it is in safe mode now


def complete_restart(
    pending: PendingRestart,
    unfinished: Iterable[InterruptedTurn],
    now: int,
    version: str,
    *,
    safe_mode: bool = False,
) -> CompletedRestart:
    """Put together what became of it; `left`: what a process that died had still been doing."""
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
    """Say it in a chat; what others had asked for only where nobody else reads along."""
    fields: dict[str, str | int] = {
        "took": format_duration(restart.took),
        "n": len(restart.interrupted),
    }
    if restart.before != restart.after:
        fields |= {"before": restart.before, "after": restart.after}
    if restart.interrupted and direct:
        fields["list"] = "\n" + format_turns(restart.interrupted)
    if not restart.in_order:
        fields["how"] = "I ended before all was finished in order."
    return fields


def format_turns(turns: Sequence[InterruptedTurn]) -> str:
    """One line for each of the first, and how many more there are."""
    lines = [f"· {task.summary_line}" for task in turns[:_MAX_LISTED]]
    more = len(turns) - len(lines)
    return "\n".join([*lines, f"· and {more} more"] if more else lines)


def format_duration(milliseconds: int) -> str:
    """How long it took, for people."""
    seconds = max(1, round(milliseconds / 1000))
    if seconds < 120:  # noqa: PLR2004 - two minutes
        return f"{seconds} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{round(minutes / 60)} h"  # noqa: PLR2004 - two hours
