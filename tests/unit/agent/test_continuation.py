"""What follows a judged request: one table for each verdict, and what holds for every sequence."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import errors
from agent.continuation import (
    MOST_RECOVERIES,
    MOST_SECONDS,
    PROGRESS,
    Action,
    Again,
    AskSmaller,
    Budget,
    Compact,
    Finish,
    GiveUp,
    Kind,
    Recovery,
    Reissue,
    RunTools,
    Seen,
    Switch,
    Urge,
    cause_of,
)
from agent.errors import ProviderError
from agent.verdict import (
    Capped,
    Complete,
    Cut,
    Empty,
    Interrupted,
    Phase,
    Refused,
    SoftComplete,
    Verdict,
)

STALL = errors.Stalled("given up")
DROP = errors.Cut("connection reset")
BEFORE, TEXT, REASONING = Phase.BEFORE_FIRST, Phase.TEXT, Phase.REASONING
NAME, ARGS, WHOLE = Phase.TOOL_NAME, Phase.TOOL_ARGS, Phase.CALL_UNSEALED


def seen(verdict: Verdict, **facts: Any) -> Seen:
    return Seen(verdict=verdict, **facts)


def cut(phase: Phase, error: ProviderError | None = DROP, **facts: Any) -> Seen:
    return seen(Cut(phase, error), **facts)


def lost(tool: str = "write_file", size: int = 3000, **facts: Any) -> Seen:
    return cut(ARGS, lost=(tool,), lost_size=size, **facts)


def play(*story: Seen, budget: Budget | None = None, backoff: float = 1.0) -> list[Action]:
    recovery = Recovery(budget or Budget(0.0), backoff=backoff)
    return [recovery.next(each, float(at)) for at, each in enumerate(story)]


def last(*story: Seen) -> Action:
    return play(*story)[-1]


DONE: list[tuple[str, Seen, type[Action]]] = [
    ("an answer", seen(Complete(), said=True), Finish),
    ("an answer without a reason to stop", seen(SoftComplete(), said=True), Finish),
    ("calls", seen(Complete(), ready=2), RunTools),
    ("calls of an answer that was cut behind them", cut(ARGS, ready=1, lost=("pay",)), RunTools),
    ("a whole call that only reads", cut(WHOLE, ready=1), RunTools),
    ("calls of a capped answer that had ended", seen(Capped(), ready=1, lost=("x",)), RunTools),
    ("stopped by us", seen(Interrupted()), GiveUp),
    ("nothing to add to what is shown", seen(Empty(), shown=True), Finish),
]


@pytest.mark.parametrize(
    ("what", "action"), [row[1:] for row in DONE], ids=[row[0] for row in DONE]
)
def test_what_ends_a_step(what: Seen, action: type[Action]) -> None:
    assert isinstance(last(what), action)


class TestOnlyAnnounced:
    ANNOUNCED = seen(Complete(), said=True, shown=True, grown=30, announced=True)

    def test_what_was_announced_is_asked_for_once_in_a_turn(self) -> None:
        budget = Budget(0.0)
        assert play(self.ANNOUNCED, self.ANNOUNCED, budget=budget) == [Urge(), Finish()]
        assert play(self.ANNOUNCED, budget=budget) == [Finish()]
        budget.came_on(1.0, ["pay"])
        assert play(self.ANNOUNCED, budget=budget) == [Finish()]

    def test_it_is_no_recovery(self) -> None:
        budget = Budget(0.0)
        play(self.ANNOUNCED, budget=budget)
        assert budget.recoveries == 0

    def test_calls_are_run_whatever_the_text_says(self) -> None:
        assert play(seen(Complete(), ready=1, announced=True)) == [RunTools()]

    @pytest.mark.parametrize("verdict", [Capped(), Refused(), Cut(TEXT, DROP), Empty()], ids=str)
    def test_what_is_not_whole_is_recovered_as_ever(self, verdict: Verdict) -> None:
        assert not isinstance(last(seen(verdict, shown=True, announced=True)), Urge)


class TestBeforeAnythingCame:
    def test_a_stall_is_tried_again_at_once_and_then_somebody_else_is_asked(self) -> None:
        first, second = play(cut(BEFORE, STALL, others=True), cut(BEFORE, STALL, others=True))
        assert first == Again(wait=0.0)
        assert isinstance(second, Switch)

    def test_without_others_a_stall_is_tried_once_more_and_then_given_up(self) -> None:
        actions = play(*[cut(BEFORE, STALL)] * 3)
        assert actions[:2] == [Again(), Again()]
        assert isinstance(actions[2], GiveUp)
        assert actions[2].tell_operator  # an outage

    def test_a_first_wait_that_is_configured_to_be_long_is_kept(self) -> None:
        waits = [
            each.wait for each in play(*[cut(BEFORE)] * 2, backoff=45.0) if isinstance(each, Again)
        ]
        assert waits == [45.0, 45.0]
        waits = [
            each.wait for each in play(*[cut(BEFORE)] * 2, backoff=20.0) if isinstance(each, Again)
        ]
        assert waits == [20.0, 30.0]

    def test_a_drop_waits_longer_each_time_and_goes_on_to_others_at_the_third(self) -> None:
        actions = play(*[cut(BEFORE, DROP, others=True)] * 3)
        assert actions[:2] == [Again(wait=1.0), Again(wait=2.0)]
        assert isinstance(actions[2], Switch)

    def test_another_target_gets_the_same_patience(self) -> None:
        recovery = Recovery(Budget(0.0))
        for _ in range(3):
            recovery.next(cut(BEFORE, DROP, others=True), 0.0)
        recovery.new_target()
        assert recovery.next(cut(BEFORE, DROP), 0.0) == Again(wait=1.0)

    @pytest.mark.parametrize("kind", [errors.RateLimited, errors.Overloaded])
    def test_a_service_that_names_its_time_is_obeyed(self, kind: Any) -> None:
        assert last(cut(BEFORE, kind("", 7.5))) == Again(wait=7.5, exact=True)

    def test_a_limit_of_a_service_behind_the_service_is_for_another_model(self) -> None:
        limit = errors.RateLimited("", 1.0, behind=True)
        assert isinstance(last(cut(BEFORE, limit, others=True)), Switch)
        assert last(cut(BEFORE, limit)) == Again(wait=1.0, exact=True)

    def test_a_long_pause_is_for_others_to_fill(self) -> None:
        asked_to_wait = errors.RateLimited("", 61.0)
        assert isinstance(last(cut(BEFORE, asked_to_wait, others=True)), Switch)
        assert last(cut(BEFORE, asked_to_wait)) == Again(wait=61.0, exact=True)
        assert isinstance(last(cut(BEFORE, errors.RateLimited("", 601.0))), GiveUp)


WRONG: list[tuple[ProviderError, bool]] = [
    (errors.Unauthorized(), True),
    (errors.OutOfCredit(), True),
    (errors.BadRequest("no such model"), False),
]


@pytest.mark.parametrize(("error", "operator"), WRONG, ids=lambda each: type(each).__name__)
def test_what_cannot_change_is_not_tried_again(error: ProviderError, operator: bool) -> None:
    assert isinstance(last(cut(BEFORE, error, others=True)), Switch)
    alone = last(cut(BEFORE, error))
    assert isinstance(alone, GiveUp)
    assert alone.tell_operator is operator


def test_a_service_that_cannot_stream_is_asked_for_the_whole_once() -> None:
    error = errors.CannotStream("no")
    first, second = play(cut(BEFORE, error), cut(BEFORE, error))
    assert first == Again(unstreamed=True)
    assert isinstance(second, GiveUp)


def test_an_output_limit_that_is_too_high_is_lowered() -> None:
    assert last(cut(BEFORE, errors.OutputTooLong("", 4096))) == Again(lower_cap=4096)
    assert last(cut(BEFORE, errors.OutputTooLong())) == Again(lower_cap=0)
    assert isinstance(last(*[cut(BEFORE, errors.OutputTooLong())] * 4), GiveUp)


def test_a_conversation_that_is_too_long_is_shortened_three_times_at_most() -> None:
    actions = play(*[cut(BEFORE, errors.ContextTooLong("", 8192))] * 4)
    assert actions[:3] == [Compact(8192)] * 3
    assert isinstance(actions[3], GiveUp)


class TestCutText:
    def test_it_is_gone_on_with(self) -> None:
        assert last(cut(TEXT, shown=True, said=True, grown=50)) == Again(wait=1.0)
        assert last(cut(TEXT, STALL, shown=True, said=True, grown=50)) == Again(wait=0.0)

    def test_three_requests_in_a_row_without_progress_are_enough(self) -> None:
        story = [cut(TEXT, shown=True, grown=4), cut(BEFORE, shown=True), cut(BEFORE, shown=True)]
        actions = play(*story)
        assert isinstance(actions[2], GiveUp)
        assert "connection drops" in actions[2].cause
        assert not actions[2].tell_operator

    def test_eight_cuts_with_progress_still_come_to_an_end(self) -> None:
        story = [cut(TEXT, shown=True, grown=300)] * 8
        actions = play(*story, seen(Complete(), shown=True, said=True))
        assert all(isinstance(action, Again) for action in actions[:-1])
        assert actions[-1] == Finish()

    def test_only_a_text_that_just_ended_may_have_been_whole(self) -> None:
        again = cut(TEXT, None, repeated=True, shown=True)
        assert isinstance(last(cut(TEXT, None, shown=True), again), Finish)
        assert isinstance(last(cut(REASONING, None, shown=True), again), Again)

    def test_a_text_that_stalls_is_gone_on_with_by_the_same_model_first(self) -> None:
        stalled = cut(TEXT, STALL, shown=True, others=True)
        assert play(stalled, stalled) == [Again(), Again()]
        assert isinstance(last(stalled, stalled, stalled), Switch)

    def test_a_bare_end_that_proves_whole_is_remembered(self) -> None:
        recovery = Recovery(Budget(0.0))
        assert isinstance(recovery.next(cut(TEXT, None, shown=True, grown=9), 0.0), Again)
        assert recovery.next(cut(TEXT, None, shown=True, repeated=True), 1.0) == Finish()
        assert recovery.confirmed_bare_end

    def test_behind_a_drop_the_end_has_to_be_repeated_twice_to_be_believed(self) -> None:
        recovery = Recovery(Budget(0.0))
        again = cut(TEXT, None, shown=True, repeated=True)
        assert isinstance(recovery.next(cut(TEXT, DROP, shown=True, grown=9), 0.0), Again)
        assert isinstance(recovery.next(again, 1.0), Again)
        assert not recovery.confirmed_bare_end
        assert recovery.next(again, 2.0) == Finish()


def test_reasoning_is_restarted_then_with_less_effort_then_elsewhere() -> None:
    actions = play(*[cut(REASONING, thought=True, others=True)] * 3)
    assert [getattr(action, "lower_effort", None) for action in actions[:2]] == [False, True]
    assert isinstance(actions[2], Switch)


def test_the_numbers_are_those_that_were_agreed() -> None:
    assert (MOST_RECOVERIES, MOST_SECONDS, PROGRESS) == (12, 20 * 60, 200)


class TestLostCalls:
    @pytest.mark.parametrize(("size", "action"), [(2047, Again), (2048, AskSmaller)])
    def test_two_kilobytes_are_no_small_one(self, size: int, action: type[Action]) -> None:
        assert isinstance(last(lost(size=size)), action)

    def test_a_small_one_is_simply_asked_for_again_the_first_time(self) -> None:
        assert last(lost(size=12)) == Again(wait=1.0)
        assert isinstance(last(lost(size=12), lost(size=12)), AskSmaller)

    @pytest.mark.parametrize(
        "facts", [{"size": 3000}, {"size": 12, "shown": True}, {"size": 12, "drafted": 9}]
    )
    def test_a_large_one_is_asked_for_in_parts_at_once(self, facts: dict[str, Any]) -> None:
        assert isinstance(last(lost(**facts)), AskSmaller)

    def test_the_limit_halves_then_the_schema_holds_then_the_tool_is_withheld(self) -> None:
        actions = play(*[lost()] * 5)
        forms = [action for action in actions if isinstance(action, AskSmaller)]
        assert [form.limit for form in forms] == [8, 4, 2, 1]
        assert [form.hard for form in forms] == [False, True, True, True]
        assert [form.withhold for form in forms] == ["", "", "", "write_file"]
        assert isinstance(actions[4], GiveUp)

    def test_others_are_asked_before_a_tool_is_withheld(self) -> None:
        assert isinstance(last(*[lost(others=True)] * 3), Switch)

    def test_a_draft_that_grows_gives_every_limit_back(self) -> None:
        actions = play(*[lost("write_file_continue", drafted=8000)] * 10)
        assert all(isinstance(each, AskSmaller) and each.limit == 8 for each in actions)

    def test_tools_are_counted_apart(self) -> None:
        assert last(lost("a"), lost("b")) == AskSmaller(wait=1.0)

    def test_a_stall_needs_no_wait(self) -> None:
        stalled = cut(ARGS, STALL, lost=("write_file",), lost_size=3000)
        assert last(stalled) == AskSmaller(wait=0.0)

    def test_a_whole_call_that_nothing_proves_ended_is_asked_for_again(self) -> None:
        actions = play(*[cut(WHOLE, unsealed=("pay",))] * 2)
        assert actions == [Reissue(), Reissue()]

    @pytest.mark.parametrize("verdict", [Cut(WHOLE, DROP), Capped()], ids=["cut", "capped"])
    def test_then_it_is_taken_for_lost_and_goes_the_way_of_the_lost(self, verdict: Verdict) -> None:
        actions = play(*[seen(verdict, unsealed=("pay",))] * 7)
        forms = [action for action in actions if isinstance(action, AskSmaller)]
        assert [form.limit for form in forms] == [8, 4, 2, 1]
        assert {form.raise_cap for form in forms} == {isinstance(verdict, Capped)}
        assert [type(each) for each in actions[:2]] == [Reissue, Reissue]
        assert isinstance(actions[6], GiveUp)


class TestOutputLimit:
    def test_text_goes_on_with_a_higher_limit(self) -> None:
        action = last(seen(Capped(), said=True, shown=True, grown=500))
        assert action == Again(kind=Kind.CAP, raise_cap=True)

    def test_a_cut_call_is_asked_for_in_parts_at_once_however_small(self) -> None:
        action = last(seen(Capped(), lost=("pay",), lost_size=9))
        assert isinstance(action, AskSmaller)
        assert action.raise_cap

    def test_only_reasoning_is_tried_once_more_with_less_effort(self) -> None:
        story = [seen(Capped(), thought=True)] * 2
        first, second = play(*story)
        assert first == Again(kind=Kind.CAP, raise_cap=True, lower_effort=True)
        assert isinstance(second, GiveUp)
        assert second.notice == "N8"

    def test_nothing_at_all_is_not_exhausted_thinking(self) -> None:
        actions = play(*[seen(Capped())] * 3)
        assert [type(each) for each in actions] == [Again, Again, GiveUp]

    def test_a_conversation_that_stays_too_long_says_that_it_is_that(self) -> None:
        *_, end = play(*[cut(BEFORE, errors.ContextTooLong())] * 4)
        assert isinstance(end, GiveUp)
        assert end.too_long

    def test_with_progress_it_goes_on_twelve_times(self) -> None:
        actions = play(*[seen(Capped(), said=True, shown=True, grown=300)] * 13)
        assert all(isinstance(each, Again) for each in actions[:12])
        assert isinstance(actions[12], GiveUp)


class TestAnswersThatBeginAnew:
    """Where what is shown cannot be changed, nobody sees what the model says instead."""

    ANEW = seen(Complete(), said=True, shown=True, unheard=True)

    def test_it_is_asked_once_more_to_go_on(self) -> None:
        assert play(self.ANEW) == [Again()]

    def test_the_end_of_the_old_one_is_then_the_answer(self) -> None:
        assert play(self.ANEW, seen(Complete(), said=True, shown=True, grown=9))[1] == Finish()

    def test_a_half_of_an_answer_is_not_passed_off_as_a_whole_one(self) -> None:
        end = play(self.ANEW, self.ANEW)[1]
        assert isinstance(end, GiveUp)
        assert "anew" in end.cause

    def test_others_may_know_how_to_go_on(self) -> None:
        other = seen(Complete(), said=True, shown=True, unheard=True, others=True)
        assert isinstance(play(other, other)[1], Switch)

    def test_the_reason_to_go_on_stays_the_same(self) -> None:
        capped = seen(Capped(), said=True, shown=True, grown=500)
        assert play(capped, self.ANEW)[1] == Again(kind=Kind.CAP)
        assert play(cut(TEXT, grown=500), self.ANEW)[1] == Again(kind=Kind.NETWORK)

    def test_calls_in_it_are_run(self) -> None:
        assert play(seen(Complete(), ready=1, shown=True, unheard=True)) == [RunTools()]


class TestRefusals:
    @pytest.mark.parametrize(
        "refusal", [seen(Refused(), others=True), cut(TEXT, errors.Declined(), others=True)]
    )
    def test_another_model_is_asked_once(self, refusal: Seen) -> None:
        first, second = play(refusal, refusal)
        assert isinstance(first, Switch)
        assert isinstance(second, GiveUp)
        assert second.notice == "N9"


class TestEmptyAnswers:
    def test_one_plain_retry(self) -> None:
        actions = play(*[seen(Empty())] * 2)
        assert [type(each) for each in actions] == [Again, GiveUp]

    def test_behind_tools_the_model_is_nudged_before_others_are_asked(self) -> None:
        actions = play(*[seen(Empty(), after_tools=True, others=True)] * 3)
        assert actions[:2] == [Again(), Again(nudge=True)]
        assert isinstance(actions[2], Switch)


class TestLoops:
    def test_a_loop_is_broken_once(self) -> None:
        actions = play(*[cut(TEXT, errors.Looping(), said=True)] * 2)
        assert [type(each) for each in actions] == [Again, GiveUp]

    def test_looping_arguments_are_asked_for_smaller(self) -> None:
        loop = cut(ARGS, errors.Looping(), lost=("write_file",), lost_size=20_000)
        assert isinstance(last(loop), AskSmaller)

    def test_looping_thoughts_get_less_effort(self) -> None:
        looping = errors.Looping(thinking=True)
        assert last(cut(REASONING, looping)) == Again(lower_effort=True)


class TestTheWholeTurn:
    def test_it_gives_up_after_twelve_recoveries_without_progress(self) -> None:
        budget = Budget(0.0)
        for _ in range(MOST_RECOVERIES // 2):
            for action in play(cut(BEFORE), cut(BEFORE), budget=budget):
                assert isinstance(action, Again)
        assert isinstance(play(cut(BEFORE), budget=budget)[0], GiveUp)

    def test_it_gives_up_after_twenty_minutes_without_progress(self) -> None:
        recovery = Recovery(Budget(0.0))
        assert isinstance(recovery.next(cut(BEFORE), MOST_SECONDS + 1), GiveUp)

    def test_a_tool_that_ran_gives_everything_back(self) -> None:
        budget = Budget(0.0)
        play(lost("pay"), lost("pay"), budget=budget)
        budget.came_on(9.0, ["pay"])
        assert (budget.recoveries, budget.losses, budget.progress_at) == (0, {}, 9.0)

    def test_only_a_tool_that_ran_excuses_loops_refusals_and_summaries(self) -> None:
        budget = Budget(0.0)
        budget.compactions = budget.loops = budget.refusals = 2
        budget.came_on(1.0)
        assert (budget.compactions, budget.loops, budget.refusals) == (2, 2, 2)
        budget.came_on(2.0, ["read"])
        assert (budget.compactions, budget.loops, budget.refusals) == (0, 0, 0)

    def test_a_pause_is_not_counted(self) -> None:
        budget = Budget(0.0)
        budget.paused(100.0)
        assert not budget.is_over(MOST_SECONDS + 100.0)
        assert budget.is_over(MOST_SECONDS + 101.0)

    def test_a_tool_that_ran_does_not_excuse_the_loss_of_another(self) -> None:
        budget = Budget(0.0)
        budget.lost(["write_file"])
        budget.came_on(1.0, ["read"])
        assert budget.lost(["write_file"]) == 2

    def test_little_by_little_is_progress_too(self) -> None:
        budget = Budget(0.0)
        budget.recoveries = 5
        assert not budget.grew(PROGRESS - 1, 0, 1.0)
        assert budget.grew(1, 0, 2.0)
        assert budget.recoveries == 0


ERRORS: list[ProviderError | None] = [
    None, DROP, STALL, errors.RateLimited(), errors.RateLimited("", 1.0), errors.Overloaded("", 2.0),
    errors.Unauthorized(), errors.OutOfCredit(), errors.BadRequest("x"), errors.CannotStream(),
    errors.ContextTooLong(), errors.OutputTooLong(), errors.Declined(), errors.Looping(),
]  # fmt: skip
VERDICTS = st.one_of(
    st.sampled_from([Complete(), SoftComplete(), Capped(), Empty(), Refused()]),
    st.builds(Cut, st.sampled_from(Phase), st.sampled_from(ERRORS)),
)
STORIES = st.lists(
    st.builds(
        Seen,
        verdict=VERDICTS,
        grown=st.sampled_from([0, 0, 0, 10]),
        repeated=st.booleans(),
        unheard=st.booleans(),
        shown=st.booleans(),
        lost=st.sampled_from([(), ("a",), ("a", "b")]),
        lost_size=st.integers(0, 9000),
        unsealed=st.sampled_from([(), ("pay",)]),
        thought=st.booleans(),
        said=st.booleans(),
        after_tools=st.booleans(),
        others=st.just(value=False),
    ),
    min_size=40,
    max_size=40,
)


@given(STORIES)
def test_no_story_goes_on_for_ever_waits_are_bounded_and_a_cause_is_always_told(
    story: list[Seen],
) -> None:
    actions = play(*story)
    ends = [at for at, each in enumerate(actions) if isinstance(each, Finish | RunTools | GiveUp)]
    assert ends
    assert ends[0] <= MOST_RECOVERIES + 3  # compactions beside
    for action in actions:
        if isinstance(action, Again | AskSmaller):
            assert 0 <= action.wait <= 600
        if isinstance(action, GiveUp | Switch):
            assert action.cause.strip()
            assert not action.cause.endswith(".")


@pytest.mark.parametrize(
    "error", ERRORS, ids=[f"{at} {type(each).__name__}" for at, each in enumerate(ERRORS)]
)
def test_every_error_has_words(error: ProviderError | None) -> None:
    assert cause_of(error).strip()
