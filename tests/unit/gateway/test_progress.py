import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.turns.status_line import StatusLine, format_duration
from platforms.core.contract import Task, TaskState
from sessions.values.notices import NoticeId

SILENT: dict[str, str | int] = {"model": "m", "n": 30, "d": 90}


def line() -> StatusLine:
    return StatusLine("/{word}")


def test_without_news_there_is_nothing_to_show() -> None:
    assert line().text(0.0) == ""
    assert not line().has_running_tools


def test_news_are_shown_in_the_words_of_the_catalogue() -> None:
    status = line()
    told = status.show_notice(NoticeId.NO_OUTPUT, SILENT)
    assert told == status.text(0.0) == "⏳ m: no output for 30s, reconnecting at 90s"


def test_news_take_the_place_of_older_ones() -> None:
    status = line()
    status.show_notice(NoticeId.NO_OUTPUT, SILENT)
    status.show_notice(NoticeId.NO_OUTPUT, {**SILENT, "n": 40})
    assert "40s" in status.text(0.0)
    assert "30s" not in status.text(0.0)


def test_files_on_their_way_are_named_until_they_are_there() -> None:
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
def test_news_of_silence_end_with_the_next_sign_of_life(notice: NoticeId, stays: bool) -> None:
    status = line()
    told = status.show_notice(notice, {})
    status.output_received()
    assert status.text(0.0) == (told if stays else "")


@pytest.mark.parametrize(
    ("notice", "passing"),
    [(NoticeId.NO_OUTPUT, True), (NoticeId.RECONNECTING, True), (NoticeId.TOOL_CALL_CUT, False)],
)
def test_who_took_over_stays_in_front_of_what_follows(notice: NoticeId, passing: bool) -> None:
    status = line()
    moved = status.show_notice(NoticeId.MODEL_SWITCHED, {"a": "x", "b": "y"})
    told = status.show_notice(notice, {})
    assert status.text(0.0) == f"{moved} · {told}"
    status.output_received()
    assert status.text(0.0) == (moved if passing else f"{moved} · {told}")
    newer = status.show_notice(NoticeId.MODEL_SWITCHED, {"a": "y", "b": "z"})
    assert status.text(0.0) == newer


def test_a_question_that_waits_goes_before_news_and_gives_the_line_back() -> None:
    status = line()
    told = status.show_notice(NoticeId.MODEL_SWITCHED, {"a": "x", "b": "y"})
    with status.awaiting_approval():
        assert status.text(0.0) == "🔐 Waiting for an answer"
        assert status.is_waiting
    assert status.text(0.0) == told
    assert not status.is_waiting


def test_while_a_tool_runs_nothing_waits_for_a_question_alone() -> None:
    status = line()
    status.tool_started("c1", "📖", "a", 0.0)
    with status.awaiting_approval(), status.awaiting_approval():
        assert status.text(3.0) == "📖 a (3 s) · 🔐 Waiting for an answer"
        assert not status.is_waiting
        status.tool_finished("c1")
        assert status.is_waiting


@pytest.mark.parametrize(
    "notice",
    [NoticeId.NO_OUTPUT, NoticeId.TOOL_CALL_CUT, NoticeId.MODEL_SWITCHED, NoticeId.DRAFT_KEPT],
)
def test_all_news_end_with_the_step(notice: NoticeId) -> None:
    status = line()
    status.show_notice(notice, {})
    status.step_done()
    assert status.text(0.0) == ""


def test_what_stayed_true_does_not_make_the_next_news_stay() -> None:
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
def test_a_tool_is_shown_with_the_time_that_it_takes(seconds: float, shown: str) -> None:
    status = line()
    status.tool_started("c1", "📖", "a.txt", 100.0)
    assert status.has_running_tools
    assert status.text(100.0 + seconds) == shown


def test_tools_that_run_side_by_side_share_the_line() -> None:
    status = line()
    status.tool_started("c1", "📖", "a", 0.0)
    status.tool_started("c2", "", "b", 5.0)
    assert status.text(6.0) == "📖 a (6 s) · b"
    status.tool_finished("c1")
    assert status.text(6.0) == "b"
    status.tool_finished("c2")
    assert not status.has_running_tools


def test_a_running_tool_goes_before_news_and_gives_the_line_back() -> None:
    status = line()
    status.show_notice(NoticeId.MODEL_SWITCHED, {"a": "x", "b": "y"})
    status.tool_started("c1", "📖", "a", 0.0)
    assert status.text(0.0) == "📖 a"
    status.tool_finished("c1")
    assert status.text(0.0).startswith("⇄ x")


def test_a_result_of_a_tool_that_never_began_changes_nothing() -> None:
    status = line()
    status.tool_finished("c1")
    assert status.text(0.0) == ""


def test_commands_are_written_as_people_write_them_there() -> None:
    assert "!reasoning" in StatusLine("!{word}").show_notice(NoticeId.REASONING_USED_UP, {})


@given(st.floats(0, 10**6))
def test_a_span_is_never_longer_than_it_was(seconds: float) -> None:
    minutes, _, rest = format_duration(seconds).rpartition(" min ")
    whole = int(minutes or 0) * 60 + int(rest.removesuffix(" s"))
    assert whole <= seconds < whole + 1


def test_where_tasks_are_shown_apart_the_line_leaves_them_out_and_they_stay() -> None:
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


def test_where_they_are_part_of_the_line_there_are_no_tasks_apart() -> None:
    status = line()
    status.tool_started("c1", "📖", "a", 0.0)
    assert status.tasks == ()
