"""Order and timing of a chat's items."""

import asyncio

from gateway.delivery.outbox import Delivery
from platforms.core.contract import Edit, Live, Post, Repeat
from sessions.records import ItemState
from tests.fakes import memory
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


@simulated
async def test_an_urgent_notice_waits_for_neither_other_items_nor_a_hanging_op(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    platform.fail(memory.hanging(), Post)
    async with running(store, platform) as delivery:
        await put(store, delivery, *(item(f"a_{n}", f"Answer {n}") for n in range(3)))
        await until(lambda: bool(platform.ops))
        began = world.monotonic()
        await put(store, delivery, item("n_1", "Stopped.", kind="notice", urgent=True))
        assert await delivery.wait_sent("n_1") is ItemState.SENT
        assert world.monotonic() - began < 0.01
        assert platform.screen(CHAT) == ["Stopped."]
        await delivery.flush(100)
    assert platform.screen(CHAT) == ["Stopped.", "Answer 0", "Answer 1", "Answer 2"]
    assert platform.violations() == []


@simulated
async def test_an_urgent_notice_is_sent_although_the_budget_is_used_up(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, live=Live.EDIT, live_interval=0.01, burst=5, per_second=0.2)
    async with running(store, platform) as delivery:
        answer = delivery.start_live(item("a_1", final=False))
        for number in range(1, 300):
            answer.update("word " * number)
            await asyncio.sleep(0.01)
        await put(store, delivery, item("a_2", "text"), item("a_3", "text"))
        await asyncio.sleep(0.1)
        began = world.monotonic()
        await put(store, delivery, item("n_1", "Stopped.", kind="notice", urgent=True))
        await delivery.wait_sent("n_1")
        assert world.monotonic() - began < 0.01
        answer.drop()
        await delivery.flush(1000)
        await asyncio.sleep(100)
    assert platform.violations() == []


@simulated
async def test_an_urgent_notice_goes_right_after_a_retry_after(world: World, store: Store) -> None:
    platform = Platform(clock=world, live=Live.EDIT, burst=5, per_second=1 / 3)
    platform.fail(memory.rate_limited(2.0), Post, times=3)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "Answer"), item("a_2", "Another"))
        await until(lambda: platform.screen(CHAT) == ["Answer"])
        began = world.monotonic()
        await put(store, delivery, item("n_1", "Stopped.", kind="notice", urgent=True))
        await delivery.wait_sent("n_1")
        assert world.monotonic() - began < 0.3
        await delivery.flush(100)
    assert platform.screen(CHAT) == ["Answer", "Stopped.", "Another"]
    assert platform.violations() == []


@simulated
async def test_urgent_and_other_ops_share_one_budget(world: World, store: Store) -> None:
    platform = Platform(clock=world, repeat=Repeat.MARK, burst=1, per_second=1.0)
    async with running(store, platform) as delivery:
        urgent = item("n_1", "Stopped.", kind="notice", urgent=True)
        await put(store, delivery, item("a_1", "Answer"), urgent)
        await delivery.flush(10)
    assert len(platform.screen(CHAT)) == 2
    assert platform.violations() == []


@simulated
async def test_after_a_429_a_chat_is_updated_less_often(world: World, store: Store) -> None:
    updates = {}
    for name in ("spared", "limited"):
        platform = Platform(name, clock=world, live=Live.EDIT, burst=2, per_second=1.0)
        if name == "limited":
            platform.fail(memory.rate_limited(1.0), Edit)
        async with running(store, platform) as delivery:
            answer = delivery.start_live(item(f"a_{name}", platform=name, final=False))
            for number in range(1, 300):
                answer.update("word " * number)
                await asyncio.sleep(0.2)
        updates[name] = len(platform.ops)
    assert updates["limited"] < updates["spared"] * 0.7


@simulated
async def test_a_waiting_final_answer_holds_back_later_items(world: World, store: Store) -> None:
    platform = Platform(clock=world, live=Live.EDIT)
    platform.fail(memory.unavailable(), Post, times=3)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "First"))
        await asyncio.sleep(0.1)
        later = delivery.start_live(item("a_3", final=False))
        later.update("Third, being written")
        await put(store, delivery, item("a_2", "Second"))
        await until(lambda: len(platform.screen(CHAT)) == 3)
    assert platform.screen(CHAT) == ["First", "Second", "Third, being written"]


@simulated
async def test_twenty_streaming_chats_stay_within_their_budgets_and_get_all_answers(
    world: World, store: Store
) -> None:
    platforms = [
        Platform(live.value, clock=world, live=live, burst=3, per_second=0.5, live_interval=0.5)
        for live in Live
    ]
    for platform in platforms:
        platform.fail(memory.rate_limited(7.0), chat="2")
        platform.fail(memory.rate_limited(3.0), Edit, chat="3")

    async def talk(delivery: Delivery, platform: Platform, chat: str) -> None:
        name, text = f"a_{platform.name}_{chat}", f"Chat {chat}: " + "word " * 300
        answer = delivery.start_live(item(name, chat=chat, platform=platform.name, final=False))
        for end in range(0, len(text), 40):
            answer.update(text[:end])
            await asyncio.sleep(0.3)
        answer.close()
        await put(store, delivery, item(name, text, chat=chat, platform=platform.name))

    async with running(store, *platforms) as delivery:
        async with asyncio.TaskGroup() as group:
            for platform in platforms:
                for number in range(5):
                    group.create_task(talk(delivery, platform, str(number)))
        written = world.monotonic()
        await delivery.flush(100)
        assert world.monotonic() - written < 10
    for platform in platforms:
        for number in range(5):
            assert platform.screen(str(number)) == [f"Chat {number}: " + "word " * 299 + "word"]
        assert platform.violations() == []
        if platform.name != "none":
            assert len(platform.ops) > 30
