"""Daily limits as people, API clients and admins see them."""

import asyncio
import datetime as dt
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from agent.settings import AgentSettings, PriceSettings, ToolSettings
from agent.tools.contract import Risk, ToolContext
from agent.tools.define import tool
from gateway.access.settings import AccessSettings
from gateway.operate.cli.daemon import status as shown_status
from gateway.process.control_socket import send_request, serve_control_socket, socket_path
from gateway.settings import BudgetSettings, GatewaySettings, LimitSettings, Settings, UserLimits
from gateway.spending.budgets import Budgets
from gateway.spending.days import day_of
from platforms.core.contract import Live, Sender
from sessions.changes import BudgetLimit, BudgetReservation
from sessions.errors import StoreUnavailable
from sessions.records import BudgetUsage, TurnState
from sessions.store.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.duration import Duration
from tests.e2e.api_kit import served
from tests.e2e.gateway_kit import GatewayKit, Nothing, Screen, gateway
from tests.fakes.gateway_settings import scripted_model
from tests.fakes.model_script import Script, call_delta, steps
from tests.fakes.model_server import ModelServer
from tests.fakes.quick_time import clock_here

pytestmark = pytest.mark.quick

ANN, BOB, CHIEF = Sender("1001", "Ann"), Sender("1002", "Bob"), Sender("9", "Chief")
ANSWER = 100  # tokens that an answer may have
NOON = int(dt.datetime(2026, 11, 18, 12, 0, 30).astimezone().timestamp() * 1000)
DAY = 86_400_000
PRICE = PriceSettings(input=10.0, output=100.0)  # a cent for 1,000 tokens in or 100 out


class Noon:
    """A clock that starts far from midnight and can be set."""

    def __init__(self) -> None:
        self._clock: Clock = clock_here()
        self._began = self._clock.monotonic()
        self.ahead = 0

    def now(self) -> int:
        return NOON + self.ahead + round((self._clock.monotonic() - self._began) * 1000)

    def monotonic(self) -> float:
        return self._clock.monotonic()


def cost(output: int, input_: int, text: str = "fine") -> Script:
    """Return an answer with this usage."""
    return steps(f'H T"{text}" F stop U({output},{input_}) D EOF')


class Turns:
    """Answers with one script after the other; the last one repeats."""

    def __init__(self, *scripts: Script) -> None:
        self.scripts = list(scripts)

    def __call__(self, _body: dict[str, Any]) -> Script:
        return self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]


def settings(server: ModelServer, limits: LimitSettings, **model: Any) -> Settings:
    return Settings(
        gateway=GatewaySettings(drain_seconds=0, stale_after=Duration(10**9)),
        model=scripted_model(
            server,
            **{"max_output_tokens": ANSWER, **model},
        ),
        agent=AgentSettings(system_prompt="Hi."),
        tools=ToolSettings(enabled=(), approval="never"),
        access=AccessSettings(allow=("memory:1001", "memory:1002"), admins=("memory:9",)),
        limits=msgspec.structs.replace(limits, messages_per_minute=10_000),
        platforms={"memory": Nothing()},
    )


def a_screen() -> Screen:
    return Screen(live=Live.EDIT, live_interval=0.01, burst=1000)


async def spent(kit: GatewayKit, scope: str, *, days: int = 0) -> BudgetUsage:
    store = kit.runner._store
    assert store
    return (await store.spending.on_day(day_of(NOON, days=days), [scope]))[scope]


async def settled(kit: GatewayKit, scope: str, *, days: int = 0) -> BudgetUsage:
    """Wait until no reservation is open, and return the spending."""
    for _ in range(500):
        found = await spent(kit, scope, days=days)
        if not found.held_tokens:
            return found
        await asyncio.sleep(0.01)
    msg = f"{scope} is never settled"
    raise AssertionError(msg)


async def answer_to(kit: GatewayKit, chat: str, text: str, sender: Sender = ANN) -> str:
    """Send a message and return the next final message."""
    before = {each.id for each in kit.screen.messages(chat)}

    def new() -> list[str]:
        found = [each.text for each in kit.screen.messages(chat) if each.id not in before]
        return [each for each in found if each.strip() and not each.startswith("⏳")]

    await kit.screen.say(chat, text, sender=sender)
    await kit.screen.until(chat, lambda _: bool(new()))
    return new()[-1]


async def test_a_person_over_the_daily_limit_is_informed_and_answered_the_next_day(
    tmp_path: Path,
) -> None:
    clock, screen = Noon(), a_screen()
    async with ModelServer(Turns(cost(50, 900))) as server:
        usual = settings(server, LimitSettings(tokens_per_day=1000))
        async with gateway(tmp_path, server, screen, settings=usual, clock=clock) as kit:
            assert await answer_to(kit, "1001", "one") == "fine"
            assert await settled(kit, "user memory:1001") == BudgetUsage(950)
            told = await answer_to(kit, "1001", "two")
            assert re.fullmatch(
                r"⛔ Not answered: the limit of 1,000 tokens a day for each person has only 50 tokens "
                r"left, and this request may use \d+ tokens; it resets in 11 h 59 min\. "
                r"Your message is saved; /retry runs it then\.",
                told,
            )
            assert len(server.requests) == 1
            assert kit.runner._store
            turn = (await kit.runner._store.conversation("memory:1001")).last_turn
            assert turn
            assert (turn.state, turn.attempts) == (TurnState.FAILED, 0)
            assert turn.cause
            assert turn.cause.startswith("the limit of 1,000 tokens a day for each person")
            assert await answer_to(kit, "1002", "I am another", BOB) == "fine"
        clock.ahead = -DAY  # a wrong clock for a while
        async with gateway(tmp_path, server, screen, settings=usual, clock=clock) as kit:
            clock.ahead = 60_000  # releases nothing
            assert "Not answered" in await answer_to(kit, "1001", "/retry")
            clock.ahead = DAY
            assert await answer_to(kit, "1001", "/retry") == "fine"
            assert await settled(kit, "user memory:1001") == BudgetUsage(950)
            assert await settled(kit, "user memory:1001", days=1) == BudgetUsage(950)
            said = [each["content"] for each in await kit.asked(3)]
            assert said == ["one", "fine", "two"]


@tool(risk=Risk.READ)
async def look(_context: ToolContext, what: str) -> str:
    """Look at a thing.

    Args:
        _context: Not part of the call.
        what: At what.
    """
    return f"it is {what}"


LOOKS = (
    *steps('H T"I will look."'),
    call_delta(0, "c1", "look", '{"what":"red"}'),
    *steps("F tool_calls U(50,2800) D EOF"),
)


async def test_a_limit_reached_during_a_turn_keeps_its_text_and_results(tmp_path: Path) -> None:
    clock, screen = Noon(), a_screen()
    limits = LimitSettings(users={"memory:1001": UserLimits(tokens_per_day=3000)})
    async with ModelServer(Turns(LOOKS, cost(5, 100, "It is red."))) as server:
        usual = settings(server, limits)
        async with gateway(
            tmp_path, server, screen, settings=usual, clock=clock, tools=(look,)
        ) as kit:
            await screen.say("1001", "go", sender=ANN)
            await screen.shows(
                "1001", "I will look.", "❌ Sorry, I couldn't finish this: the limit of 3,000"
            )
            notice = screen.messages("1001")[-1]
            assert "a day for memory:1001 has only 150 tokens left" in notice.text
            assert "Done so far: look" in notice.text
            assert [button.label for button in notice.buttons] == ["Go on", "Start over"]
            assert await settled(kit, "user memory:1001") == BudgetUsage(2850)
            clock.ahead = DAY
            await screen.press("1001", notice.buttons[0].action, sender=ANN)
            await screen.shows("1001", "It is red.")
            roles = [each["role"] for each in await kit.asked(2)]
            assert roles == ["user", "assistant", "tool"]


async def test_a_hundred_concurrent_turns_stay_within_the_budget(tmp_path: Path) -> None:
    screen = a_screen()
    most = 3000
    limits = LimitSettings(all=BudgetSettings(tokens_per_day=most))
    async with ModelServer(Turns(cost(ANSWER, 20))) as server:
        usual = settings(server, limits)
        async with gateway(tmp_path, server, screen, settings=usual, clock=Noon()) as kit:
            async with asyncio.timeout(30), asyncio.TaskGroup() as chat_users:
                for number in range(100):
                    chat_users.create_task(screen.say(f"c{number}", "go", sender=ANN))
            shown = {
                f"c{number}": (
                    await screen.until(
                        f"c{number}", lambda found: any(m.text.strip() for m in found)
                    )
                )[-1].text
                for number in range(100)
            }
            counted = await settled(kit, "all")
    answered = sum(text == "fine" for text in shown.values())
    assert answered + sum("a day for everyone" in text for text in shown.values()) == 100
    assert answered == len(server.requests)
    assert counted == BudgetUsage(answered * 120)
    assert most - 130 < counted.tokens <= most  # the budget is used as far as it fits


async def test_people_of_a_chat_share_its_limit_and_admins_are_notified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.alerts.watch.DISK_CHECK_SECONDS", 0.5)
    clock, screen = Noon(), a_screen()
    limits = LimitSettings(
        chats={"memory:hall": BudgetSettings(tokens_per_day=1000)},
        all=BudgetSettings(tokens_per_day=10**6),
    )
    near = "🛠 90 % of the daily limit of 1,000 tokens for memory:hall is used: 900 tokens."
    over = "⛔ The daily limit of 1,000 tokens for memory:hall is used up."
    async with ModelServer(Turns(cost(50, 850))) as server:
        usual = settings(server, limits)
        async with gateway(tmp_path, server, screen, settings=usual, clock=clock) as kit:
            assert await answer_to(kit, "hall", "one") == "fine"
            await screen.until("9", lambda shown: any(near in each.text for each in shown), 90.0)
            told = await answer_to(kit, "hall", "two", BOB)
            assert "the limit of 1,000 tokens a day for this chat has only 100 tokens left" in told
            await screen.shows("9", over)
            assert await answer_to(kit, "1002", "at home", BOB) == "fine"
        async with gateway(tmp_path, server, screen, settings=usual, clock=clock) as kit:
            assert "Not answered" in await answer_to(kit, "hall", "three")
            clock.ahead = DAY
            assert await answer_to(kit, "hall", "four") == "fine"
            await screen.until("9", lambda shown: len(shown) == 3, 90.0)
    starts = [each.text.partition(" of")[0] for each in screen.messages("9")]
    assert starts == ["🛠 90 %", "⛔ The daily limit", "🛠 90 %"]  # not again after the restart


class Nights(Noon):
    """A clock that is a day later at each reading."""

    def now(self) -> int:
        self.ahead += DAY
        return super().now()


async def test_the_spending_and_its_day_agree_at_midnight(tmp_path: Path) -> None:
    limits = LimitSettings(all=BudgetSettings(tokens_per_day=1000))
    store = await SessionStore.open(f"sqlite:///{tmp_path / 'holdfast.db'}", clock=Nights())
    try:
        assert (
            await store.reserve_budget(
                BudgetReservation(day_of(NOON, days=1), (BudgetLimit("all", 1000),), 900)
            )
            is None
        )
        (standing,) = await Budgets(store, Nights(), limits).statuses()
        assert (standing.day, standing.spent.tokens) == (day_of(NOON, days=1), 900)
    finally:
        await store.close()


async def test_a_dollar_limit_counts_charged_costs_and_shows_the_remainder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = a_screen()
    limits = LimitSettings(
        usd_per_day=0.06, all=BudgetSettings(usd_per_day=50, tokens_per_day=10**6)
    )
    async with ModelServer(Turns(cost(100, 2000))) as server:  # 3 cents
        usual = settings(server, limits, price=PRICE)
        async with gateway(tmp_path, server, screen, settings=usual, clock=Noon()) as kit:
            assert await answer_to(kit, "1001", "one") == "fine"
            assert await settled(kit, "user memory:1001") == BudgetUsage(2100, 0.03)
            shown = await answer_to(kit, "1001", "/usage")
            assert shown.splitlines()[-1] == (
                "left for today: 997,900 tokens and $49.97 of 1,000,000 tokens and $50.00 for "
                "everyone · $0.03 of $0.06 for each person; limits reset in 11 h 59 min"
            )
            assert await answer_to(kit, "1001", "two") == "fine"
            told = await answer_to(kit, "1001", "three")
            assert "Not answered: the limit of $0.06 a day for each person is used up;" in told
            path = socket_path(tmp_path, {})
            async with serve_control_socket(path, kit.runner.operations):
                status = await asyncio.to_thread(send_request, path, "status")
                monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
                seen = await asyncio.to_thread(CliRunner().invoke, shown_status)
                line = "today, everyone  4,200 tokens and $0.06 of 1,000,000 tokens and $50.00"
                assert line in seen.output
    assert status["today"] == [
        {
            "for": "everyone",
            "used": "4,200 tokens and $0.06",
            "limit": "1,000,000 tokens and $50.00",
            "tokens": 4200,
            "tokens_limit": 10**6,
            "usd": 0.06,
            "usd_limit": 50,
        }
    ]


async def test_a_request_larger_than_the_daily_limit_is_refused_permanently(tmp_path: Path) -> None:
    async with ModelServer(Turns(cost(1, 1))) as server:
        limits = LimitSettings(
            tokens_per_day=ANSWER, users={"memory:1002": UserLimits(tokens_per_day=0)}
        )
        usual = settings(server, limits)
        async with gateway(tmp_path, server, settings=usual) as kit:
            told = await answer_to(kit, "1001", "one")
            assert re.fullmatch(
                r"⛔ Not answered: this request may use 1\d\d tokens, and the limit for each person "
                r"is 100 tokens a day\. /new starts a new, shorter conversation\.",
                told,
            )
            told = await answer_to(kit, "1002", "one", BOB)
            assert told == "⛔ Not answered: the limit for memory:1002 is 0 tokens a day."
    assert server.requests == []


async def test_refused_requests_are_released_and_cut_ones_estimated(
    tmp_path: Path,
) -> None:
    screen = a_screen()
    said = "x" * 300
    async with ModelServer(
        Turns("S401", steps(f'H T"{said}" RST'), cost(7, 30, "y"), f'H T"{said}" HANG')
    ) as server:
        usual = settings(server, LimitSettings(tokens_per_day=100_000))
        async with gateway(tmp_path, server, screen, settings=usual, clock=Noon()) as kit:
            assert "❌ Sorry, I couldn't finish this" in await answer_to(kit, "1001", "one")
            assert await settled(kit, "user memory:1001") == BudgetUsage()
            await screen.say("1001", "two", sender=ANN)
            await screen.shows("1001", f"{said}y")
            counted = (await settled(kit, "user memory:1001")).tokens
            assert 37 + 100 < counted < 37 + 100 + 100  # plus the request text
            await screen.say("1001", "three", sender=ANN)
            await screen.until(
                "1001", lambda found: sum(each.text.startswith("xxx") for each in found) > 1
            )
            assert (await spent(kit, "user memory:1001")).held_tokens > ANSWER
            await screen.say("1001", "/stop", sender=ANN)
            await screen.shows("1001", "⏹ Stopped.")
            more = (await settled(kit, "user memory:1001")).tokens - counted
            assert 100 < more < 400  # received text and the whole request with earlier answers


async def test_reservations_of_a_crashed_process_count_for_the_day(tmp_path: Path) -> None:
    screen, clock = a_screen(), Noon()
    async with ModelServer(Turns('H T"so far" HANG', cost(1, 2))) as server:
        usual = settings(server, LimitSettings(tokens_per_day=10_000))
        async with gateway(tmp_path, server, screen, settings=usual, clock=clock) as kit:
            await screen.say("1001", "one", sender=ANN)
            await screen.shows("1001", "so far")
            held = await spent(kit, "user memory:1001")
            assert held.held_tokens == held.tokens > ANSWER
            await kit.crash()
        async with gateway(tmp_path, server, screen, settings=usual, clock=clock) as kit:
            await screen.shows("1001", "♻️ I was restarted")
            await screen.say("1001", "two", sender=ANN)
            await screen.shows("1001", "fine")
            store = kit.runner._store
            assert store
            await store.check_writable()  # waits for commits after the answer
            found = await spent(kit, "user memory:1001")
            assert found.tokens == held.tokens + 3
            assert found.held_tokens == held.held_tokens


async def test_side_questions_and_summaries_count_toward_limits(tmp_path: Path) -> None:
    screen = a_screen()
    async with ModelServer(Turns(cost(10, 400))) as server:
        usual = settings(server, LimitSettings(tokens_per_day=1000))
        async with gateway(tmp_path, server, screen, settings=usual, clock=Noon()) as kit:
            assert await answer_to(kit, "1001", "/btw before all") == "💬 fine"
            assert await settled(kit, "user memory:1001") == BudgetUsage(410)
            assert await answer_to(kit, "1001", "one") == "fine"
            assert await settled(kit, "user memory:1001") == BudgetUsage(820)
            told = await answer_to(kit, "1001", "/btw why? " + "because " * 100)
            assert "💬 Sorry, I couldn't answer your side question: the limit of 1,000" in told
            assert await settled(kit, "user memory:1001") == BudgetUsage(820)


async def test_a_side_question_that_times_out_is_settled(tmp_path: Path) -> None:
    async with ModelServer(Turns('H T"hm" HANG')) as server:
        usual = settings(server, LimitSettings(tokens_per_day=1000))
        async with gateway(tmp_path, server, a_screen(), settings=usual, clock=Noon()) as kit:
            kit.conversations.side_requests._deadline_seconds = 0.5
            assert "no answer within" in await answer_to(kit, "1001", "/btw one")
            found = await settled(kit, "user memory:1001")
            assert 0 < found.tokens < ANSWER  # the request only; the answer was not received


async def test_no_request_is_sent_while_the_store_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = [True]
    hold = SessionStore.reserve_budget

    async def held(self: SessionStore, *args: Any, **more: Any) -> BudgetLimit | None:
        if full[0]:
            msg = "the disk is full"
            raise StoreUnavailable(msg)
        return await hold(self, *args, **more)

    monkeypatch.setattr(SessionStore, "reserve_budget", held)
    async with ModelServer(Turns(cost(10, 20))) as server:
        usual = settings(server, LimitSettings(tokens_per_day=10_000))
        async with gateway(tmp_path, server, a_screen(), settings=usual, clock=Noon()) as kit:
            assert "❌ Sorry, I couldn't finish this" in await answer_to(kit, "1001", "one")
            assert "that didn't work just now" in await answer_to(kit, "1001", "/btw one")
            assert server.requests == []
            full[0] = False
            assert await answer_to(kit, "1001", "/retry") == "fine"
            assert await settled(kit, "user memory:1001") == BudgetUsage(30)


async def test_api_clients_get_the_error_of_the_service_they_know(tmp_path: Path) -> None:
    clock = Noon()
    limits = LimitSettings(tokens_per_day=1, all=BudgetSettings(tokens_per_day=1000))
    async with ModelServer(Turns(cost(50, 900))) as server:
        usual = settings(server, limits)
        async with served(tmp_path, server, settings=usual, clock=clock) as there:
            status, _, _ = await there.wire.ask("one")
            assert status == 200  # limits for persons do not apply to the API key
            status, headers, body = await there.wire.ask("two")
            assert status == 429
            assert 43_000 < int(headers["retry-after"]) <= 43_200
            assert headers["x-should-retry"] == "false"
            error = body["error"]
            assert (error["type"], error["code"]) == ("insufficient_quota",) * 2
            assert error["message"].startswith(
                "The limit of 1,000 tokens a day for everyone has only 50 tokens left"
            )
            async with there.wire.opened("three") as streamed:  # no turn started
                assert streamed.status == 429
    assert len(server.requests) == 1


async def test_a_model_without_a_known_price_is_not_used_under_a_dollar_limit(
    tmp_path: Path,
) -> None:
    screen = a_screen()
    async with ModelServer(Turns(cost(1, 2)), models=("scripted", "other")) as server:
        usual = settings(server, LimitSettings(usd_per_day=1.0), price=PRICE)
        elsewhere = "http://models.example.org/v1"
        usual = msgspec.structs.replace(
            usual, model=msgspec.structs.replace(usual.model, base_url=elsewhere)
        )
        async with gateway(tmp_path, server, screen, settings=usual, clock=Noon()) as kit:
            await answer_to(kit, "1001", "/model other")
            told = await answer_to(kit, "1001", "one")
    assert told == (
        "⛔ Not answered: the price of other is unknown, so limits.usd_per_day cannot be enforced; "
        "set model.price, or use tokens_per_day instead."
    )
