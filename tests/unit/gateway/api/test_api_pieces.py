"""Conversion of turn events to pieces of an API answer, and of turn outcomes."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.events import (
    ReasoningDelta,
    ReasoningReplaced,
    StepDone,
    TextDelta,
    TextReplaced,
    ToolFinished,
    ToolStarted,
    TurnDone,
    TurnEnding,
    VerdictName,
)
from gateway.http.api.chat.form import ChatEncoder
from gateway.http.api.endings import AnswerOutcome, outcome_of, redact_outcome
from gateway.http.api.pieces import (
    AnswerPiece,
    AnswerTextPiece,
    PieceBuilder,
    ReasoningPiece,
    ToolEndPiece,
    ToolStartPiece,
)
from gateway.observe.redact import Redactor
from gateway.turns.answer import join_step_texts
from gateway.turns.feed_events import FeedEnd, FeedEvent, FeedNotice, FeedOutcome
from sessions.values.notices import FailureNotice, NoticeId

STARTED = ToolStarted("c1", "read", "a", "📖")
FINISHED = ToolFinished("c1", "read", ok=True)
RUNS, OVER = ToolStartPiece("c1", "read", "a", "📖"), ToolEndPiece("c1", "read")


def told(*news: FeedEvent, with_reasoning: bool = False) -> list[AnswerPiece | ReasoningPiece]:
    story = PieceBuilder(Redactor(), with_reasoning=with_reasoning)
    pieces = [piece for each in news for piece in story.add(each)]
    return [*pieces, *story.finish()]


@pytest.mark.parametrize(
    ("news", "pieces"),
    [
        ((STARTED, FINISHED), [RUNS, OVER]),
        ((STARTED, STARTED, FINISHED, FINISHED), [RUNS, OVER]),
        ((STARTED, FINISHED, STARTED, FINISHED), [RUNS, OVER]),
        ((STARTED,), [RUNS, OVER]),
        ((FINISHED,), []),
        ((FINISHED, STARTED, FINISHED), [RUNS, OVER]),
        ((ToolStarted("c1", "_inner", ""), ToolFinished("c1", "_inner", ok=True)), []),
        ((ToolStarted("", "read", ""), ToolFinished("", "read", ok=True)), []),
        (
            (ToolStarted("c1", "", ""), ToolFinished("c1", "", ok=False)),
            [ToolStartPiece("c1", "", "", ""), ToolEndPiece("c1", "")],
        ),
        (
            (STARTED, ToolStarted("c2", "pay", "3"), FINISHED),
            [RUNS, ToolStartPiece("c2", "pay", "3", ""), OVER, ToolEndPiece("c2", "pay")],
        ),
    ],
    ids=[
        "one pair",
        "each event twice",
        "same id again",
        "never finished",
        "finished without a start",
        "finished too early",
        "hidden tool",
        "no id",
        "no name",
        "two at once, one unfinished",
    ],
)
def test_each_tool_start_has_exactly_one_end(
    news: tuple[FeedEvent, ...], pieces: list[AnswerPiece]
) -> None:
    assert told(*news) == pieces


@pytest.mark.parametrize(
    ("news", "texts"),
    [
        ((TextDelta("a"), TextDelta("b")), ["a", "b"]),
        ((TextDelta("a"), StepDone(), TextDelta("c")), ["a", "\n\nc"]),
        ((TextDelta(" \n"), StepDone(), TextDelta("b")), ["b"]),
        ((TextDelta("a"), StepDone(), TextDelta("\n"), StepDone(), TextDelta("c")), ["a", "\n\nc"]),
        ((TextDelta(" "), TextDelta(" a")), ["  a"]),
        ((TextDelta("ab"), TextReplaced("abc")), ["ab", "c"]),
        ((TextDelta("ac"), TextReplaced("x"), TextDelta("c")), ["ac", "\n\nc"]),
        ((ReasoningDelta("hm"), TextDelta("a"), StepDone()), ["a"]),
    ],
    ids=[
        "one step",
        "two steps",
        "blank step",
        "blank step between two others",
        "leading blanks",
        "replaced by a longer text",
        "replaced by a different text",
        "reasoning is not sent",
    ],
)
def test_streamed_text_is_only_appended(news: tuple[FeedEvent, ...], texts: list[str]) -> None:
    assert told(*news) == [AnswerTextPiece(text) for text in texts]


def test_replaced_text_is_not_in_the_whole_answer() -> None:
    story = PieceBuilder(Redactor())
    for news in (TextDelta("one"), StepDone(), TextDelta("over and over"), TextReplaced("two")):
        story.add(news)
    assert story.text == "one\n\ntwo"


def test_held_text_is_flushed_before_a_tool_start() -> None:
    key = "sk-abcdefghij0123456789ABCDEFGHIJ"
    news = (
        TextDelta("it is sk-"),
        STARTED,
        FINISHED,
        TextDelta(f"no {key[:9]}"),
        TextDelta(key[9:]),
    )
    assert told(*news) == [
        AnswerTextPiece("it is "),
        AnswerTextPiece("sk-"),
        RUNS,
        OVER,
        AnswerTextPiece("no "),
        AnswerTextPiece("***"),
    ]
    label = ToolStarted("c1", "read", key)
    assert told(label) == [ToolStartPiece("c1", "read", "***", ""), OVER]
    assert told(FeedNotice("N1", key)) == [FeedNotice("N1", "***")]


_pieces = st.lists(st.text(alphabet="ab \n", max_size=4), max_size=5)
_tools = st.builds(
    lambda name, call, begins: (
        ToolStarted(call, name, "") if begins else ToolFinished(call, name, ok=True)
    ),
    st.sampled_from(["read", "pay", "_inner", ""]),
    st.sampled_from(["", "c1", "c2", "c3"]),
    st.booleans(),
)


@settings(deadline=None)
@given(st.lists(_pieces, max_size=4))
def test_concatenated_pieces_equal_the_answer_in_a_chat(steps: list[list[str]]) -> None:
    story = PieceBuilder(Redactor())
    given_: list[str] = []
    for step in steps:
        for text in step:
            given_ += [
                piece.text
                for piece in story.add(TextDelta(text))
                if isinstance(piece, AnswerTextPiece)
            ]
        given_ += [
            piece.text for piece in story.add(StepDone()) if isinstance(piece, AnswerTextPiece)
        ]
    assert "".join(given_) == story.text == join_step_texts("".join(step) for step in steps)


@settings(deadline=None)
@given(st.lists(_tools))
def test_tool_pieces_are_paired_for_any_events(news: list[Any]) -> None:
    found = told(*news)
    running: list[str] = []
    seen: list[str] = []
    for piece in found:
        assert isinstance(piece, ToolStartPiece | ToolEndPiece)
        assert piece.id
        assert not piece.tool.startswith("_")
        if isinstance(piece, ToolStartPiece):
            assert piece.id not in seen
            seen.append(piece.id)
            running.append(piece.id)
        else:
            running.remove(piece.id)
    assert running == []


def failed(
    notice: FailureNotice = NoticeId.TURN_FAILED,
    last: VerdictName | None = None,
    *,
    operator: bool = False,
    over_budget: bool = False,
) -> TurnDone:
    return TurnDone(
        ending=TurnEnding.FAILED,
        text="",
        cause="why",
        notice=notice,
        last_verdict=last,
        tell_operator=operator,
        over_budget=over_budget,
    )


ANSWERED = TurnDone(ending=TurnEnding.ANSWERED, text="x")


@pytest.mark.parametrize(
    ("end", "finish", "status"),
    [
        (FeedEnd(FeedOutcome.ANSWERED, ANSWERED), "stop", None),
        (FeedEnd(FeedOutcome.ANSWERED), "stop", None),
        (
            FeedEnd(
                FeedOutcome.ANSWERED,
                msgspec.structs.replace(ANSWERED, last_verdict=VerdictName.CAPPED),
            ),
            "length",
            None,
        ),
        (FeedEnd(FeedOutcome.FAILED, failed(), "why"), "error", 502),
        (FeedEnd(FeedOutcome.FAILED, failed(operator=True), "why"), "error", 503),
        (FeedEnd(FeedOutcome.FAILED, failed(NoticeId.REASONING_USED_UP), "why"), "length", None),
        (FeedEnd(FeedOutcome.FAILED, failed(last=VerdictName.CAPPED), "why"), "length", None),
        (FeedEnd(FeedOutcome.FAILED, failed(NoticeId.DECLINED), "why"), "content_filter", None),
        (
            FeedEnd(FeedOutcome.FAILED, failed(last=VerdictName.REFUSED), "why"),
            "content_filter",
            None,
        ),
        (FeedEnd(FeedOutcome.FAILED, None, "why"), "error", 500),
        (FeedEnd(FeedOutcome.FAILED, failed(over_budget=True), "why"), "error", 429),
        (
            FeedEnd(FeedOutcome.FAILED, failed(NoticeId.BUDGET_USED_UP, over_budget=True), "why"),
            "error",
            429,
        ),
        (FeedEnd(FeedOutcome.STOPPED), "error", 409),
        (FeedEnd(FeedOutcome.INTERRUPTED), "error", 503),
        (FeedEnd(FeedOutcome.REFUSED), "error", 429),
        (FeedEnd(FeedOutcome.NOT_STARTED), "error", 503),
    ],
)
def test_only_a_complete_answer_has_finish_reason_stop(
    end: FeedEnd, finish: str, status: int | None
) -> None:
    outcome = outcome_of(end, "admin")
    assert outcome.finish_reason == finish
    assert (outcome.failure and outcome.failure.status) == status
    assert (outcome.refusal == "why") is (finish == "content_filter")


@pytest.mark.parametrize("over", [FeedOutcome.STOPPED, FeedOutcome.INTERRUPTED, FeedOutcome.FAILED])
def test_failures_of_begun_turns_forbid_automatic_retries(over: FeedOutcome) -> None:
    failure = outcome_of(FeedEnd(over), "admin").failure
    assert failure
    assert failure.response_headers()["x-should-retry"] == "false"


@pytest.mark.parametrize("over", [FeedOutcome.REFUSED, FeedOutcome.NOT_STARTED])
def test_failures_before_a_turn_allow_a_delayed_retry(over: FeedOutcome) -> None:
    failure = outcome_of(FeedEnd(over), "admin").failure
    assert failure
    assert "x-should-retry" not in failure.response_headers()
    assert int(failure.response_headers()["retry-after"]) > 0


@pytest.mark.parametrize(
    ("done", "hidden"),
    [
        pytest.param(failed(operator=True), True, id="only an admin can fix it"),
        pytest.param(None, True, id="a broken turn"),
        pytest.param(failed(last=None), True, id="read from the store"),
        pytest.param(failed(last=VerdictName.CUT), False, id="a broken connection"),
        pytest.param(failed(NoticeId.BUDGET_USED_UP, over_budget=True), False, id="a limit"),
    ],
)
def test_only_admins_read_causes_that_name_settings(done: TurnDone | None, hidden: bool) -> None:
    end = FeedEnd(FeedOutcome.FAILED, done, "set model.api_key")
    for role in ("guest", "member", ""):
        failure = outcome_of(end, role).failure
        assert failure
        assert ("model.api_key" not in failure.message) is hidden
    for_admin = outcome_of(end, "admin").failure
    assert for_admin
    assert "model.api_key" in for_admin.message


def test_error_text_of_a_model_service_is_redacted() -> None:
    key = "sk-abcdefghij0123456789ABCDEFGHIJ"
    clean = Redactor().redact
    declined = outcome_of(
        FeedEnd(FeedOutcome.FAILED, failed(NoticeId.DECLINED), f"not with {key}"), "admin"
    )
    assert redact_outcome(declined, clean).refusal == "not with ***"
    broken = redact_outcome(
        outcome_of(FeedEnd(FeedOutcome.FAILED, failed(), f"wrong key {key}"), "admin"), clean
    )
    assert broken.failure
    assert "wrong key ***" in broken.failure.message


@pytest.mark.parametrize("piece", [AnswerTextPiece("a"), RUNS, OVER, FeedNotice("N1", "x")])
def test_every_event_of_a_chat_is_a_whole_chunk(piece: AnswerPiece) -> None:
    data = ChatEncoder("1", "m", 7).encode_piece(piece).partition(b"data: ")[2]
    chunk = msgspec.json.decode(data)
    fixed = {"object": "chat.completion.chunk", "created": 7, "model": "m"}
    assert {name: chunk[name] for name in fixed} == fixed
    assert isinstance(chunk["id"], str)
    if not isinstance(piece, AnswerTextPiece):
        assert chunk["choices"] == []


def test_line_break_in_a_text_does_not_end_an_event() -> None:
    event = ChatEncoder("1", "m", 0).encode_piece(AnswerTextPiece("a\n\nb\r\ndata: x"))
    assert event.count(b"\n") == 2
    assert event.endswith(b"\n\n")
    assert b"[DONE]" in ChatEncoder("1", "m", 0).encode_end(AnswerOutcome("stop"))


def test_reasoning_is_returned_only_on_demand() -> None:
    events = (
        ReasoningDelta("Let me "),
        ReasoningDelta("think."),
        TextDelta("Yes."),
        ReasoningReplaced(),
        ReasoningDelta("More."),
    )
    assert told(*events) == [AnswerTextPiece("Yes.")]
    pieces = told(*events, with_reasoning=True)
    thoughts = "".join(each.text for each in pieces if isinstance(each, ReasoningPiece))
    assert thoughts == "Let me think.\n\nMore."
