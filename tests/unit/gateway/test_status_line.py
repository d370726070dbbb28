import pytest

from gateway.notices.catalogue import NOTICE_FIELDS
from gateway.turns.status_line import StatusLine
from platforms.core.contract import Task, TaskState
from sessions.values.notices import NoticeFields, NoticeId

SILENT: dict[str, str | int] = {"model": "m", "n": 30, "d": 90}


def required_fields(notice: NoticeId) -> NoticeFields:
    """Return a value for each field that a notice must have."""
    return dict.fromkeys(NOTICE_FIELDS[notice][0], 5)


def line() -> StatusLine:
    return StatusLine("/{word}")


def test_the_line_is_empty_without_notices() -> None:
    assert line().text(0.0) == ""
    assert not line().has_running_tools


def test_notices_have_the_text_of_the_catalogue() -> None:
    status = line()
    told = status.show_notice(NoticeId.NO_OUTPUT, SILENT)
    assert told == status.text(0.0) == "⏳ m: no output for 30s, reconnecting at 90s"


def test_a_notice_replaces_an_older_one() -> None:
    status = line()
    status.show_notice(NoticeId.NO_OUTPUT, SILENT)
    status.show_notice(NoticeId.NO_OUTPUT, {**SILENT, "n": 40})
    assert "40s" in status.text(0.0)
    assert "30s" not in status.text(0.0)


def test_files_being_fetched_are_named() -> None:
    status = line()
    with status.fetching("photo.jpg, voice message"):
        assert status.text(0.0) == "📎 photo.jpg, voice message"
        assert not status.is_waiting
        with status.awaiting_approval():
            assert status.text(0.0) == "🔐 Waiting for an answer · 📎 photo.jpg, voice message"
    assert status.text(0.0) == ""


@pytest.mark.parametrize(
    ("notice", "stays"),
    [
        (NoticeId.NO_OUTPUT, False),
        (NoticeId.RECONNECTING, False),
        (NoticeId.ANSWER_CONTINUES, False),
        (NoticeId.RATE_LIMITED, False),
        (NoticeId.COMPACTING, False),
        (NoticeId.TOOL_CALL_CUT, True),
        (NoticeId.MODEL_SWITCHED, True),
        (NoticeId.DRAFT_KEPT, True),
    ],
)
def test_notices_about_silence_end_with_the_next_output(notice: NoticeId, stays: bool) -> None:
    status = line()
    told = status.show_notice(notice, required_fields(notice))
    status.output_received()
    assert status.text(0.0) == (told if stays else "")


@pytest.mark.parametrize(
    ("notice", "passing"),
    [(NoticeId.NO_OUTPUT, True), (NoticeId.RECONNECTING, True), (NoticeId.TOOL_CALL_CUT, False)],
)
def test_the_fallback_notice_stays_in_front_of_later_notices(
    notice: NoticeId, passing: bool
) -> None:
    status = line()
    moved = status.show_notice(NoticeId.MODEL_SWITCHED, {"a": "x", "b": "y"})
    told = status.show_notice(notice, required_fields(notice))
    assert status.text(0.0) == f"{moved} · {told}"
    status.output_received()
    assert status.text(0.0) == (moved if passing else f"{moved} · {told}")
    newer = status.show_notice(NoticeId.MODEL_SWITCHED, {"a": "y", "b": "z"})
    assert status.text(0.0) == newer


def test_an_open_request_replaces_notices_until_answered() -> None:
    status = line()
    told = status.show_notice(NoticeId.MODEL_SWITCHED, {"a": "x", "b": "y"})
    with status.awaiting_approval():
        assert status.text(0.0) == "🔐 Waiting for an answer"
        assert status.is_waiting
    assert status.text(0.0) == told
    assert not status.is_waiting


def test_the_line_is_not_waiting_while_a_tool_runs() -> None:
    status = line()
    status.tool_started("c1", "📖", "a", 0.0)
    with status.awaiting_approval(), status.awaiting_approval():
        assert status.text(3.0) == "📖 a (3 s) · 🔐 Waiting for an answer"
        assert not status.is_waiting
        status.tool_finished("c1")
        assert status.is_waiting


def test_progress_is_shown_behind_the_tool_until_it_ends() -> None:
    status = line()
    status.tool_started("c1", "🔌", "climb", 0.0)
    status.tool_progressed("c1", "50% half way")
    status.tool_progressed("never begun", "1%")
    assert status.text(3.0) == "🔌 climb: 50% half way (3 s)"
    status.tool_finished("c1")
    assert status.text(3.0) == ""


@pytest.mark.parametrize(
    "notice",
    [NoticeId.NO_OUTPUT, NoticeId.TOOL_CALL_CUT, NoticeId.MODEL_SWITCHED, NoticeId.DRAFT_KEPT],
)
def test_all_notices_end_with_the_step(notice: NoticeId) -> None:
    status = line()
    status.show_notice(notice, required_fields(notice))
    status.step_done()
    assert status.text(0.0) == ""


def test_a_lasting_notice_does_not_make_the_next_one_last() -> None:
    status = line()
    status.show_notice(NoticeId.MODEL_SWITCHED, {"a": "x", "b": "y"})
    status.step_done()
    status.show_notice(NoticeId.NO_OUTPUT, SILENT)
    status.output_received()
    assert status.text(0.0) == ""


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "📖 a.txt"),
        (1.9, "📖 a.txt"),
        (2.0, "📖 a.txt (2 s)"),
        (59.9, "📖 a.txt (59 s)"),
        (185.0, "📖 a.txt (3 min 5 s)"),
    ],
)
def test_a_running_tool_shows_its_elapsed_time(seconds: float, shown: str) -> None:
    status = line()
    status.tool_started("c1", "📖", "a.txt", 100.0)
    assert status.has_running_tools
    assert status.text(100.0 + seconds) == shown


def test_parallel_tools_share_the_line() -> None:
    status = line()
    status.tool_started("c1", "📖", "a", 0.0)
    status.tool_started("c2", "", "b", 5.0)
    assert status.text(6.0) == "📖 a (6 s) · b"
    status.tool_finished("c1")
    assert status.text(6.0) == "b"
    status.tool_finished("c2")
    assert not status.has_running_tools


def test_a_running_tool_replaces_notices_until_it_finishes() -> None:
    status = line()
    status.show_notice(NoticeId.MODEL_SWITCHED, {"a": "x", "b": "y"})
    status.tool_started("c1", "📖", "a", 0.0)
    assert status.text(0.0) == "📖 a"
    status.tool_finished("c1")
    assert status.text(0.0).startswith("⇄ x")


def test_the_result_of_an_unknown_tool_call_changes_nothing() -> None:
    status = line()
    status.tool_finished("c1")
    assert status.text(0.0) == ""


def test_commands_in_the_line_have_the_form_of_the_platform() -> None:
    assert "!reasoning" in StatusLine("!{word}").show_notice(NoticeId.REASONING_USED_UP, {})


def test_separate_tasks_are_kept_out_of_the_line_and_stay_listed() -> None:
    status = StatusLine("/{word}", tasks_separate=True)
    status.tool_started("c1", "📖", "a", 0.0)
    status.tool_started("c2", "", "b", 0.0)
    status.tool_started("c3", "✏️", "c", 0.0)
    status.tool_finished("c1")
    status.tool_finished("c2", ok=False)
    status.tool_finished("never begun")
    assert status.text(9.0) == ""
    assert not status.has_running_tools
    assert status.tasks == (
        Task("c1", "📖 a", TaskState.DONE),
        Task("c2", "b", TaskState.FAILED),
        Task("c3", "✏️ c", TaskState.RUNNING),
    )
    with status.awaiting_approval():
        assert status.text(9.0) == "🔐 Waiting for an answer"


def test_without_separate_tasks_the_task_list_is_empty() -> None:
    status = line()
    status.tool_started("c1", "📖", "a", 0.0)
    assert status.tasks == ()
