"""Sans-IO: the one line below an answer that says what is going on while it is written."""

import contextlib
from collections.abc import Iterator, Mapping

import msgspec

from gateway.notices.catalogue import render_notice
from platforms.core.contract import Task, TaskState
from sessions.values.notices import NoticeId

_MIN_SHOWN_SECONDS = 2.0  # seconds a tool may run before its time is shown
_LASTING_NOTICES = frozenset({NoticeId.TOOL_CALL_CUT, NoticeId.MODEL_SWITCHED, NoticeId.DRAFT_KEPT})
"""Notices about something that stays true while the answer goes on; others end with the next sign
of life."""

_LEADING_NOTICES = frozenset({NoticeId.MODEL_SWITCHED})
"""Those that explain the ones that follow: they stay in front of them."""


class _RunningTool(msgspec.Struct, frozen=True):
    emoji: str
    label: str
    started_at: float

    @property
    def name(self) -> str:
        return f"{self.emoji} {self.label}".strip()


class StatusLine:
    """What the line says; `command` is the platform's form of a command.

    Where tasks are shown apart, the line leaves them out.
    """

    def __init__(self, command_template: str, *, tasks_separate: bool = False) -> None:
        self._command_template = command_template
        self._tasks_separate = tasks_separate
        self._running_tools: dict[str, _RunningTool] = {}
        self._tasks: dict[str, Task] = {}
        self._leading_notice = ""
        self._current_notice = ""
        self._notice_is_lasting = False
        self._open_questions = 0  # questions that wait for somebody
        self._fetching_names = ""  # names of files that are on their way

    def show_notice(self, notice: NoticeId, fields: Mapping[str, str | int]) -> str:
        """News: they take the place of older ones; gives the words."""
        words = render_notice(notice, fields, self._command_template)
        if notice in _LEADING_NOTICES:
            self._leading_notice, self._current_notice, self._notice_is_lasting = words, "", False
        else:
            self._current_notice, self._notice_is_lasting = words, notice in _LASTING_NOTICES
        return words

    def output_received(self) -> None:
        """The model says something: what was told about its silence is over."""
        if not self._notice_is_lasting:
            self._current_notice = ""

    def step_done(self) -> None:
        """The model's answer is whole."""
        self._leading_notice, self._current_notice, self._notice_is_lasting = "", "", False

    def tool_started(self, call_id: str, emoji: str, label: str, now: float) -> None:
        """A tool runs."""
        tool = self._running_tools[call_id] = _RunningTool(emoji, label, now)
        if self._tasks_separate:
            self._tasks[call_id] = Task(call_id, tool.name, TaskState.RUNNING)

    def tool_finished(self, call_id: str, *, ok: bool = True) -> None:
        """A tool has its result."""
        tool = self._running_tools.pop(call_id, None)
        if tool and self._tasks_separate:
            state = TaskState.DONE if ok else TaskState.FAILED
            self._tasks[call_id] = Task(call_id, tool.name, state)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """What was done so far, in order, where that is shown apart."""
        return tuple(self._tasks.values())

    @contextlib.contextmanager
    def awaiting_approval(self) -> Iterator[None]:
        """Nothing goes on before somebody has answered a question."""
        self._open_questions += 1
        try:
            yield
        finally:
            self._open_questions -= 1

    @contextlib.contextmanager
    def fetching(self, names: str) -> Iterator[None]:
        """Files that people attached are on their way."""
        self._fetching_names = names
        try:
            yield
        finally:
            self._fetching_names = ""

    @property
    def is_waiting(self) -> bool:
        """Nothing goes on before somebody has answered, and nothing else is under way."""
        return self._open_questions > 0 and not self._running_tools

    @property
    def has_running_tools(self) -> bool:
        """Its words change as time goes by."""
        return bool(self._running_tools) and not self._tasks_separate

    def text(self, now: float) -> str:
        """The line as it is to be shown now."""
        if not (
            self._running_tools or self._open_questions or self._fetching_names
        ):  # as with most tokens
            return " · ".join(filter(None, (self._leading_notice, self._current_notice)))
        running = () if self._tasks_separate else self._running_tools.values()
        under_way = [_tool_text(each, now) for each in running]
        if self._open_questions:
            under_way.append(render_notice(NoticeId.WAITING_FOR_ANSWER, {}, self._command_template))
        if self._fetching_names:
            under_way.append(
                render_notice(
                    NoticeId.FETCHING_FILES, {"list": self._fetching_names}, self._command_template
                )
            )
        return " · ".join(filter(None, under_way or (self._leading_notice, self._current_notice)))


def _tool_text(tool: _RunningTool, now: float) -> str:
    seconds = now - tool.started_at
    if seconds < _MIN_SHOWN_SECONDS:
        return tool.name
    return f"{tool.name} ({format_duration(seconds)})"


def format_duration(seconds: float) -> str:
    """Write a time for people: `8 s`, `3 min 5 s`."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
