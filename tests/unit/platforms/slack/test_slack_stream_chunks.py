"""Chunks of a stream: text and task cards."""

from hypothesis import given
from hypothesis import strategies as st

from platforms.core.contract import Task, TaskState
from platforms.slack.stream_chunks import (
    MAX_CARDS,
    MAX_TITLE_CHARS,
    changed_tasks,
    finished_tasks,
    stream_chunks,
    task_summary,
    task_title,
)

RUNNING, DONE, FAILED = TaskState
STATES = st.sampled_from(TaskState)


def task(id_: str, state: TaskState = RUNNING, title: str = "") -> Task:
    return Task(id_, title or f"do {id_}", state)


def test_only_changed_tasks_are_sent() -> None:
    shown = {"a": task("a"), "b": task("b", DONE)}
    tasks = (task("a", DONE), task("b", DONE), task("c"))
    assert changed_tasks(tasks, shown) == (task("a", DONE), task("c"))


def test_a_full_message_gets_no_new_cards_but_updates_the_existing_ones() -> None:
    tasks = tuple(task(str(number)) for number in range(MAX_CARDS + 5))
    shown = {each.id: each for each in changed_tasks(tasks, {})}
    assert len(shown) == MAX_CARDS
    assert changed_tasks(tasks, shown) == ()
    done = tuple(task(each.id, DONE) for each in tasks)
    assert len(changed_tasks(done, shown)) == MAX_CARDS


def test_a_card_appears_where_its_tool_was_called() -> None:
    chunks = stream_chunks(
        "text", (task("new"), task("over", FAILED), task("old", DONE)), {"old": task("old")}
    )
    assert [each.get("id", "text") for each in chunks] == ["over", "old", "text", "new"]
    assert [each.get("status") for each in chunks] == ["error", "complete", None, "in_progress"]
    assert stream_chunks("", (), {}) == []


def test_at_the_end_every_running_card_is_closed() -> None:
    found = finished_tasks((task("a", DONE), task("b")), {"a": task("a"), "c": task("c")})
    assert set(found) == {task("a", DONE), task("b", FAILED), task("c", FAILED)}


def test_the_summary_names_running_tasks_or_the_last_finished_one() -> None:
    assert task_summary((task("a", DONE), task("b"), task("c"))) == "do b · do c"
    assert task_summary((task("a", DONE), task("b", DONE))) == "do b"
    assert task_summary(()) == ""


@given(st.text())
def test_a_title_is_one_short_line_without_mentions(text: str) -> None:
    shown = task_title(task("a", title=f"<@U1> @here {text} <!channel> <#C1>"))
    assert 0 < len(shown) <= MAX_TITLE_CHARS
    assert len(shown.splitlines()) == 1
    assert not any(call in shown for call in ("<@", "<!", "<#", "@here", "@channel"))


@given(
    st.lists(st.dictionaries(st.sampled_from("abcdef"), STATES, max_size=6), max_size=8),
)
def test_the_chunks_of_all_frames_add_up_to_the_final_state(
    frames: list[dict[str, TaskState]],
) -> None:
    """For any sequence of frames, each card shows its latest state."""
    shown: dict[str, Task] = {}
    newest: dict[str, str] = {}
    drawn: dict[str, str] = {}
    status = {RUNNING: "in_progress", DONE: "complete", FAILED: "error"}
    for frame in frames:
        tasks = tuple(task(id_, state) for id_, state in frame.items())
        newest |= {id_: status[state] for id_, state in frame.items()}
        changed = changed_tasks(tasks, shown)
        drawn |= {each["id"]: each["status"] for each in stream_chunks("", changed, shown)}
        shown |= {each.id: each for each in changed}
        assert drawn == newest
    final = finished_tasks((), shown)
    drawn |= {
        each["id"]: each["status"] for each in stream_chunks("", changed_tasks(final, shown), shown)
    }
    assert "in_progress" not in drawn.values()
