"""Sans-IO: chunks of a stream: text, and a card for each task of the agent.

The mode of a stream is fixed by the first call, so everything goes as chunks; Slack refuses
bare Markdown in between (`streaming_mode_mismatch`).
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from platforms.core.contract import Task, TaskState
from platforms.slack.format import defuse_mentions
from sessions.values.text import shorten

Chunks = list[dict[str, Any]]

MAX_CARDS = 30
"""Cards per message; Slack allows 50, but their titles count towards the text limit."""

MAX_TITLE_CHARS = 120  # Slack allows 256
_MAX_SUMMARY_CHARS = 300
_STATUS = {
    TaskState.RUNNING: "in_progress",
    TaskState.DONE: "complete",
    TaskState.FAILED: "error",
}
_MENTION = re.compile(r"<(?=[@#!])")


def changed_tasks(tasks: Iterable[Task], shown: Mapping[str, Task]) -> tuple[Task, ...]:
    """Return the tasks whose card is out of date or missing, as far as the message has room."""
    room = MAX_CARDS - len(shown)
    found = []
    for task in tasks:
        if task.id not in shown:
            room -= 1
        if shown.get(task.id) != task and (task.id in shown or room >= 0):
            found.append(task)
    return tuple(found)


def stream_chunks(growth: str, changed: Iterable[Task], shown: Mapping[str, Task]) -> Chunks:
    """Return the chunks for new text and tasks; cards already shown or finished precede the text."""
    before: Chunks = []
    after: Chunks = []
    for task in changed:
        early = task.id in shown or task.state is not TaskState.RUNNING
        (before if early else after).append(_card(task))
    words: Chunks = [{"type": "markdown_text", "text": growth}] if growth else []
    return before + words + after


def finished_tasks(tasks: Iterable[Task], shown: Mapping[str, Task]) -> tuple[Task, ...]:
    """Return the final state of all tasks; one that is still running failed."""
    last = {**shown, **{task.id: task for task in tasks}}
    return tuple(
        msgspec.structs.replace(task, state=TaskState.FAILED)
        if task.state is TaskState.RUNNING
        else task
        for task in last.values()
    )


def task_summary(tasks: Iterable[Task]) -> str:
    """Summarize running tasks in one line, for a message without cards."""
    found = list(tasks)
    running = [task for task in found if task.state is TaskState.RUNNING]
    shown = " · ".join(task_title(task) for task in running or found[-1:])
    return shorten(shown, _MAX_SUMMARY_CHARS)


def task_title(task: Task) -> str:
    """Return a task's title on one line, without mentions."""
    words = _MENTION.sub("<\u200b", defuse_mentions(" ".join(task.title.split()))) or "…"
    return shorten(words, MAX_TITLE_CHARS)


def _card(task: Task) -> dict[str, Any]:
    return {
        "type": "task_update",
        "id": task.id,
        "title": task_title(task),
        "status": _STATUS[task.state],
    }
