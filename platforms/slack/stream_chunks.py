"""Sans-IO: what a stream is told: words, and a card for each thing that the agent does.

A stream is of one kind from its first call to its last, so all of it goes as chunks; Slack refuses
bare Markdown in between (`streaming_mode_mismatch`).
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from platforms.core.contract import Task, TaskState
from platforms.slack.format import defuse_mentions

Chunks = list[dict[str, Any]]

MAX_CARDS = 30
"""In one message: Slack takes 50 rows, and counts their titles among the text."""

MAX_TITLE_CHARS = 120  # Slack takes 256
_MAX_SUMMARY_CHARS = 300
_STATUS = {
    TaskState.RUNNING: "in_progress",
    TaskState.DONE: "complete",
    TaskState.FAILED: "error",
}
_MENTION = re.compile(r"<(?=[@#!])")


def changed_tasks(tasks: Iterable[Task], shown: Mapping[str, Task]) -> tuple[Task, ...]:
    """Give the tasks of which a message shows another state, or none though it has room."""
    room = MAX_CARDS - len(shown)
    found = []
    for task in tasks:
        if task.id not in shown:
            room -= 1
        if shown.get(task.id) != task and (task.id in shown or room >= 0):
            found.append(task)
    return tuple(found)


def stream_chunks(growth: str, changed: Iterable[Task], shown: Mapping[str, Task]) -> Chunks:
    """Say what is new: a card that is over already was there before the words, others are after."""
    before: Chunks = []
    after: Chunks = []
    for task in changed:
        early = task.id in shown or task.state is not TaskState.RUNNING
        (before if early else after).append(_card(task))
    words: Chunks = [{"type": "markdown_text", "text": growth}] if growth else []
    return before + words + after


def finished_tasks(tasks: Iterable[Task], shown: Mapping[str, Task]) -> tuple[Task, ...]:
    """Give all tasks as they are once nothing goes on: what still ran was cut off."""
    last = {**shown, **{task.id: task for task in tasks}}
    return tuple(
        msgspec.structs.replace(task, state=TaskState.FAILED)
        if task.state is TaskState.RUNNING
        else task
        for task in last.values()
    )


def task_summary(tasks: Iterable[Task]) -> str:
    """Say in one line what is being done, for a message that has no cards."""
    found = list(tasks)
    running = [task for task in found if task.state is TaskState.RUNNING]
    shown = " · ".join(task_title(task) for task in running or found[-1:])
    return shown if len(shown) <= _MAX_SUMMARY_CHARS else f"{shown[: _MAX_SUMMARY_CHARS - 1]}…"


def task_title(task: Task) -> str:
    """Write a task's title on one line; it must not call anybody."""
    words = _MENTION.sub("<\u200b", defuse_mentions(" ".join(task.title.split()))) or "…"
    return words if len(words) <= MAX_TITLE_CHARS else f"{words[: MAX_TITLE_CHARS - 1]}…"


def _card(task: Task) -> dict[str, Any]:
    return {
        "type": "task_update",
        "id": task.id,
        "title": task_title(task),
        "status": _STATUS[task.state],
    }
