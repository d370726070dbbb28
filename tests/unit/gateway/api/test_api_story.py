"""What a program is told of a turn, and how that ends."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.events import (
    Ending,
    ReasoningDelta,
    StepDone,
    TextDelta,
    TextReplaced,
    ToolFinished,
    ToolStarted,
    TurnDone,
)
from gateway.http.api.chat_form import ChatForm
from gateway.http.api.endings import Outcome, cleaned, outcome_of
from gateway.http.api.pieces import More, Piece, Story, ToolOver, ToolRuns
from gateway.observe.redact import Redactor
from gateway.turns.answer import said
from gateway.turns.news import End, News, Over, Told

STARTED = ToolStarted("c1", "read", "a", "📖")
FINISHED = ToolFinished("c1", "read", ok=True)
RUNS, OVER = ToolRuns("c1", "read", "a", "📖"), ToolOver("c1", "read")


def told(*news: News) -> list[Piece]:
    story = Story(Redactor())
    pieces = [piece for each in news for piece in story.hear(each)]
    return [*pieces, *story.end()]


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
            [ToolRuns("c1", "", "", ""), ToolOver("c1", "")],
        ),
        (
            (STARTED, ToolStarted("c2", "pay", "3"), FINISHED),
            [RUNS, ToolRuns("c2", "pay", "3", ""), OVER, ToolOver("c2", "pay")],
        ),
    ],
    ids=[
        "a pair",
        "each told twice",
        "the same id again",
        "never finished",
        "finished without a start",
        "finished too early",
        "one of those that are not shown",
        "no id",
        "no name",
        "two at once, one left behind",
    ],
)
def test_tools_are_told_in_pairs(news: tuple[News, ...], pieces: list[Piece]) -> None:
    """Seed 40."""
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
        "a blank step",
        "a blank step between",
        "blanks at the beginning",
        "restated and longer",
        "what was shown stays",
        "thoughts are not told",
    ],
)
def test_text_only_grows(news: tuple[News, ...], texts: list[str]) -> None:
    assert told(*news) == [More(text) for text in texts]


def test_words_that_were_taken_back_are_not_in_the_whole_answer() -> None:
    story = Story(Redactor())
    for news in (TextDelta("one"), StepDone(), TextDelta("over and over"), TextReplaced("two")):
        story.hear(news)
    assert story.text == "one\n\ntwo"


def test_what_is_held_goes_out_before_a_tool_begins() -> None:
    key = "sk-abcdefghij0123456789ABCDEFGHIJ"
    news = (
        TextDelta("it is sk-"),
        STARTED,
        FINISHED,
        TextDelta(f"no {key[:9]}"),
        TextDelta(key[9:]),
    )
    assert told(*news) == [More("it is "), More("sk-"), RUNS, OVER, More("no "), More("***")]
    label = ToolStarted("c1", "read", key)
    assert told(label) == [ToolRuns("c1", "read", "***", ""), OVER]
    assert told(Told("N1", key)) == [Told("N1", "***")]


_pieces = st.lists(st.text(alphabet="ab \n", max_size=4), max_size=5)
_tools = st.builds(
    lambda name, call, begins: (
        ToolStarted(call, name, "") if begins else ToolFinished(call, name, ok=True)
    ),
    st.sampled_from(["read", "pay", "_inner", ""]),
    st.sampled_from(["", "c1", "c2", "c3"]),
    st.booleans(),
)


@settings(deadline=None)  # the machine may be busy
@given(st.lists(_pieces, max_size=4))
def test_all_that_is_told_together_is_what_a_chat_would_show(steps: list[list[str]]) -> None:
    story = Story(Redactor())
    given_: list[str] = []
    for step in steps:
        for text in step:
            given_ += [
                piece.text for piece in story.hear(TextDelta(text)) if isinstance(piece, More)
            ]
        given_ += [piece.text for piece in story.hear(StepDone()) if isinstance(piece, More)]
    assert "".join(given_) == story.text == said("".join(step) for step in steps)


@settings(deadline=None)  # the machine may be busy
@given(st.lists(_tools))
def test_whatever_is_heard_of_tools_what_is_told_is_in_pairs(news: list[Any]) -> None:
    found = told(*news)
    running: list[str] = []
    seen: list[str] = []
    for piece in found:
        assert isinstance(piece, ToolRuns | ToolOver)
        assert piece.id
        assert not piece.tool.startswith("_")
        if isinstance(piece, ToolRuns):
            assert piece.id not in seen
            seen.append(piece.id)
            running.append(piece.id)
        else:
            running.remove(piece.id)
    assert running == []


def failed(
    notice: str = "N7", last: str = "", *, operator: bool = False, over_budget: bool = False
) -> TurnDone:
    return TurnDone(
        Ending.FAILED,
        "",
        "why",
        notice=notice,
        last=last,
        tell_operator=operator,
        over_budget=over_budget,
    )


ANSWERED = TurnDone(Ending.ANSWERED, "x")


@pytest.mark.parametrize(
    ("end", "finish", "status"),
    [
        (End(Over.ANSWERED, ANSWERED), "stop", None),
        (End(Over.ANSWERED), "stop", None),
        (End(Over.ANSWERED, msgspec.structs.replace(ANSWERED, last="capped")), "length", None),
        (End(Over.FAILED, failed(), "why"), "error", 502),
        (End(Over.FAILED, failed(operator=True), "why"), "error", 503),
        (End(Over.FAILED, failed("N8"), "why"), "length", None),
        (End(Over.FAILED, failed(last="capped"), "why"), "length", None),
        (End(Over.FAILED, failed("N9"), "why"), "content_filter", None),
        (End(Over.FAILED, failed(last="refused"), "why"), "content_filter", None),
        (End(Over.FAILED, None, "why"), "error", 500),
        (End(Over.FAILED, failed(over_budget=True), "why"), "error", 429),
        (End(Over.FAILED, failed("budget", over_budget=True), "why"), "error", 429),
        (End(Over.STOPPED), "error", 409),
        (End(Over.INTERRUPTED), "error", 503),
        (End(Over.REFUSED), "error", 429),
        (End(Over.NOT_BEGUN), "error", 503),
    ],
)
def test_nothing_but_a_whole_answer_ends_with_stop(
    end: End, finish: str, status: int | None
) -> None:
    outcome = outcome_of(end)
    assert outcome.finish == finish
    assert (outcome.failure and outcome.failure.status) == status
    assert (outcome.declined == "why") is (finish == "content_filter")


@pytest.mark.parametrize("over", [Over.STOPPED, Over.INTERRUPTED, Over.FAILED])
def test_a_library_does_not_repeat_by_itself_what_was_begun(over: Over) -> None:
    failure = outcome_of(End(over)).failure
    assert failure
    assert failure.headers()["x-should-retry"] == "false"


@pytest.mark.parametrize("over", [Over.REFUSED, Over.NOT_BEGUN])
def test_a_library_may_repeat_what_was_not_begun_after_a_while(over: Over) -> None:
    failure = outcome_of(End(over)).failure
    assert failure
    assert "x-should-retry" not in failure.headers()
    assert int(failure.headers()["retry-after"]) > 0


def test_what_a_service_says_of_an_error_shows_no_key() -> None:
    key = "sk-abcdefghij0123456789ABCDEFGHIJ"
    clean = Redactor().clean
    declined = outcome_of(End(Over.FAILED, failed("N9"), f"not with {key}"))
    assert cleaned(declined, clean).declined == "not with ***"
    broken = cleaned(outcome_of(End(Over.FAILED, failed(), f"wrong key {key}")), clean)
    assert broken.failure
    assert "wrong key ***" in broken.failure.message


def test_a_library_of_openais_finds_choices_in_every_event() -> None:
    form = ChatForm("1", "m", 0, sdk=True)
    for piece in (More("a"), RUNS, OVER, Told("N1", "x")):
        data = form.piece(piece).partition(b"data: ")[2]
        assert "choices" in msgspec.json.decode(data)
    assert b"choices" not in ChatForm("1", "m", 0).piece(RUNS)


def test_a_line_break_in_a_text_does_not_end_an_event() -> None:
    event = ChatForm("1", "m", 0).piece(More("a\n\nb\r\ndata: x"))
    assert event.count(b"\n") == 2
    assert event.endswith(b"\n\n")
    assert b"[DONE]" in ChatForm("1", "m", 0).end(Outcome("stop"))
