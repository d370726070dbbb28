"""Recovery actions: tables by verdict, and properties of every sequence."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import errors
from agent.continuation import (
    MAX_RECOVERIES,
    MAX_SECONDS_WITHOUT_PROGRESS,
    PROGRESS_CHARACTERS,
    CompactHistory,
    FinishTurn,
    GiveUp,
    Recovery,
    RecoveryAction,
    RecoveryBudget,
    ReissueCalls,
    RequestAnnouncedCall,
    RequestOutcome,
    RequestSmallerCalls,
    RetryRequest,
    RunTools,
    SwitchTarget,
    describe_error,
)
from agent.errors import ProviderError
from agent.request.prompt import ContinuationReason
from agent.verdict import (
    Capped,
    Complete,
    Cut,
    CutPhase,
    Empty,
    Interrupted,
    ModelRefused,
    SoftComplete,
    Verdict,
)
from sessions.values.notices import NoticeId

STALL = errors.Stalled("given up")
DROP = errors.ConnectionLost("connection reset")
BEFORE, TEXT, REASONING = CutPhase.BEFORE_FIRST, CutPhase.TEXT, CutPhase.REASONING
NAME, ARGS, WHOLE = CutPhase.TOOL_NAME, CutPhase.TOOL_ARGS, CutPhase.CALL_UNSEALED


def seen(verdict: Verdict, **facts: Any) -> RequestOutcome:
    return RequestOutcome(verdict=verdict, **facts)


def cut(phase: CutPhase, error: ProviderError | None = DROP, **facts: Any) -> RequestOutcome:
    return seen(Cut(phase, error), **facts)


def lost(tool: str = "write_file", size: int = 3000, **facts: Any) -> RequestOutcome:
    return cut(ARGS, lost_tools=(tool,), lost_characters=size, **facts)


def play(
    *story: RequestOutcome, budget: RecoveryBudget | None = None, backoff: float = 1.0
) -> list[RecoveryAction]:
    recovery = Recovery(budget or RecoveryBudget(0.0), first_backoff_seconds=backoff)
    return [recovery.next_action(each, float(at)) for at, each in enumerate(story)]


def last(*story: RequestOutcome) -> RecoveryAction:
    return play(*story)[-1]


DONE: list[tuple[str, RequestOutcome, type[RecoveryAction]]] = [
    ("an answer", seen(Complete(), has_text=True), FinishTurn),
    ("an answer without a finish reason", seen(SoftComplete(), has_text=True), FinishTurn),
    ("calls", seen(Complete(), ready_calls=2), RunTools),
    (
        "calls of an answer that was cut after them",
        cut(ARGS, ready_calls=1, lost_tools=("pay",)),
        RunTools,
    ),
    ("a complete read-only call", cut(WHOLE, ready_calls=1), RunTools),
    (
        "sealed calls of a capped answer",
        seen(Capped(), ready_calls=1, lost_tools=("x",)),
        RunTools,
    ),
    ("stopped by us", seen(Interrupted()), GiveUp),
    ("empty continuation of visible text", seen(Empty(), text_visible=True), FinishTurn),
]


@pytest.mark.parametrize(
    ("what", "action"), [row[1:] for row in DONE], ids=[row[0] for row in DONE]
)
def test_verdicts_that_end_a_step_map_to_their_actions(
    what: RequestOutcome, action: type[RecoveryAction]
) -> None:
    assert isinstance(last(what), action)


class TestOnlyAnnounced:
    ANNOUNCED = seen(
        Complete(), has_text=True, text_visible=True, new_characters=30, only_announced=True
    )

    def test_an_announced_call_is_requested_once_per_turn(self) -> None:
        budget = RecoveryBudget(0.0)
        assert play(self.ANNOUNCED, self.ANNOUNCED, budget=budget) == [
            RequestAnnouncedCall(),
            FinishTurn(),
        ]
        assert play(self.ANNOUNCED, budget=budget) == [FinishTurn()]
        budget.reset_on_progress(1.0, ["pay"])
        assert play(self.ANNOUNCED, budget=budget) == [FinishTurn()]

    def test_requesting_an_announced_call_is_not_a_recovery(self) -> None:
        budget = RecoveryBudget(0.0)
        play(self.ANNOUNCED, budget=budget)
        assert budget.recoveries == 0

    def test_calls_run_even_if_the_text_announces_something(self) -> None:
        assert play(seen(Complete(), ready_calls=1, only_announced=True)) == [RunTools()]

    @pytest.mark.parametrize(
        "verdict", [Capped(), ModelRefused(), Cut(TEXT, DROP), Empty()], ids=str
    )
    def test_an_incomplete_announcement_is_recovered_like_any_answer(
        self, verdict: Verdict
    ) -> None:
        assert not isinstance(
            last(seen(verdict, text_visible=True, only_announced=True)), RequestAnnouncedCall
        )


class TestBeforeFirstToken:
    def test_a_stall_is_retried_at_once_and_then_switches_the_target(self) -> None:
        first, second = play(
            cut(BEFORE, STALL, has_other_target=True), cut(BEFORE, STALL, has_other_target=True)
        )
        assert first == RetryRequest(wait_seconds=0.0)
        assert isinstance(second, SwitchTarget)

    def test_without_a_fallback_a_stall_is_retried_twice_before_giving_up(self) -> None:
        actions = play(*[cut(BEFORE, STALL)] * 3)
        assert actions[:2] == [RetryRequest(), RetryRequest()]
        assert isinstance(actions[2], GiveUp)
        assert actions[2].tell_operator  # an outage

    def test_a_long_configured_backoff_is_honored(self) -> None:
        waits = [
            each.wait_seconds
            for each in play(*[cut(BEFORE)] * 2, backoff=45.0)
            if isinstance(each, RetryRequest)
        ]
        assert waits == [45.0, 45.0]
        waits = [
            each.wait_seconds
            for each in play(*[cut(BEFORE)] * 2, backoff=20.0)
            if isinstance(each, RetryRequest)
        ]
        assert waits == [20.0, 30.0]

    def test_a_dropped_connection_backs_off_and_switches_the_target_at_the_third_failure(
        self,
    ) -> None:
        actions = play(*[cut(BEFORE, DROP, has_other_target=True)] * 3)
        assert actions[:2] == [RetryRequest(wait_seconds=1.0), RetryRequest(wait_seconds=2.0)]
        assert isinstance(actions[2], SwitchTarget)

    def test_a_new_target_gets_the_full_retry_budget(self) -> None:
        recovery = Recovery(RecoveryBudget(0.0))
        for _ in range(3):
            recovery.next_action(cut(BEFORE, DROP, has_other_target=True), 0.0)
        recovery.reset_for_target()
        assert recovery.next_action(cut(BEFORE, DROP), 0.0) == RetryRequest(wait_seconds=1.0)

    @pytest.mark.parametrize("kind", [errors.RateLimited, errors.Overloaded])
    def test_retry_after_is_honored_without_jitter(self, kind: Any) -> None:
        assert last(cut(BEFORE, kind("", 7.5))) == RetryRequest(
            wait_seconds=7.5, without_jitter=True
        )

    def test_an_upstream_rate_limit_switches_the_target(self) -> None:
        limit = errors.RateLimited("", 1.0, behind=True)
        assert isinstance(last(cut(BEFORE, limit, has_other_target=True)), SwitchTarget)
        assert last(cut(BEFORE, limit)) == RetryRequest(wait_seconds=1.0, without_jitter=True)

    def test_a_long_retry_after_switches_the_target(self) -> None:
        asked_to_wait = errors.RateLimited("", 61.0)
        assert isinstance(last(cut(BEFORE, asked_to_wait, has_other_target=True)), SwitchTarget)
        assert last(cut(BEFORE, asked_to_wait)) == RetryRequest(
            wait_seconds=61.0, without_jitter=True
        )
        assert isinstance(last(cut(BEFORE, errors.RateLimited("", 601.0))), GiveUp)


WRONG: list[tuple[ProviderError, bool]] = [
    (errors.ApiKeyRejected(), True),
    (errors.OutOfCredit(), True),
    (errors.BadRequest("no such model"), False),
]


@pytest.mark.parametrize(("error", "operator"), WRONG, ids=lambda each: type(each).__name__)
def test_permanent_errors_are_not_retried(error: ProviderError, operator: bool) -> None:
    assert isinstance(last(cut(BEFORE, error, has_other_target=True)), SwitchTarget)
    alone = last(cut(BEFORE, error))
    assert isinstance(alone, GiveUp)
    assert alone.tell_operator is operator


def test_a_service_that_cannot_stream_is_retried_once_without_streaming() -> None:
    error = errors.CannotStream("no")
    first, second = play(cut(BEFORE, error), cut(BEFORE, error))
    assert first == RetryRequest(without_streaming=True)
    assert isinstance(second, GiveUp)


BLANK = cut(BEFORE, None, opened_stream=True)


@pytest.mark.parametrize("error", [None, errors.EndedEarly("incomplete")])
def test_after_three_blank_streams_the_answer_is_requested_without_a_stream(
    error: ProviderError | None,
) -> None:
    blank = cut(BEFORE, error, opened_stream=True)
    *_, fourth, last_one = play(*[blank] * 3, cut(BEFORE, error))
    assert fourth == RetryRequest(wait_seconds=4.0, without_streaming=True)
    assert isinstance(last_one, GiveUp)


@pytest.mark.parametrize(
    ("story", "reason"),
    [
        ([cut(BEFORE), BLANK, BLANK], "the first request was not even accepted"),
        ([BLANK, BLANK, cut(BEFORE, DROP, opened_stream=True)], "the network failed"),
        ([BLANK, BLANK, cut(BEFORE, STALL, opened_stream=True)], "the last stream stalled"),
        (
            [BLANK, BLANK, cut(REASONING, DROP, opened_stream=True)],
            "the last stream said something",
        ),
        ([BLANK, BLANK, cut(BEFORE, None, opened_stream=True, text_visible=True)], "text is shown"),
    ],
)
def test_other_failures_are_no_reason_to_do_without_a_stream(
    story: list[RequestOutcome], reason: str
) -> None:
    assert isinstance(last(*story), GiveUp), reason


def test_a_fallback_is_preferred_to_an_answer_without_a_stream() -> None:
    blank = cut(BEFORE, None, opened_stream=True, has_other_target=True)
    assert isinstance(last(*[blank] * 3), SwitchTarget)


def test_an_output_limit_that_is_too_high_is_lowered() -> None:
    assert last(cut(BEFORE, errors.OutputTooLong("", 4096))) == RetryRequest(lower_cap=4096)
    assert last(cut(BEFORE, errors.OutputTooLong())) == RetryRequest(lower_cap=0)
    assert isinstance(last(*[cut(BEFORE, errors.OutputTooLong())] * 4), GiveUp)


def test_a_conversation_that_is_too_long_is_compacted_at_most_three_times() -> None:
    actions = play(*[cut(BEFORE, errors.ContextTooLong("", 8192))] * 4)
    assert actions[:3] == [CompactHistory(8192)] * 3
    assert isinstance(actions[3], GiveUp)


class TestCutText:
    def test_a_cut_text_is_continued(self) -> None:
        assert last(cut(TEXT, text_visible=True, has_text=True, new_characters=50)) == RetryRequest(
            wait_seconds=1.0
        )
        assert last(
            cut(TEXT, STALL, text_visible=True, has_text=True, new_characters=50)
        ) == RetryRequest(wait_seconds=0.0)

    def test_three_requests_without_progress_end_the_turn(self) -> None:
        story = [
            cut(TEXT, text_visible=True, new_characters=4),
            cut(BEFORE, text_visible=True),
            cut(BEFORE, text_visible=True),
        ]
        actions = play(*story)
        assert isinstance(actions[2], GiveUp)
        assert "connection drops" in actions[2].cause
        assert not actions[2].tell_operator

    def test_eight_cuts_with_progress_still_finish(self) -> None:
        story = [cut(TEXT, text_visible=True, new_characters=300)] * 8
        actions = play(*story, seen(Complete(), text_visible=True, has_text=True))
        assert all(isinstance(action, RetryRequest) for action in actions[:-1])
        assert actions[-1] == FinishTurn()

    def test_only_a_text_that_ended_without_an_error_may_have_been_complete(self) -> None:
        again = cut(TEXT, None, repeated_ending=True, text_visible=True)
        assert isinstance(last(cut(TEXT, None, text_visible=True), again), FinishTurn)
        assert isinstance(last(cut(REASONING, None, text_visible=True), again), RetryRequest)

    def test_a_stalled_text_is_first_continued_by_the_same_model(self) -> None:
        stalled = cut(TEXT, STALL, text_visible=True, has_other_target=True)
        assert play(stalled, stalled) == [RetryRequest(), RetryRequest()]
        assert isinstance(last(stalled, stalled, stalled), SwitchTarget)

    def test_a_confirmed_unmarked_end_is_recorded(self) -> None:
        recovery = Recovery(RecoveryBudget(0.0))
        assert isinstance(
            recovery.next_action(cut(TEXT, None, text_visible=True, new_characters=9), 0.0),
            RetryRequest,
        )
        assert (
            recovery.next_action(cut(TEXT, None, text_visible=True, repeated_ending=True), 1.0)
            == FinishTurn()
        )
        assert recovery.confirmed_unmarked_end

    def test_after_a_drop_the_ending_must_be_repeated_twice_to_finish(self) -> None:
        recovery = Recovery(RecoveryBudget(0.0))
        again = cut(TEXT, None, text_visible=True, repeated_ending=True)
        assert isinstance(
            recovery.next_action(cut(TEXT, DROP, text_visible=True, new_characters=9), 0.0),
            RetryRequest,
        )
        assert isinstance(recovery.next_action(again, 1.0), RetryRequest)
        assert not recovery.confirmed_unmarked_end
        assert recovery.next_action(again, 2.0) == FinishTurn()


def test_cut_reasoning_is_retried_then_with_less_effort_then_elsewhere() -> None:
    actions = play(*[cut(REASONING, has_reasoning=True, has_other_target=True)] * 3)
    assert [getattr(action, "lower_effort", None) for action in actions[:2]] == [False, True]
    assert isinstance(actions[2], SwitchTarget)


def test_the_recovery_limits_match_the_specification() -> None:
    assert (MAX_RECOVERIES, MAX_SECONDS_WITHOUT_PROGRESS, PROGRESS_CHARACTERS) == (12, 20 * 60, 200)


class TestLostCalls:
    @pytest.mark.parametrize(
        ("size", "action"), [(2047, RetryRequest), (2048, RequestSmallerCalls)]
    )
    def test_a_lost_call_of_two_kilobytes_counts_as_large(
        self, size: int, action: type[RecoveryAction]
    ) -> None:
        assert isinstance(last(lost(size=size)), action)

    def test_a_small_lost_call_is_retried_once_without_a_report(self) -> None:
        assert last(lost(size=12)) == RetryRequest(wait_seconds=1.0)
        assert isinstance(last(lost(size=12), lost(size=12)), RequestSmallerCalls)

    @pytest.mark.parametrize(
        "facts",
        [{"size": 3000}, {"size": 12, "text_visible": True}, {"size": 12, "drafted_characters": 9}],
    )
    def test_a_large_lost_call_is_requested_in_parts_at_once(self, facts: dict[str, Any]) -> None:
        assert isinstance(last(lost(**facts)), RequestSmallerCalls)

    def test_repeated_losses_halve_the_limit_then_limit_the_schema_then_withhold_the_tool(
        self,
    ) -> None:
        actions = play(*[lost()] * 5)
        forms = [action for action in actions if isinstance(action, RequestSmallerCalls)]
        assert [form.limit_kilotokens for form in forms] == [8, 4, 2, 1]
        assert [form.limit_schema for form in forms] == [False, True, True, True]
        assert [form.withheld_tool for form in forms] == ["", "", "", "write_file"]
        assert isinstance(actions[4], GiveUp)

    def test_the_target_is_switched_before_a_tool_is_withheld(self) -> None:
        assert isinstance(last(*[lost(has_other_target=True)] * 3), SwitchTarget)

    def test_a_growing_draft_resets_all_limits(self) -> None:
        actions = play(*[lost("write_file_continue", drafted_characters=8000)] * 10)
        assert all(
            isinstance(each, RequestSmallerCalls) and each.limit_kilotokens == 8 for each in actions
        )

    def test_losses_are_counted_per_tool(self) -> None:
        assert last(lost("a"), lost("b")) == RequestSmallerCalls(wait_seconds=1.0)

    def test_a_stalled_call_is_requested_again_without_a_wait(self) -> None:
        stalled = cut(ARGS, STALL, lost_tools=("write_file",), lost_characters=3000)
        assert last(stalled) == RequestSmallerCalls(wait_seconds=0.0)

    def test_an_unsealed_call_is_requested_again(self) -> None:
        actions = play(*[cut(WHOLE, unsealed_tools=("pay",))] * 2)
        assert actions == [ReissueCalls(), ReissueCalls()]

    @pytest.mark.parametrize("verdict", [Cut(WHOLE, DROP), Capped()], ids=["cut", "capped"])
    def test_a_call_that_stays_unsealed_is_treated_as_lost(self, verdict: Verdict) -> None:
        actions = play(*[seen(verdict, unsealed_tools=("pay",))] * 7)
        forms = [action for action in actions if isinstance(action, RequestSmallerCalls)]
        assert [form.limit_kilotokens for form in forms] == [8, 4, 2, 1]
        assert {form.raise_cap for form in forms} == {isinstance(verdict, Capped)}
        assert [type(each) for each in actions[:2]] == [ReissueCalls, ReissueCalls]
        assert isinstance(actions[6], GiveUp)


class TestOutputLimit:
    def test_a_capped_text_is_continued_with_a_higher_limit(self) -> None:
        action = last(seen(Capped(), has_text=True, text_visible=True, new_characters=500))
        assert action == RetryRequest(reason=ContinuationReason.CAP, raise_cap=True)

    def test_a_capped_call_of_any_size_is_requested_in_parts_at_once(self) -> None:
        action = last(seen(Capped(), lost_tools=("pay",), lost_characters=9))
        assert isinstance(action, RequestSmallerCalls)
        assert action.raise_cap

    def test_capped_reasoning_without_text_is_retried_once_with_less_effort(self) -> None:
        story = [seen(Capped(), has_reasoning=True)] * 2
        first, second = play(*story)
        assert first == RetryRequest(
            reason=ContinuationReason.CAP, raise_cap=True, lower_effort=True
        )
        assert isinstance(second, GiveUp)
        assert second.notice is NoticeId.REASONING_USED_UP

    def test_a_capped_empty_answer_is_not_treated_as_exhausted_reasoning(self) -> None:
        actions = play(*[seen(Capped())] * 3)
        assert [type(each) for each in actions] == [RetryRequest, RetryRequest, GiveUp]

    def test_giving_up_on_a_long_conversation_sets_too_long(self) -> None:
        *_, end = play(*[cut(BEFORE, errors.ContextTooLong())] * 4)
        assert isinstance(end, GiveUp)
        assert end.too_long

    def test_a_capped_text_with_progress_is_continued_twelve_times(self) -> None:
        actions = play(*[seen(Capped(), has_text=True, text_visible=True, new_characters=300)] * 13)
        assert all(isinstance(each, RetryRequest) for each in actions[:12])
        assert isinstance(actions[12], GiveUp)


class TestRestartedAnswers:
    """Restarts on a platform where the visible text cannot be replaced."""

    ANEW = seen(Complete(), has_text=True, text_visible=True, ignored_rewrite=True)

    def test_an_ignored_restart_is_retried_once(self) -> None:
        assert play(self.ANEW) == [RetryRequest()]

    def test_a_continuation_after_an_ignored_restart_finishes_the_turn(self) -> None:
        assert (
            play(self.ANEW, seen(Complete(), has_text=True, text_visible=True, new_characters=9))[1]
            == FinishTurn()
        )

    def test_an_incomplete_answer_is_not_reported_as_complete(self) -> None:
        end = play(self.ANEW, self.ANEW)[1]
        assert isinstance(end, GiveUp)
        assert "started its answer over" in end.cause

    def test_a_second_ignored_restart_switches_the_target(self) -> None:
        other = seen(
            Complete(),
            has_text=True,
            text_visible=True,
            ignored_rewrite=True,
            has_other_target=True,
        )
        assert isinstance(play(other, other)[1], SwitchTarget)

    def test_the_continuation_reason_is_kept_after_an_ignored_restart(self) -> None:
        capped = seen(Capped(), has_text=True, text_visible=True, new_characters=500)
        assert play(capped, self.ANEW)[1] == RetryRequest(reason=ContinuationReason.CAP)
        assert play(cut(TEXT, new_characters=500), self.ANEW)[1] == RetryRequest(
            reason=ContinuationReason.NETWORK
        )

    def test_calls_in_a_restarted_answer_are_run(self) -> None:
        assert play(seen(Complete(), ready_calls=1, text_visible=True, ignored_rewrite=True)) == [
            RunTools()
        ]


class TestRefusals:
    @pytest.mark.parametrize(
        "refusal",
        [
            seen(ModelRefused(), has_other_target=True),
            cut(TEXT, errors.Declined(), has_other_target=True),
        ],
    )
    def test_a_refusal_switches_the_target_once(self, refusal: RequestOutcome) -> None:
        first, second = play(refusal, refusal)
        assert isinstance(first, SwitchTarget)
        assert isinstance(second, GiveUp)
        assert second.notice is NoticeId.DECLINED


class TestEmptyAnswers:
    def test_an_empty_answer_is_retried_once(self) -> None:
        actions = play(*[seen(Empty())] * 2)
        assert [type(each) for each in actions] == [RetryRequest, GiveUp]

    def test_an_empty_answer_after_tools_is_nudged_before_switching_the_target(self) -> None:
        actions = play(*[seen(Empty(), after_tools=True, has_other_target=True)] * 3)
        assert actions[:2] == [RetryRequest(), RetryRequest(nudge=True)]
        assert isinstance(actions[2], SwitchTarget)


class TestLoops:
    def test_a_repeating_answer_is_retried_once(self) -> None:
        actions = play(*[cut(TEXT, errors.Looping(), has_text=True)] * 2)
        assert [type(each) for each in actions] == [RetryRequest, GiveUp]

    def test_repeating_arguments_are_requested_in_smaller_calls(self) -> None:
        loop = cut(ARGS, errors.Looping(), lost_tools=("write_file",), lost_characters=20_000)
        assert isinstance(last(loop), RequestSmallerCalls)

    def test_repeating_reasoning_lowers_the_effort(self) -> None:
        looping = errors.Looping(thinking=True)
        assert last(cut(REASONING, looping)) == RetryRequest(lower_effort=True)


class TestTurnBudget:
    def test_the_turn_ends_after_twelve_recoveries_without_progress(self) -> None:
        budget = RecoveryBudget(0.0)
        for _ in range(MAX_RECOVERIES // 2):
            for action in play(cut(BEFORE), cut(BEFORE), budget=budget):
                assert isinstance(action, RetryRequest)
        assert isinstance(play(cut(BEFORE), budget=budget)[0], GiveUp)

    def test_the_turn_ends_after_twenty_minutes_without_progress(self) -> None:
        recovery = Recovery(RecoveryBudget(0.0))
        assert isinstance(
            recovery.next_action(cut(BEFORE), MAX_SECONDS_WITHOUT_PROGRESS + 1), GiveUp
        )

    def test_a_completed_tool_resets_the_budget(self) -> None:
        budget = RecoveryBudget(0.0)
        play(lost("pay"), lost("pay"), budget=budget)
        budget.reset_on_progress(9.0, ["pay"])
        assert (budget.recoveries, budget.losses_by_tool, budget.last_progress_at) == (0, {}, 9.0)

    def test_only_a_completed_tool_resets_loops_refusals_and_compactions(self) -> None:
        budget = RecoveryBudget(0.0)
        budget.compactions = budget.loops = budget.refusals = 2
        budget.reset_on_progress(1.0)
        assert (budget.compactions, budget.loops, budget.refusals) == (2, 2, 2)
        budget.reset_on_progress(2.0, ["read"])
        assert (budget.compactions, budget.loops, budget.refusals) == (0, 0, 0)

    def test_excluded_waits_do_not_count_as_time_without_progress(self) -> None:
        budget = RecoveryBudget(0.0)
        budget.exclude_wait(100.0)
        assert not budget.is_exhausted(MAX_SECONDS_WITHOUT_PROGRESS + 100.0)
        assert budget.is_exhausted(MAX_SECONDS_WITHOUT_PROGRESS + 101.0)

    def test_a_completed_tool_does_not_reset_losses_of_another_tool(self) -> None:
        budget = RecoveryBudget(0.0)
        budget.record_lost_calls(["write_file"])
        budget.reset_on_progress(1.0, ["read"])
        assert budget.record_lost_calls(["write_file"]) == 2

    def test_small_increments_add_up_to_progress(self) -> None:
        budget = RecoveryBudget(0.0)
        budget.recoveries = 5
        assert not budget.record_growth(PROGRESS_CHARACTERS - 1, 0, 1.0)
        assert budget.record_growth(1, 0, 2.0)
        assert budget.recoveries == 0


ERRORS: list[ProviderError | None] = [
    None, DROP, STALL, errors.RateLimited(), errors.RateLimited("", 1.0), errors.Overloaded("", 2.0),
    errors.ApiKeyRejected(), errors.OutOfCredit(), errors.BadRequest("x"), errors.CannotStream(),
    errors.ContextTooLong(), errors.OutputTooLong(), errors.Declined(), errors.Looping(),
]  # fmt: skip
VERDICTS = st.one_of(
    st.sampled_from([Complete(), SoftComplete(), Capped(), Empty(), ModelRefused()]),
    st.builds(Cut, st.sampled_from(CutPhase), st.sampled_from(ERRORS)),
)
STORIES = st.lists(
    st.builds(
        RequestOutcome,
        verdict=VERDICTS,
        new_characters=st.sampled_from([0, 0, 0, 10]),
        repeated_ending=st.booleans(),
        ignored_rewrite=st.booleans(),
        text_visible=st.booleans(),
        lost_tools=st.sampled_from([(), ("a",), ("a", "b")]),
        lost_characters=st.integers(0, 9000),
        unsealed_tools=st.sampled_from([(), ("pay",)]),
        has_reasoning=st.booleans(),
        has_text=st.booleans(),
        after_tools=st.booleans(),
        has_other_target=st.just(value=False),
    ),
    min_size=40,
    max_size=40,
)


@pytest.mark.process
@given(STORIES)
def test_every_sequence_terminates_with_bounded_waits_and_a_cause(
    story: list[RequestOutcome],
) -> None:
    actions = play(*story)
    ends = [
        at for at, each in enumerate(actions) if isinstance(each, FinishTurn | RunTools | GiveUp)
    ]
    assert ends
    assert ends[0] <= MAX_RECOVERIES + 3  # plus compactions
    for action in actions:
        if isinstance(action, RetryRequest | RequestSmallerCalls):
            assert 0 <= action.wait_seconds <= 600
        if isinstance(action, GiveUp | SwitchTarget):
            assert action.cause.strip()
            assert not action.cause.endswith(".")


@pytest.mark.parametrize(
    "error", ERRORS, ids=[f"{at} {type(each).__name__}" for at, each in enumerate(ERRORS)]
)
def test_every_error_has_a_description(error: ProviderError | None) -> None:
    assert describe_error(error).strip()
