"""Sans-IO: the status line below an answer in progress."""

import contextlib
from collections.abc import Iterator

import msgspec

from gateway.notices.catalogue import render_notice
from platforms.core.contract import Task, TaskState
from sessions.values.notices import NoticeFields, NoticeId
from sessions.values.text import format_seconds

_MIN_SHOWN_SECONDS = 2.0  # shorter times of a tool are not shown
_LASTING_NOTICES = frozenset({NoticeId.TOOL_CALL_CUT, NoticeId.MODEL_SWITCHED, NoticeId.DRAFT_KEPT})
"""Notices that stay while the model writes; others disappear with its next output."""

_LEADING_NOTICES = frozenset({NoticeId.MODEL_SWITCHED})
"""Notices that stay in front of later ones, because they explain them."""


class _RunningTool(msgspec.Struct, frozen=True):
    emoji: str
    label: str
    started_at: float
    progress: str = ""

    @property
    def name(self) -> str:
        name = f"{self.emoji} {self.label}".strip()
        return f"{name}: {self.progress}" if self.progress else name


class StatusLine:
    """Notices, running tools and waits of one turn, as one line of text.

    `command_template` is the platform's form of a command. With `tasks_separate`, tools are listed
    in `tasks` instead of the line.
    """

    def __init__(self, command_template: str, *, tasks_separate: bool = False) -> None:
        self._command_template = command_template
        self._tasks_separate = tasks_separate
        self._running_tools: dict[str, _RunningTool] = {}
        self._tasks: dict[str, Task] = {}
        self._leading_notice = ""
        self._current_notice = ""
        self._notice_is_lasting = False
        self._open_questions = 0  # approval requests without an answer
        self._fetching_names = ""  # files that are being fetched

    def show_notice(self, notice: NoticeId, fields: NoticeFields) -> str:
        """Replace the current notice, and return the text of the new one."""
        text = render_notice(notice, fields, self._command_template)
        if notice in _LEADING_NOTICES:
            self._leading_notice, self._current_notice, self._notice_is_lasting = text, "", False
        else:
            self._current_notice, self._notice_is_lasting = text, notice in _LASTING_NOTICES
        return text

    def output_received(self) -> None:
        """Drop a notice about the model's silence, because output arrived."""
        if not self._notice_is_lasting:
            self._current_notice = ""

    def step_done(self) -> None:
        """Drop all notices, because the step is complete."""
        self._leading_notice, self._current_notice, self._notice_is_lasting = "", "", False

    def tool_started(self, call_id: str, emoji: str, label: str, now: float) -> None:
        """Show a running tool."""
        tool = self._running_tools[call_id] = _RunningTool(emoji, label, now)
        if self._tasks_separate:
            self._tasks[call_id] = Task(call_id, tool.name, TaskState.RUNNING)

    def tool_progressed(self, call_id: str, progress: str) -> None:
        """Show the progress of a running tool; an unknown call is ignored."""
        if call_id not in self._running_tools:
            return
        tool = msgspec.structs.replace(self._running_tools[call_id], progress=progress)
        self._running_tools[call_id] = tool
        if self._tasks_separate:
            self._tasks[call_id] = Task(call_id, tool.name, TaskState.RUNNING)

    def tool_finished(self, call_id: str, *, ok: bool = True) -> None:
        """Remove a finished tool from the line, or mark its task."""
        tool = self._running_tools.pop(call_id, None)
        if tool and self._tasks_separate:
            state = TaskState.DONE if ok else TaskState.FAILED
            done = msgspec.structs.replace(tool, progress="")
            self._tasks[call_id] = Task(call_id, done.name, state)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Tool calls of the turn in order; empty unless `tasks_separate`."""
        return tuple(self._tasks.values())

    @contextlib.contextmanager
    def awaiting_approval(self) -> Iterator[None]:
        """Count an open approval request within the block."""
        self._open_questions += 1
        try:
            yield
        finally:
            self._open_questions -= 1

    @contextlib.contextmanager
    def fetching(self, names: str) -> Iterator[None]:
        """Name attached files that are being fetched, within the block."""
        self._fetching_names = names
        try:
            yield
        finally:
            self._fetching_names = ""

    @property
    def is_waiting(self) -> bool:
        """True if an approval request is open and no tool is running."""
        return self._open_questions > 0 and not self._running_tools

    @property
    def has_running_tools(self) -> bool:
        """True if the line shows an elapsed time."""
        return bool(self._running_tools) and not self._tasks_separate

    def text(self, now: float) -> str:
        """Return the line; called for every token, so the common case comes first."""
        if not (self._running_tools or self._open_questions or self._fetching_names):
            return " · ".join(filter(None, (self._leading_notice, self._current_notice)))
        running = () if self._tasks_separate else self._running_tools.values()
        under_way = [_tool_text(tool, now) for tool in running]
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
    return f"{tool.name} ({format_seconds(seconds)})"
