"""Sans-IO: the one line below an answer that says what is going on while it is written."""

import contextlib
from collections.abc import Iterator, Mapping

import msgspec

from gateway.notices.catalogue import render
from platforms.core.contract import Task, TaskState

_WORTH_TELLING = 2.0  # seconds a tool may run before its time is shown
_LASTING = frozenset({"N4", "N5", "N13"})
"""Notices about something that stays true while the answer goes on; others end with the next sign
of life."""

_IN_FRONT = frozenset({"N5"})
"""Those that explain the ones that follow: they stay in front of them."""


class _Running(msgspec.Struct, frozen=True):
    emoji: str
    label: str
    since: float

    @property
    def name(self) -> str:
        return f"{self.emoji} {self.label}".strip()


class StatusLine:
    """What the line says; `command` is the platform's form of a command.

    Where tasks are shown apart, the line leaves them out.
    """

    def __init__(self, command: str, *, tasks_apart: bool = False) -> None:
        self._command = command
        self._apart = tasks_apart
        self._running: dict[str, _Running] = {}
        self._tasks: dict[str, Task] = {}
        self._front = ""
        self._notice = ""
        self._lasting = False
        self._asked = 0  # questions that wait for somebody
        self._fetched = ""  # names of files that are on their way

    def notice(self, notice: str, fields: Mapping[str, str | int]) -> str:
        """News: they take the place of older ones; gives the words."""
        words = render(notice, fields, self._command)
        if notice in _IN_FRONT:
            self._front, self._notice, self._lasting = words, "", False
        else:
            self._notice, self._lasting = words, notice in _LASTING
        return words

    def alive(self) -> None:
        """The model says something: what was told about its silence is over."""
        if not self._lasting:
            self._notice = ""

    def step_done(self) -> None:
        """The model's answer is whole."""
        self._front, self._notice, self._lasting = "", "", False

    def tool_started(self, call_id: str, emoji: str, label: str, now: float) -> None:
        """A tool runs."""
        tool = self._running[call_id] = _Running(emoji, label, now)
        if self._apart:
            self._tasks[call_id] = Task(call_id, tool.name, TaskState.RUNNING)

    def tool_finished(self, call_id: str, *, ok: bool = True) -> None:
        """A tool has its result."""
        tool = self._running.pop(call_id, None)
        if tool and self._apart:
            state = TaskState.DONE if ok else TaskState.FAILED
            self._tasks[call_id] = Task(call_id, tool.name, state)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """What was done so far, in order, where that is shown apart."""
        return tuple(self._tasks.values())

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Nothing goes on before somebody has answered a question."""
        self._asked += 1
        try:
            yield
        finally:
            self._asked -= 1

    @contextlib.contextmanager
    def fetching(self, names: str) -> Iterator[None]:
        """Files that people attached are on their way."""
        self._fetched = names
        try:
            yield
        finally:
            self._fetched = ""

    @property
    def waits(self) -> bool:
        """Nothing goes on before somebody has answered, and nothing else is under way."""
        return self._asked > 0 and not self._running

    @property
    def tools_running(self) -> bool:
        """Its words change as time goes by."""
        return bool(self._running) and not self._apart

    def words(self, now: float) -> str:
        """The line as it is to be shown now."""
        if not (self._running or self._asked or self._fetched):  # as with most tokens
            return " · ".join(filter(None, (self._front, self._notice)))
        running = () if self._apart else self._running.values()
        under_way = [_of(each, now) for each in running]
        if self._asked:
            under_way.append(render("waiting", {}, self._command))
        if self._fetched:
            under_way.append(render("fetching", {"list": self._fetched}, self._command))
        return " · ".join(filter(None, under_way or (self._front, self._notice)))


def _of(tool: _Running, now: float) -> str:
    seconds = now - tool.since
    if seconds < _WORTH_TELLING:
        return tool.name
    return f"{tool.name} ({span(seconds)})"


def span(seconds: float) -> str:
    """Write a time for people: `8 s`, `3 min 5 s`."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
