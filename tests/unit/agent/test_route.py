"""Target selection of a turn, and the facts it records about targets."""

from typing import Any

import pytest
from msgspec.structs import replace

from agent import errors
from agent.answer.accumulate import FinishReason, StepResult
from agent.attempt import AttemptResult
from agent.model.learned import LearnedTargets
from agent.model.usage import Usage
from agent.providers.demo import DemoProvider
from agent.providers.registry import Target
from agent.route import Route
from agent.settings import TargetSettings
from agent.verdict import Complete, Cut, CutPhase, ModelRefused, Verdict

STALLED = Cut(CutPhase.BEFORE_FIRST, errors.Stalled("given up"))


def target(model: str, **settings: Any) -> Target:
    return Target(DemoProvider(), model, TargetSettings(**settings))


def result(verdict: Verdict, usage: Usage = Usage(), **step: Any) -> AttemptResult:  # noqa: B008
    return AttemptResult(verdict=verdict, step=StepResult(**step), usage=usage)


def two(experience: LearnedTargets) -> Route:
    return Route([target("a"), target("b")], experience)


def hung_twice(experience: LearnedTargets) -> Route:
    """Return a route whose first target stalled twice."""
    route = two(experience)
    for now in (1.0, 2.0):
        route.record_result(result(STALLED), now, unmarked_end=False)
    return route


def test_the_primary_is_used_until_it_is_marked_failed() -> None:
    route = Route([target("a"), target("b")], LearnedTargets())
    assert route.choose_target(0.0) is None
    assert route.target.model == "a"
    assert route.has_fallback
    route.mark_failed()
    assert route.choose_target(0.0) == "demo/a"
    assert route.target.model == "b"
    assert not route.has_fallback


def test_a_target_that_stalled_twice_is_skipped_by_all_turns() -> None:
    experience = LearnedTargets()
    hung_twice(experience)
    second = two(experience)
    assert second.choose_target(3.0) == "demo/a"
    assert second.target.model == "b"
    later = two(experience)
    assert later.choose_target(70.0) is None  # the probe
    other = two(experience)
    assert other.choose_target(70.0) == "demo/a"
    later.record_result(
        result(Complete(), finish_reason=FinishReason.STOP), 71.0, unmarked_end=False
    )
    assert two(experience).choose_target(72.0) is None


def test_releasing_a_route_frees_its_breaker_probe() -> None:
    experience = LearnedTargets()
    hung_twice(experience)
    probe = two(experience)
    assert probe.choose_target(70.0) is None
    probe.release(71.0)
    assert two(experience).choose_target(72.0) is None


def test_releasing_a_route_does_not_free_another_routes_probe() -> None:
    experience = LearnedTargets()
    first = hung_twice(experience)
    probe = two(experience)
    assert probe.choose_target(70.0) is None
    first.release(71.0)
    assert two(experience).choose_target(72.0) == "demo/a"


def test_a_context_window_reported_by_the_service_is_remembered() -> None:
    route = Route([target("a")], LearnedTargets())
    route.record_result(
        result(Cut(CutPhase.TEXT, errors.ContextTooLong("", 8192))), 0.0, unmarked_end=False
    )
    assert route.window == 8192
    assert Route([target("b")], LearnedTargets()).window is None


@pytest.mark.parametrize(
    "shown",
    [
        result(Cut(CutPhase.BEFORE_FIRST, errors.CannotStream("no"))),
        result(Complete(), unstreamed=True, finish_reason=FinishReason.STOP),
    ],
    ids=["error", "unstreamed answer"],
)
def test_streaming_is_tried_again_after_ten_minutes(
    shown: AttemptResult,
) -> None:
    route = Route([target("a")], LearnedTargets())
    route.record_result(shown, 5.0, unmarked_end=False)
    assert not route.should_stream(600.0)
    route.record_result(
        result(Complete(), unstreamed=True), 600.0, unmarked_end=False
    )  # streaming was not requested
    assert route.should_stream(605.0)


def test_unmarked_ends_are_counted_until_an_end_marker_is_seen() -> None:
    route = Route([target("a")], LearnedTargets())
    for _ in range(2):
        route.record_result(result(Cut(CutPhase.TEXT)), 0.0, unmarked_end=True)
    assert route.learned.omits_end_marker
    route.record_result(
        result(ModelRefused(), finish_reason=FinishReason.REFUSED), 0.0, unmarked_end=False
    )
    assert not route.learned.omits_end_marker


CAPS = [
    ("used tokens are doubled", {}, None, 5000, 10_000),
    ("minimum after a small answer", {}, None, 10, 4096),
    ("configured limit is doubled", {"max_output_tokens": 900}, None, 900, 1800),
    ("raised limit is doubled again", {"max_output_tokens": 900}, 1800, 1800, 3600),
]


@pytest.mark.parametrize(
    ("settings", "cap", "used", "raised"), [c[1:] for c in CAPS], ids=[c[0] for c in CAPS]
)
def test_an_output_limit_that_was_hit_is_doubled(
    settings: dict[str, Any], cap: int | None, used: int, raised: int
) -> None:
    route = Route([target("unknown", **settings)], LearnedTargets())
    seen = result(Complete(), Usage(output_tokens=used))
    assert route.raised_cap(cap, seen) == raised


def test_a_raised_output_limit_stays_within_the_models_maximum_and_is_never_lowered() -> None:
    route = Route([target("a", max_output_tokens=900)], LearnedTargets())
    route.record_result(
        result(Cut(CutPhase.TEXT, errors.OutputTooLong("", 1000))), 0.0, unmarked_end=False
    )
    seen = result(Complete())
    assert route.raised_cap(None, seen) == 1000
    assert route.raised_cap(5000, seen) == 5000


def test_a_rejected_output_limit_is_not_used_again_in_this_turn() -> None:
    experience = LearnedTargets()
    route = Route([target("a", max_output_tokens=9000), target("b")], experience)
    route.record_result(
        result(Cut(CutPhase.TEXT, errors.OutputTooLong("", 1000))), 0.0, unmarked_end=False
    )
    assert route.max_output == 1000
    route.mark_failed()
    route.choose_target(0.0)
    assert route.target.settings.max_output_tokens is route.max_output
    assert Route([target("a", max_output_tokens=9000)], experience).max_output == 9000


@pytest.mark.parametrize(
    ("settings", "cap", "lowered"),
    [({}, 8000, 4000), ({"max_output_tokens": 6000}, None, 3000), ({}, None, 4096), ({}, 9, 1024)],
)
def test_a_rejected_output_limit_without_a_named_maximum_is_halved(
    settings: dict[str, Any], cap: int | None, lowered: int
) -> None:
    assert Route([target("unknown", **settings)], LearnedTargets()).lowered_cap(cap) == lowered


def test_a_duplicate_target_is_not_a_fallback() -> None:
    twin = target("a")
    route = Route([twin, replace(twin, settings=TargetSettings(temperature=1.0))], LearnedTargets())
    assert not route.has_fallback
