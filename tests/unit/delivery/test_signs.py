"""Reactions on people's messages, which never delay anything else."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.delivery.outbox import MAX_REACTING_LANES, Delivery
from gateway.delivery.signs import (
    MAX_WAIT_SECONDS,
    MAX_WAITING_REACTIONS,
    REACTION_DEADLINE_SECONDS,
)
from platforms.core.contract import Address, Post, React
from platforms.core.errors import Unauthorized
from sessions.records import ItemState
from tests.fakes import memory
from tests.fakes.memory.faults import DeliveryFault
from tests.unit.delivery.simulation import (
    CHAT,
    Platform,
    Store,
    World,
    item,
    put,
    running,
    simulated,
    until,
)

HERE = Address("memory", CHAT)


def signs(platform: Platform) -> list[tuple[str, str]]:
    return [(op.message, op.emoji) for op in platform.ops if isinstance(op, React)]


@contextlib.asynccontextmanager
async def signing(store: Store, *adapters: Platform, **options: Any) -> AsyncIterator[Delivery]:
    """Run delivery and wait until its task has started."""
    async with running(store, *adapters, **options) as delivery:
        await asyncio.sleep(0)
        yield delivery


async def _quiet() -> None:
    """Wait until all running work has ended."""
    await asyncio.sleep(MAX_WAIT_SECONDS * 2)


@simulated
async def test_a_reaction_is_added_to_its_message_and_not_stored(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    async with signing(store, platform) as delivery:
        delivery.react(HERE, "m1", "👀")
        await _quiet()
        assert platform.reactions(CHAT) == {"m1": "👀"}
        delivery.react(HERE, "m1", "✅")
        await _quiet()
    assert signs(platform) == [("m1", "👀"), ("m1", "✅")]
    assert store.commits == 0
    assert platform.violations() == []


@simulated
async def test_a_newer_reaction_replaces_a_waiting_one(world: World, store: Store) -> None:
    platform = Platform(clock=world)
    async with signing(store, platform) as delivery:
        delivery.react(HERE, "m1", "👀")
        delivery.react(HERE, "m2", "👀")
        delivery.react(HERE, "m1", "✅")
        await _quiet()
    assert signs(platform) == [("m2", "👀"), ("m1", "✅")]


@simulated
async def test_without_reaction_support_nothing_happens(world: World, store: Store) -> None:
    plain, idle = Platform("plain", clock=world, reactions=False), Platform("idle", clock=world)
    async with signing(store, plain, idle) as delivery:
        for name in ("plain", "nowhere"):
            delivery.react(Address(name, CHAT), "m1", "👀")
        await _quiet()
        assert not delivery._lanes
    delivery.react(Address("idle", CHAT), "m1", "👀")  # no task group is open any more
    assert [*plain.ops, *idle.ops] == []


@simulated
async def test_a_reaction_waits_a_while_for_a_disconnected_platform(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    async with signing(store, platform) as delivery:
        delivery.on_disconnected("memory")
        delivery.react(HERE, "m1", "👀")
        await asyncio.sleep(MAX_WAIT_SECONDS + 1)
        delivery.react(HERE, "m2", "👀")
        await asyncio.sleep(MAX_WAIT_SECONDS - 1)
        assert platform.ops == []
        delivery.on_connected("memory")
        await asyncio.sleep(0.1)
        assert platform.reactions(CHAT) == {"m2": "👀"}


@simulated
async def test_a_hanging_reaction_does_not_delay_an_answer(world: World, store: Store) -> None:
    platform = Platform(clock=world)
    platform.fail(memory.hanging(), React)
    async with signing(store, platform) as delivery:
        delivery.react(HERE, "m1", "👀")
        await until(lambda: bool(platform.ops))
        before = world.monotonic()
        await put(store, delivery, item("a_1", "Answer"))
        assert await delivery.wait_sent("a_1") is ItemState.SENT
        assert world.monotonic() - before < 0.1
        delivery.react(HERE, "m1", "✅")
        await asyncio.sleep(REACTION_DEADLINE_SECONDS + 0.1)
        assert platform.reactions(CHAT) == {"m1": "✅"}


@simulated
async def test_an_answer_is_shown_before_its_done_reaction(world: World, store: Store) -> None:
    platform = Platform(clock=world, text_limit=50, burst=3, per_second=0.5)
    async with signing(store, platform) as delivery:
        await put(store, delivery, item("a_1", "word " * 50))
        delivery.react(HERE, "m1", "✅")
        await _quiet()
    kinds = [type(op) for op in platform.ops]
    assert kinds == [*[Post] * (len(kinds) - 1), React]
    assert platform.violations() == []


@pytest.mark.parametrize("budget", [2, 3, 5, 20])
def test_many_reactions_always_leave_budget_for_an_answer(budget: int) -> None:
    @simulated
    async def scene(world: World, store: Store) -> None:
        platform = Platform(clock=world, burst=budget, per_second=0.2)
        async with signing(store, platform) as delivery:
            for number in range(60):
                delivery.react(HERE, f"m{number}", "👀")
                await asyncio.sleep(1.3)
                if number % 20 == 10:
                    before = world.monotonic()
                    await put(store, delivery, item(f"a_{number}", "Answer"))
                    await delivery.wait_sent(f"a_{number}")
                    assert world.monotonic() - before < 0.1
            await _quiet()
        assert 2 < len(signs(platform)) < 60
        assert platform.violations() == []

    scene()


@simulated
async def test_with_a_tiny_budget_there_are_no_reactions(world: World, store: Store) -> None:
    platform = Platform(clock=world, burst=1, per_second=0.2)
    async with signing(store, platform) as delivery:
        delivery.react(HERE, "m1", "👀")
        await _quiet()
    assert platform.ops == []


@simulated
async def test_beyond_the_limit_the_oldest_reactions_are_dropped(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, burst=1000)
    gate = asyncio.Event()
    platform.fail(memory.delayed(gate), React)
    async with signing(store, platform) as delivery:
        delivery.react(HERE, "first", "👀")
        await until(lambda: bool(platform.ops))
        for number in range(MAX_WAITING_REACTIONS + 5):
            delivery.react(HERE, f"m{number}", "👀")
        gate.set()
        await _quiet()
    assert [message for message, _ in signs(platform)] == [
        "first",
        *(f"m{number}" for number in range(5, MAX_WAITING_REACTIONS + 5)),
    ]


@simulated
async def test_a_reaction_without_budget_is_dropped_after_a_while(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    platform.fail(memory.rate_limited(MAX_WAIT_SECONDS * 3), React)
    async with signing(store, platform) as delivery:
        delivery.react(HERE, "m1", "👀")
        await until(lambda: bool(platform.ops))
        delivery.react(HERE, "m2", "👀")
        await asyncio.sleep(MAX_WAIT_SECONDS * 4)
        delivery.react(HERE, "m3", "👀")
        await _quiet()
    assert [message for message, _ in signs(platform)] == ["m1", "m3"]
    assert platform.violations() == []


@simulated
async def test_a_reaction_waits_while_an_answer_cannot_be_shown(world: World, store: Store) -> None:
    platform = Platform(clock=world)
    platform.fail(memory.unavailable(), Post, times=3)
    async with signing(store, platform) as delivery:
        await put(store, delivery, item("a_1", "Answer"))
        delivery.react(HERE, "m1", "✅")
        await _quiet()
    assert [type(op) for op in platform.ops] == [*[Post] * 4, React]


@pytest.mark.parametrize(
    ("fault", "pause"),
    [
        pytest.param(memory.rejected(), 0.1, id="refused"),
        pytest.param(memory.connection_lost_before(), 0.1, id="cut off"),
        pytest.param(memory.unavailable(), 10.0, id="not there"),
    ],
)
def test_a_failed_reaction_is_not_retried_and_affects_no_other(
    fault: DeliveryFault, pause: float
) -> None:
    @simulated
    async def scene(world: World, store: Store) -> None:
        platform = Platform(clock=world)
        platform.fail(fault, React)
        async with signing(store, platform) as delivery:
            delivery.react(HERE, "m1", "👀")
            await until(lambda: bool(platform.ops))
            delivery.react(HERE, "m2", "👀")
            await put(store, delivery, item("a_1", "Answer"))
            await asyncio.sleep(pause)
            assert platform.reactions(CHAT) == {"m2": "👀"}
            assert platform.screen(CHAT) == ["Answer"]

    scene()


@simulated
async def test_refused_credentials_stop_the_platform_and_drop_waiting_reactions(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    platform.fail(DeliveryFault(Unauthorized), React)
    told: list[object] = []
    async with signing(store, platform, on_refused=lambda who, _: told.append(who)) as delivery:
        delivery.react(HERE, "m1", "👀")
        delivery.react(HERE, "m2", "👀")
        await _quiet()
        assert told == [platform]
        delivery.on_connected("memory")
        delivery.react(HERE, "m3", "👀")
        await _quiet()
    assert [message for message, _ in signs(platform)] == ["m1", "m3"]


@simulated
async def test_chats_with_reactions_only_are_forgotten(world: World, store: Store) -> None:
    platform = Platform(clock=world)
    async with signing(store, platform) as delivery:
        await _many_chats(delivery)
        assert len(delivery._lanes) <= 256 + 1


async def _many_chats(delivery: Delivery) -> None:
    for number in range(400):
        delivery.react(Address("memory", str(number)), "m1", "👀")
        await asyncio.sleep(30)


@simulated
async def test_a_chat_with_a_running_reaction_is_not_forgotten(world: World, store: Store) -> None:
    slow, other = Platform(clock=world), Platform("other", clock=world)
    async with signing(store, slow, other) as delivery:
        delivery.react(HERE, "m0", "👀")
        await _quiet()
        (lane,) = delivery._lanes.values()
        delivery.on_disconnected("memory")
        delivery.react(HERE, "m1", "👀")
        for _ in range(2):
            for number in range(300):
                delivery.react(Address("other", str(number)), "m1", "👀")
            await asyncio.sleep(MAX_WAIT_SECONDS / 3)
        assert lane in delivery._lanes.values()
        delivery.on_connected("memory")
        await _quiet()
        assert slow.reactions(CHAT) == {"m0": "👀", "m1": "👀"}
        for number in range(300):
            delivery.react(Address("other", str(number)), "m2", "👀")
        await _quiet()
        assert set(delivery._idle_lanes) == set(delivery._lanes)


@simulated
async def test_waiting_reactions_in_many_chats_use_no_tasks(world: World, store: Store) -> None:
    platform = Platform(clock=world)
    async with signing(store, platform) as delivery:
        delivery.on_disconnected("memory")
        before = len(asyncio.all_tasks())
        for number in range(100):
            delivery.react(Address("memory", str(number)), "m1", "👀")
        await asyncio.sleep(1)
        assert len(asyncio.all_tasks()) == before
        delivery.on_connected("memory")
        await _quiet()
        assert len(signs(platform)) == 100


@simulated
async def test_with_reactions_waiting_in_too_many_chats_the_oldest_are_dropped(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    chats = [str(number) for number in range(MAX_REACTING_LANES + 20)]
    async with signing(store, platform) as delivery:
        delivery.on_disconnected("memory")
        for chat in chats:
            delivery.react(Address("memory", chat), "m1", "👀")
        assert len(delivery._idle_lanes) == 20  # nothing is queued in them
        delivery.on_connected("memory")
        await _quiet()
        assert [op.address.chat for op in platform.ops if isinstance(op, React)] == chats[20:]
        assert not delivery._reacting_lanes


@simulated
async def test_a_running_reaction_is_not_cancelled_when_others_are_dropped(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    platform.fail(memory.hanging(), React)
    async with signing(store, platform) as delivery:
        delivery.react(HERE, "m1", "👀")
        await until(lambda: bool(platform.ops))
        (lane,) = delivery._lanes.values()
        delivery.react(HERE, "m2", "👀")
        lane.reactions.clear()
        assert not delivery._idle_lanes
        await _quiet()
        assert list(delivery._idle_lanes.values()) == [lane]
        delivery.react(HERE, "m3", "👀")
        await _quiet()
    assert [message for message, _ in signs(platform)] == ["m1", "m3"]
