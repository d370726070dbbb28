"""State of one step: visible text, request-only messages and notices."""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.answer.accumulate import StepResult
from agent.answer.call_slots import ArgumentsState, StepCall
from agent.attempt import AttemptResult
from agent.continuation import RequestSmallerCalls, RetryRequest
from agent.errors import Looping
from agent.events import (
    AgentEvent,
    Notice,
    ReasoningDelta,
    ReasoningReplaced,
    TextDelta,
    TextReplaced,
)
from agent.model.contract import ToolSchema
from agent.request.prompt import (
    ANNOUNCED_CALL_PROMPT,
    EMPTY_ANSWER_MESSAGE,
    ContinuationReason,
    LostCallReport,
)
from agent.salvage import Salvage
from agent.step import CallLosses, StepState
from agent.tools.contract import Risk, Tool, ToolContext
from agent.tools.drafts import FileDraft
from agent.verdict import Complete, Cut, CutPhase
from sessions.records import Message
from sessions.values.notices import NoticeId
from tests.fakes.agent_kit import LoopClock

LAST = Message("user", "[last]")
FOX = "The quick brown "


async def nothing(_arguments: object, _context: ToolContext) -> str:
    return ""


def made(name: str, grows: str = "", **properties: Any) -> Tool:
    schema = ToolSchema(name, "", {"type": "object", "properties": properties, "required": []})
    return Tool(name, Risk.WRITE, schema=schema, arguments=dict, call=nothing, grows=grows)


TOOLS = {
    each.name: each
    for each in (
        made("write", "content", path={"type": "string"}, content={"type": "string"}),
        made("odd", "absent", path={"type": "string"}),
        made("pay", amount={"type": "integer"}),
    )
}


class SetClock(LoopClock):
    def __init__(self) -> None:
        self.at = 0.0

    def monotonic(self) -> float:
        return self.at


class Shown:
    """A step with its emitted events."""

    def __init__(
        self,
        *more: Message,
        text: str = "",
        continues: str = "",
        report: LostCallReport | None = None,
        form: RequestSmallerCalls | None = None,
        may_replace: bool = True,
    ) -> None:
        self.events: list[AgentEvent] = []
        self.clock = SetClock()
        self.step = StepState(
            tuple(each.schema for each in TOOLS.values()),
            more,
            text=text,
            continues=continues,
            losses=CallLosses(report=report, smaller_calls=form),
            emit=self.events.append,
            clock=self.clock,
            may_replace=may_replace,
        )

    def answer(
        self, *pieces: str, cut: bool = False, prefill: bool = False, error: Looping | None = None
    ) -> AttemptResult:
        """Play one request whose answer consists of these pieces."""
        self.step.request_messages(prefill=prefill)
        self.step.on_request()
        for piece in pieces:
            self.step.on_delta(TextDelta(piece))
        broken = cut or error is not None
        verdict = Cut(CutPhase.TEXT, error) if broken else Complete()
        result = AttemptResult(verdict=verdict, step=StepResult(text="".join(pieces)))
        self.step.on_result(result)
        return result

    def asks(self, *, prefill: bool = False) -> list[Message]:
        return list(self.step.request_messages(prefill=prefill))


def seen(shown: Shown, result: AttemptResult) -> Any:
    return shown.step.build_outcome(
        result, Salvage(), drafted_characters=0, after_tools=False, has_other_target=True
    )


# --- an answer that continues an earlier message ---------------------------------------------------------

EARLIER = "Once upon a time there was a king who had three daughters, and the youngest"
REST = " was so fair that the sun itself was astonished."


@pytest.mark.parametrize("repeated", [0, 20, 40, len(EARLIER)])
@pytest.mark.parametrize("append_only", [False, True])
def test_an_answer_does_not_show_the_words_of_the_message_that_it_continues(
    repeated: int, *, append_only: bool
) -> None:
    shown = Shown(continues=EARLIER, may_replace=not append_only)
    assert shown.asks() == []
    said = EARLIER[len(EARLIER) - repeated :] + REST
    result = shown.answer(*(said[at : at + 5] for at in range(0, len(said), 5)))
    assert shown.step.text == REST
    assert not seen(shown, result).repeated_ending


def test_a_cut_continuation_is_continued_without_a_repeat() -> None:
    shown = Shown(continues=EARLIER)
    shown.answer(EARLIER[-20:] + REST[:21], cut=True)
    shown.step.prepare_retry(RetryRequest(), 0, 0)
    assert shown.asks()[0] == Message("assistant", REST[:21])
    shown.answer(EARLIER[-10:] + REST)
    assert shown.step.text == REST


def test_an_answer_that_only_repeats_the_earlier_message_is_shown() -> None:
    shown = Shown(continues=EARLIER)
    shown.answer(EARLIER[-30:])
    assert shown.step.text == EARLIER[-30:]


def test_a_different_answer_is_shown_in_full() -> None:
    shown = Shown(continues=EARLIER)
    shown.answer("There is nothing to continue.")
    assert shown.step.text.strip() == "There is nothing to continue."


# --- the request ----------------------------------------------------------------------------------------


def test_the_first_request_has_no_extra_messages() -> None:
    assert Shown().asks() == []
    assert Shown(LAST).asks() == [LAST]


@pytest.mark.parametrize(
    ("kind", "words"),
    [(ContinuationReason.CAP, "output length limit"), (ContinuationReason.NETWORK, "network")],
)
def test_a_continuation_uses_the_given_reason(kind: ContinuationReason, words: str) -> None:
    shown = Shown(LAST)
    shown.answer(FOX, cut=True)
    shown.step.prepare_retry(RetryRequest(reason=kind), 0, 0)
    answer, asked, last = shown.asks()
    assert answer == Message("assistant", FOX)
    assert words in asked.content
    assert last is LAST


def test_blank_text_is_not_continued() -> None:
    shown = Shown()
    result = shown.answer("\n", " ", cut=True)
    assert not seen(shown, result).text_visible
    shown.step.prepare_retry(RetryRequest(), 0, 0)
    assert shown.asks() == []


def test_a_nudge_asks_for_the_missing_answer() -> None:
    shown = Shown()
    shown.step.prepare_retry(RetryRequest(nudge=True), 0, 0)
    assert shown.asks() == [EMPTY_ANSWER_MESSAGE]
    shown.step.prepare_retry(RetryRequest(), 0, 0)
    assert shown.asks() == []


LOST = StepCall(
    id="c1",
    name="write",
    arguments='{"path":"ä',
    arguments_state=ArgumentsState.TRUNCATED,
    sealed=False,
)
UNSEALED = StepCall(
    id="c2",
    name="pay",
    arguments='{"amount":5}',
    arguments_state=ArgumentsState.COMPLETE,
    sealed=False,
)
DRAFT = FileDraft(id="d1", path="a.txt", size=9, lines=1, tail="the end", added_characters=9)


def test_a_report_contains_received_bytes_and_drafts() -> None:
    report = StepState.build_report(
        Salvage(lost=(LOST,), unsealed=(UNSEALED,)),
        [DRAFT],
        RequestSmallerCalls(limit_kilotokens=2),
        done_calls=["read (c0)"],
    )
    (lost,) = report.lost_calls
    assert (lost.tool, lost.received_bytes) == ("write", 11)
    assert "draft d1" in lost.draft_note
    assert (report.unsealed_tools, report.done_calls, report.limit_kilotokens) == (
        ("pay",),
        ("read (c0)",),
        2,
    )
    assert (
        StepState.build_report(Salvage(lost=(LOST,)), [None], None).lost_calls[0].draft_note == ""
    )
    other = msgspec.structs.replace(DRAFT, id="d2", path="b.txt")
    both = StepState.build_report(
        Salvage(lost=(LOST,)), [DRAFT], None, unfinished_drafts=[DRAFT, other]
    )
    assert ["draft d2" in each for each in both.draft_notes] == [
        True
    ]  # d1 is reported with the lost call


def test_lost_calls_are_reported_with_and_without_visible_text() -> None:
    report = StepState.build_report(Salvage(lost=(LOST,)), [None], None)
    shown = Shown()
    shown.step.request_smaller_calls(RequestSmallerCalls(), report, 0)
    (told,) = shown.asks()
    assert "`write`" in told.content
    shown.step.on_request()
    shown.step.on_delta(TextDelta("I write."))
    answer, told = shown.asks()
    assert answer == Message("assistant", "I write.")
    assert "repeating these last words verbatim, «I write.»" in told.content
    assert "`write`" in told.content


@pytest.mark.parametrize(
    ("form", "offered", "limited"),
    [
        (None, ["write", "odd", "pay"], []),
        (RequestSmallerCalls(), ["write", "odd", "pay"], []),
        (RequestSmallerCalls(limit_schema=True), ["write", "odd", "pay"], ["write"]),
        (RequestSmallerCalls(withheld_tool="pay"), ["write", "odd"], []),
        (RequestSmallerCalls(limit_schema=True, withheld_tool="write"), ["odd", "pay"], []),
    ],
)
def test_offered_tools_are_restricted_after_losses(
    form: RequestSmallerCalls | None, offered: list[str], limited: list[str]
) -> None:
    lost = tuple(
        StepCall(
            id="c", name=name, arguments="{", arguments_state=ArgumentsState.TRUNCATED, sealed=False
        )
        for name in ("write", "odd")
    )
    report = StepState.build_report(Salvage(lost=lost), [None, None], form)
    tools = Shown(report=report, form=form).step.offered_tools(TOOLS)
    assert [each.name for each in tools] == offered
    assert [each.name for each in tools if "maxLength" in str(each.parameters)] == limited
    if limited:
        content = tools[0].parameters["properties"]["content"]
        assert content == {"type": "string", "maxLength": 6000}
    assert "maxLength" not in str(TOOLS["write"].schema)  # the tool itself is not modified


@pytest.mark.parametrize(
    ("configured", "times", "effort"),
    [
        ("high", 0, "high"),
        (None, 0, None),
        ("high", 1, "medium"),
        ("high", 2, "low"),
        ("minimal", 3, "none"),
        (None, 1, "low"),  # one below the usual default of services
        ("odd", 1, "low"),
    ],
)
def test_the_reasoning_effort_is_lowered_one_level_at_a_time(
    configured: str | None, times: int, effort: str | None
) -> None:
    shown = Shown()
    for _ in range(times):
        shown.step.prepare_retry(RetryRequest(lower_effort=True), 0, 0)
    shown.step.prepare_retry(RetryRequest(), 0, 0)
    assert shown.step.reasoning_effort(configured) == effort


@pytest.mark.parametrize(
    ("action", "cap"),
    [
        (RetryRequest(), None),
        (RetryRequest(raise_cap=True), 200),
        (RetryRequest(lower_cap=4096), 4096),
        (RetryRequest(lower_cap=0), 50),
    ],
)
def test_the_output_limit_follows_the_recovery_action(
    action: RetryRequest, cap: int | None
) -> None:
    shown = Shown()
    shown.step.prepare_retry(action, 200, 50)
    assert shown.step.cap == cap


def test_a_target_switch_resets_the_adjusted_limits() -> None:
    shown = Shown()
    shown.step.prepare_retry(
        RetryRequest(raise_cap=True, lower_effort=True, without_streaming=True), 200, 0
    )
    shown.step.failures = 2
    assert shown.step.without_streaming
    shown.step.on_target_switch()
    assert (shown.step.cap, shown.step.without_streaming, shown.step.failures) == (None, False, 0)
    assert shown.step.reasoning_effort("high") == "high"


def test_streaming_stays_off_for_the_rest_of_the_step() -> None:
    shown = Shown()
    shown.step.prepare_retry(RetryRequest(without_streaming=True), 0, 0)
    shown.step.prepare_retry(RetryRequest(), 0, 0)
    assert shown.step.without_streaming


def test_a_text_cut_after_a_report_is_continued_with_the_report() -> None:
    shown = Shown()
    shown.step.reissue_calls(LostCallReport(unsealed_tools=("pay",)))
    shown.answer(FOX, cut=True)
    shown.step.prepare_retry(RetryRequest(), 0, 0)
    answer, asked = shown.asks()
    assert answer == Message("assistant", FOX)
    assert "repeating these last words" in asked.content
    assert "`pay`" in asked.content


# --- receiving the answer ------------------------------------------------------------------------------


def test_a_first_answer_is_shown_as_it_arrives() -> None:
    shown = Shown()
    shown.answer("a", "", "b")
    assert shown.events == [TextDelta("a"), TextDelta(""), TextDelta("b")]
    assert shown.step.text == "ab"


def test_a_continuation_shows_only_new_text() -> None:
    shown = Shown()
    first = shown.answer(FOX, cut=True)
    assert (seen(shown, first).new_characters, seen(shown, first).repeated_ending) == (16, False)
    second = shown.answer(FOX, "fox.")
    assert shown.events == [TextDelta(FOX), TextDelta("fox.")]
    assert (seen(shown, second).new_characters, seen(shown, second).repeated_ending) == (4, False)


def test_a_continuation_that_only_repeats_is_detected() -> None:
    shown = Shown()
    shown.answer("All is well and nothing is missing.", cut=True)
    again = shown.answer("and nothing is missing.", cut=True)
    assert seen(shown, again).repeated_ending
    assert shown.step.text == "All is well and nothing is missing."


ANEW = "Once upon a time there was a king who had three daughters, and "


def test_a_different_restart_replaces_the_visible_text() -> None:
    shown = Shown()
    shown.answer(f"{ANEW}one of them was very old and very wise. " * 3, cut=True)
    shown.answer(f"{ANEW}they all lived happily.")
    assert shown.events[-1] == TextReplaced(f"{ANEW}they all lived happily.")
    assert shown.step.text == f"{ANEW}they all lived happily."


def test_text_that_cannot_be_replaced_stays() -> None:
    old = f"{ANEW}one of them was very old and very wise. " * 3
    shown = Shown(may_replace=False)
    shown.answer(old, cut=True)
    shown.answer(f"{ANEW}they all lived happily.")
    assert shown.step.text == old
    assert not [event for event in shown.events if isinstance(event, TextReplaced)]


def test_reasoning_of_a_request_is_cleared_by_the_next_one() -> None:
    shown = Shown()
    shown.step.on_request()
    shown.step.on_delta(ReasoningDelta("hm"))
    shown.step.on_request()
    shown.step.on_request()
    assert shown.events == [ReasoningDelta("hm"), ReasoningReplaced()]


def test_endless_repetition_is_removed_from_the_visible_text() -> None:
    shown = Shown()
    shown.step.on_request()
    shown.step.on_delta(TextDelta("Well: la la la la"))
    shown.step.on_result(
        AttemptResult(
            verdict=Cut(CutPhase.TEXT, Looping()), step=StepResult(text="Well: ")
        )  # without the loop
    )
    assert shown.events[-1] == TextReplaced("Well: ")
    shown.step.prepare_retry(RetryRequest(), 0, 0)
    assert "repeating the same words" in shown.asks()[-1].content


def test_a_loop_in_a_continuation_keeps_the_text_before_it() -> None:
    shown = Shown()
    shown.answer(FOX, cut=True)
    shown.step.on_request()
    shown.step.on_delta(TextDelta(f"{FOX}fox. la la la la"))
    shown.step.on_result(
        AttemptResult(verdict=Cut(CutPhase.TEXT, Looping()), step=StepResult(text=f"{FOX}fox. "))
    )
    assert shown.step.text == f"{FOX}fox. "


def test_a_loop_that_was_never_shown_replaces_nothing() -> None:
    shown = Shown()
    shown.answer("Well.", error=Looping())
    assert shown.events == [TextDelta("Well.")]


# --- models with prefill support --------------------------------------------------------------------------


def test_a_prefilled_request_contains_the_text_without_a_prompt() -> None:
    shown = Shown(LAST)
    shown.answer("The quick \n", cut=True)
    assert shown.asks(prefill=True) == [Message("assistant", "The quick"), LAST]


@pytest.mark.parametrize(
    ("text", "pieces", "whole"),
    [
        ("The quick \n", [" ", "\nbrown"], "The quick \nbrown"),
        ("The quick \n", ["brown"], "The quick \nbrown"),
        ("The quick ", ["  brown"], "The quick  brown"),
        ("The quick", [" brown"], "The quick brown"),
        ("The qu", ["ick"], "The quick"),
        ("The quick ", [" ", " x"], "The quick  x"),
    ],
)
def test_a_prefilled_continuation_is_appended_directly(
    text: str, pieces: list[str], whole: str
) -> None:
    shown = Shown()
    shown.answer(text, cut=True)
    shown.answer(*pieces, prefill=True)
    assert shown.step.text == whole
    said = "".join(event.text for event in shown.events if isinstance(event, TextDelta))
    assert said == whole


WHOLE = "The quick brown fox jumps over the lazy dog, and the dog sleeps on in the warm sun."


@pytest.mark.parametrize(
    ("text", "repeated", "shown"),
    [
        pytest.param(WHOLE[:30], WHOLE, WHOLE, id="from the first word"),
        pytest.param(WHOLE[:4], WHOLE, WHOLE, id="one word"),
        pytest.param(WHOLE[:10], WHOLE, WHOLE, id="with a blank at the end"),
        pytest.param(WHOLE[:9] + "\n", WHOLE, WHOLE[:9] + "\n" + WHOLE[9:], id="another blank"),
        pytest.param(WHOLE[:70], WHOLE[:60] + " again.", WHOLE[:70] + "again.", id="most of it"),
        pytest.param("ha", "ha, funny", "haha, funny", id="too short to be a repeat"),
        pytest.param(WHOLE[:20], "brown fox", WHOLE[:20] + "brown fox", id="its last words"),
        pytest.param(WHOLE[:60], WHOLE[:20], WHOLE[:60] + WHOLE[:20], id="its first words"),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 200])
def test_a_prefilled_text_that_the_service_repeats_is_shown_once(
    text: str, repeated: str, shown: str, size: int
) -> None:
    player = Shown()
    player.answer(text, cut=True)
    player.answer(*(repeated[at : at + size] for at in range(0, len(repeated), size)), prefill=True)
    assert player.step.text == shown
    said = "".join(event.text for event in player.events if isinstance(event, TextDelta))
    assert said == shown


def test_a_repeated_prefill_is_noticed() -> None:
    shown = Shown()
    shown.answer(WHOLE[:30], cut=True)
    shown.answer(WHOLE[:60], prefill=True, cut=True)
    ignored = shown.step.ignored_prefill
    shown.answer(WHOLE[60:], prefill=True)
    assert (ignored, shown.step.ignored_prefill) == (True, False)
    assert shown.step.text == WHOLE


def test_lost_calls_are_reported_instead_of_prefilling() -> None:
    shown = Shown(text="I write.", report=LostCallReport(unsealed_tools=("pay",)))
    answer, told = shown.asks(prefill=True)
    assert answer.content == "I write."
    assert "`pay`" in told.content


def test_nothing_is_prefilled_without_visible_text() -> None:
    assert Shown().asks(prefill=True) == []
    assert Shown(text=" ").asks(prefill=True) == []


# --- the outcome ---------------------------------------------------------------------------------------


def test_the_outcome_summarizes_the_request() -> None:
    shown = Shown()
    shown.step.on_request()
    shown.step.on_delta(TextDelta("ab"))
    result = AttemptResult(
        verdict=Cut(CutPhase.TOOL_ARGS),
        step=StepResult(text="ab", reasoning="hm", calls=(LOST, UNSEALED)),
    )
    shown.step.on_result(result)
    found = shown.step.build_outcome(
        result,
        Salvage(lost=(LOST,), unsealed=(UNSEALED,)),
        drafted_characters=7,
        after_tools=True,
        has_other_target=False,
    )
    assert (found.new_characters, found.text_visible, found.has_reasoning, found.has_text) == (
        2,
        True,
        True,
        True,
    )
    assert (found.lost_tools, found.lost_characters, found.drafted_characters) == (
        ("write",),
        len(LOST.arguments),
        7,
    )
    assert (found.unsealed_tools, found.ready_calls) == (("pay",), 0)
    assert (found.after_tools, found.has_other_target) == (True, False)


@given(st.lists(st.text("ab \n", max_size=30), min_size=1, max_size=5), st.booleans())
def test_emitted_events_reproduce_the_text_of_the_step(
    pieces: list[str], may_replace: bool
) -> None:
    shown = Shown(may_replace=may_replace)
    for piece in pieces:
        shown.answer(piece, cut=True)
    told = ""
    for event in shown.events:
        if isinstance(event, TextDelta):
            told += event.text
        elif isinstance(event, TextReplaced):
            told = event.text
    assert told == shown.step.text


# --- notices -------------------------------------------------------------------------------------------

NEWS = Notice(NoticeId.ANSWER_CONTINUES, {})


async def passed(seconds: float) -> None:
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, over.set)
    async with asyncio.timeout(5):
        await over.wait()


@pytest.mark.parametrize(("silent", "wait"), [(1.1, 0.0), (0.5, 0.6), (0.0, 1.1)])
async def test_a_notice_is_emitted_at_once_if_already_late(silent: float, wait: float) -> None:
    shown = Shown()
    shown.clock.at = silent
    shown.step.schedule_notice(NEWS, wait, 1.0)
    assert shown.events == [NEWS]


async def test_a_notice_is_emitted_when_the_recovery_becomes_late() -> None:
    shown = Shown()
    shown.clock.at = 0.95
    shown.step.schedule_notice(NEWS, 0.0, 1.0)
    assert shown.events == []
    await passed(0.1)
    assert shown.events == [NEWS]


async def test_new_output_cancels_the_notice() -> None:
    shown = Shown()
    shown.step.on_request()
    shown.clock.at = 0.97
    shown.step.schedule_notice(NEWS, 0.0, 1.0)
    shown.step.on_delta(TextDelta("x"))
    await passed(0.06)
    assert shown.events == [TextDelta("x")]


async def test_the_notice_delay_counts_from_the_last_output() -> None:
    shown = Shown()
    shown.clock.at = 5.0
    shown.step.on_delta(TextDelta("x"))
    shown.step.schedule_notice(NEWS, 0.0, 1.0)
    assert shown.events == [TextDelta("x")]
    shown.step.cancel_notice()


async def test_a_newer_notice_replaces_an_older_one() -> None:
    shown = Shown()
    shown.clock.at = 0.97
    shown.step.schedule_notice(Notice(NoticeId.RECONNECTING, {}), 0.0, 1.0)
    shown.step.schedule_notice(NEWS, 0.0, 1.0)
    await passed(0.06)
    assert shown.events == [NEWS]


# --- announced calls ------------------------------------------------------------------------------------

PROMISE = "I'll now read the file:"


def urged(**options: Any) -> Shown:
    shown = Shown(**options)
    shown.answer(PROMISE)
    shown.step.request_announced_call()
    return shown


@pytest.mark.parametrize("announces", [True, False], ids=["known for it", "not known for it"])
def test_an_announcement_is_detected_only_for_models_known_for_it(announces: bool) -> None:
    shown = Shown()
    result = shown.answer(PROMISE)
    seen_ = shown.step.build_outcome(
        result,
        Salvage(),
        drafted_characters=0,
        after_tools=False,
        has_other_target=True,
        may_only_announce=announces,
    )
    assert seen_.only_announced is announces


def test_an_announcement_with_its_call_is_an_ordinary_answer() -> None:
    shown = Shown()
    shown.answer(PROMISE)
    made_ = StepCall(
        id="c1", name="pay", arguments="{}", arguments_state=ArgumentsState.COMPLETE, sealed=True
    )
    result = AttemptResult(verdict=Complete(), step=StepResult(text=PROMISE, calls=(made_,)))
    seen_ = shown.step.build_outcome(
        result,
        Salvage(ready=(made_,)),
        drafted_characters=0,
        after_tools=False,
        has_other_target=True,
        may_only_announce=True,
    )
    assert not seen_.only_announced


def test_the_announced_call_is_requested_after_the_announcement() -> None:
    assert urged().asks() == [Message("assistant", PROMISE), Message("user", ANNOUNCED_CALL_PROMPT)]
    assert urged().asks(prefill=True) == [
        Message("assistant", PROMISE),
        Message("user", ANNOUNCED_CALL_PROMPT),
    ]


def test_text_after_an_announcement_starts_a_new_paragraph() -> None:
    shown = urged()
    shown.answer("It says", " 4.")
    assert shown.step.text == f"{PROMISE}\n\nIt says 4."
    assert shown.events[0] == TextDelta(PROMISE)
    assert "".join(e.text for e in shown.events if isinstance(e, TextDelta)) == shown.step.text


def test_a_repeated_announcement_is_shown_once() -> None:
    shown = urged()
    shown.answer(PROMISE)
    assert shown.step.text == PROMISE


def test_the_announced_call_is_requested_again_until_new_text_arrives() -> None:
    shown = urged()
    shown.answer(cut=True)
    shown.step.prepare_retry(RetryRequest(), 0, 0)
    assert shown.asks()[-1] == Message("user", ANNOUNCED_CALL_PROMPT)
    shown.answer("It says that ", cut=True)
    shown.step.prepare_retry(RetryRequest(), 0, 0)
    assert "network error" in shown.asks()[-1].content
    shown.answer("It says that there is nothing.")
    assert shown.step.text == f"{PROMISE}\n\nIt says that there is nothing."


def test_lost_calls_are_reported_with_the_request_for_the_announced_call() -> None:
    shown = urged()
    shown.step.reissue_calls(LostCallReport(unsealed_tools=("pay",)))
    assert shown.asks()[-1].content.startswith(ANNOUNCED_CALL_PROMPT)
    assert "`pay`" in shown.asks()[-1].content


def test_a_loop_after_an_announcement_keeps_the_announcement() -> None:
    shown = urged()
    shown.answer("again and again and again", error=Looping())
    assert shown.step.text.startswith(PROMISE)
