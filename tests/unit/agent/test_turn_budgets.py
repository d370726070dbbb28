"""Turns under a spending limit."""

from collections.abc import Callable

import pytest

from agent.errors import BudgetExceeded
from agent.events import TurnEnding
from agent.model.usage import ASSUMED_ANSWER_TOKENS, Price, UsageEstimate
from agent.settings import PriceSettings
from sessions.records import Message
from tests.fakes.agent_kit import MemoryJournal
from tests.fakes.model_script import calls, ok
from tests.unit.agent.turn_kit import OLD, READ_A, TOO_LONG, Play, Stage

pytestmark = pytest.mark.quick


class Purse(MemoryJournal):
    """Journal that records each usage estimate and allows a number of requests."""

    def __init__(self, passing: int) -> None:
        super().__init__()
        self.passing = passing
        self.needs: list[UsageEstimate] = []

    async def attempt_started(
        self, number: int, target: str, need: Callable[[], UsageEstimate]
    ) -> None:
        self.needs.append(need())
        if len(self.needs) > self.passing:
            msg = "no money is left"
            raise BudgetExceeded(msg, retry_in_seconds=60)
        await super().attempt_started(number, target, need)


def limited(stage: Stage, passing: int) -> Purse:
    purse = Purse(passing)
    stage.journal = purse
    return purse


async def test_the_usage_estimate_is_available_before_a_request_is_sent(play: Play) -> None:
    stage = await play(ok("fine"))
    stage.settings = {
        "max_output_tokens": 50,
        "price": PriceSettings(input=1.0, output=2.0, cached=0.5),
    }
    purse = limited(stage, 1)
    assert (await stage.run()).text == "fine"
    (need,) = purse.needs
    assert (need.model, need.output_tokens) == ("scripted", 50)
    assert need.price == Price(1.0, 2.0, 0.5)
    tools = sum(len(str(each)) for each in stage.offered(1).values())
    assert 20 < need.input_tokens < 100 + tools
    assert need.cost == pytest.approx((need.input_tokens + 100) / 1_000_000)


async def test_the_estimate_assumes_a_length_without_an_output_limit(
    play: Play,
) -> None:
    stage = await play(ok("fine"))
    purse = limited(stage, 1)
    await stage.run()
    (need,) = purse.needs
    assert need.output_tokens == ASSUMED_ANSWER_TOKENS
    assert need.total_tokens == need.input_tokens + ASSUMED_ANSWER_TOKENS
    assert need.cost is None


async def test_a_turn_over_budget_sends_nothing(play: Play) -> None:
    stage = await play(ok("fine"))
    limited(stage, 0)
    done = await stage.run()
    assert (done.ending, done.cause, done.notice) == (
        TurnEnding.FAILED,
        "no money is left",
        "budget",
    )
    assert (done.over_budget, done.budget_free_in_seconds, done.attempts, done.text) == (
        True,
        60,
        0,
        "",
    )
    assert stage.server.requests == []
    assert stage.journal.log == []


async def test_a_turn_that_exceeds_its_budget_keeps_its_results(play: Play) -> None:
    stage = await play(calls(READ_A), ok("never asked for"))
    limited(stage, 1)
    done = await stage.run()
    assert (done.notice, done.attempts, done.tools_run) == ("N7", 1, ("read a",))
    assert done.over_budget


async def test_a_cut_text_over_budget_is_kept_without_a_continuation(play: Play) -> None:
    stage = await play('H T"The beginning " RST', ok("never asked for"))
    limited(stage, 1)
    done = await stage.run()
    assert (done.text, done.notice) == ("The beginning ", "N7")
    assert done.message == Message("assistant", "The beginning ", interrupted="no money is left")


async def test_retries_and_summaries_need_budget_too(play: Play) -> None:
    stage = await play("S500", TOO_LONG, ok("An old story."), ok("done"))
    purse = limited(stage, 4)
    done = await stage.run(*OLD)
    assert (done.text, len(purse.needs)) == ("done", 4)
    again, first, summary, last = (need.input_tokens for need in purse.needs)
    assert again == first > last
    assert summary > 100  # contains the record, but no tools


async def test_a_summary_over_budget_ends_the_turn(play: Play) -> None:
    stage = await play(TOO_LONG, ok("never asked for"))
    limited(stage, 1)
    done = await stage.run(*OLD)
    assert (done.over_budget, done.attempts, len(stage.server.requests)) == (True, 1, 1)
    assert stage.journal.summaries == []


async def test_a_fallback_is_estimated_with_its_own_price(play: Play) -> None:
    stage = await play("S401")
    await stage.fallback(ok("hello"))
    stage.settings = {"price": PriceSettings(input=1.0, output=1.0)}
    purse = limited(stage, 2)
    assert (await stage.run()).text == "hello"
    assert [(need.model, need.price is None) for need in purse.needs] == [
        ("scripted", False),
        ("second", True),
    ]
