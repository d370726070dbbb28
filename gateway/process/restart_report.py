"""Sans-IO: what is kept of a restart until it is over, and how it is told then."""

from collections.abc import Iterable, Sequence

import msgspec

from gateway.notices.catalogue import Fields

_LISTED = 5
_EXCERPT = 60


class Asker(msgspec.Struct, frozen=True):
    """Where somebody asked for a restart."""

    address: str
    direct: bool = False  # nobody else reads along there


class Task(msgspec.Struct, frozen=True, omit_defaults=True):
    """A turn that a restart interrupts, or would."""

    turn: str
    key: str
    request: str
    minutes: int
    tool: str = ""
    waits: bool = False  # for somebody's answer to a question

    @property
    def line(self) -> str:
        """For people: whose it is, what, for how long."""
        plain = "".join(sign if sign.isprintable() else " " for sign in self.request)
        words = " ".join(plain.split())
        shown = words if len(words) <= _EXCERPT else words[: _EXCERPT - 1].rstrip() + "…"
        doing = f", {self.tool} is running" if self.tool else ""
        waits = ", waits for an answer to a question" if self.waits else ""
        return f"{self.key}: “{shown}” ({self.minutes} min{doing}{waits})"


class Asked(msgspec.Struct, frozen=True, omit_defaults=True):
    """A restart that is under way."""

    id: str
    at: int  # milliseconds
    version: str
    askers: tuple[Asker, ...] = ()
    interrupted: tuple[Task, ...] = ()
    drained: bool = False  # the process came to its end in order

    def joined(self, asker: Asker) -> "Asked":
        """With somebody else who is to be told."""
        if any(each.address == asker.address for each in self.askers):
            return self
        return msgspec.structs.replace(self, askers=(*self.askers, asker))


class Back(msgspec.Struct, frozen=True, omit_defaults=True):
    """A restart that is over."""

    id: str
    took: int  # milliseconds
    before: str
    after: str
    interrupted: tuple[Task, ...] = ()
    in_order: bool = True
    careful: bool = False  # it is in safe mode now


def back(
    asked: Asked, left: Iterable[Task], now: int, version: str, *, careful: bool = False
) -> Back:
    """Put together what became of it; `left`: what a process that died had still been doing."""
    tasks = {task.turn: task for task in (*asked.interrupted, *left)}
    took = max(0, now - asked.at)  # the clock may have been set back
    return Back(
        asked.id, took, asked.version, version, tuple(tasks.values()), asked.drained, careful
    )


def fields_of(over: Back, *, direct: bool) -> Fields:
    """Say it in a chat; what others had asked for only where nobody else reads along."""
    fields: dict[str, str | int] = {"took": span(over.took), "n": len(over.interrupted)}
    if over.before != over.after:
        fields |= {"before": over.before, "after": over.after}
    if over.interrupted and direct:
        fields["list"] = "\n" + listed(over.interrupted)
    if not over.in_order:
        fields["how"] = "I ended before all was finished in order."
    return fields


def listed(tasks: Sequence[Task]) -> str:
    """One line for each of the first, and how many more there are."""
    lines = [f"· {task.line}" for task in tasks[:_LISTED]]
    more = len(tasks) - len(lines)
    return "\n".join([*lines, f"· and {more} more"] if more else lines)


def span(milliseconds: int) -> str:
    """How long it took, for people."""
    seconds = max(1, round(milliseconds / 1000))
    if seconds < 120:  # noqa: PLR2004 - two minutes
        return f"{seconds} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{round(minutes / 60)} h"  # noqa: PLR2004 - two hours
