"""Delivery when platforms and stores fail."""

import asyncio
import contextlib
import gc

from gateway.delivery.outbox import Delivery, LiveItem
from gateway.delivery.view import DUPLICATE_MARK
from platforms.core.contract import (
    Adapter,
    Ask,
    Delete,
    Draft,
    Live,
    Op,
    Post,
    Receipt,
    Repeat,
    Typing,
    Upload,
)
from platforms.core.errors import Unauthorized
from sessions.errors import StoreUnavailable
from sessions.records import ItemState
from tests.fakes import memory
from tests.unit.delivery.simulation import (
    CHAT,
    Platform,
    Store,
    World,
    item,
    kinds,
    put,
    row_of,
    running,
    simulated,
    until,
)


class SlowPlatform(Platform):
    """Answers every op after a second."""

    started = 0

    async def deliver(self, op: Op) -> Receipt:
        self.started += 1
        await asyncio.sleep(1)
        return await super().deliver(op)


@simulated
async def test_a_retry_after_is_waited_out_also_after_a_restart(world: World, store: Store) -> None:
    platform = Platform(clock=world)
    platform.fail(memory.rate_limited(300.0), Post)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "Answer"))
        await asyncio.sleep(100)
        assert (await row_of(store, "a_1")).not_before > world.now()
    async with running(store, platform) as delivery:
        await put(store, delivery, item("n_1", "Stopped.", kind="notice", urgent=True))
        await delivery.flush(1000)
    assert 300 <= world.monotonic() < 310
    assert sorted(platform.screen(CHAT)) == ["Answer", "Stopped."]
    assert platform.violations() == []


@simulated
async def test_a_restart_does_not_shorten_a_fractional_retry_after(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    platform.fail(memory.rate_limited(1.0), Post)
    await asyncio.sleep(0.0004)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "Answer"))
        await asyncio.sleep(0.1003)
    async with running(store, platform) as delivery:
        await delivery.flush(10)
    assert platform.screen(CHAT) == ["Answer"]
    assert platform.violations() == []


@simulated
async def test_a_shutdown_waits_for_the_outcome_of_an_op_although_polling_is_interrupted(
    world: World, store: Store
) -> None:
    platform = SlowPlatform(clock=world, repeat=Repeat.MARK)
    platform.fail(memory.rate_limited(60.0), Post)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "Answer"))
        await until(lambda: platform.started == 1)
        delivery.on_disconnected(platform.name)
        await delivery.flush(5)
        assert world.monotonic() < 1.1
    async with running(store, platform) as delivery:
        await delivery.flush(1000)
    assert platform.screen(CHAT) == ["Answer"]
    assert platform.violations() == []


@simulated
async def test_a_shutdown_waits_only_so_long_for_a_hanging_op(world: World, store: Store) -> None:
    platform = Platform(clock=world)
    platform.fail(memory.hanging(), Post)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "Answer"))
        await asyncio.sleep(0.1)
        delivery.on_disconnected(platform.name)
        began = world.monotonic()
        await delivery.flush(5)
        assert world.monotonic() - began == 5


@simulated
async def test_an_op_that_waits_for_the_account_honours_a_429_of_its_chat(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, burst=5, account_burst=1, account_per_second=0.5)
    platform.fail(memory.rate_limited(1.0), chat="other")
    platform.fail(memory.rate_limited(100.0), chat=CHAT)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_0", "First", chat="other"))
        await asyncio.sleep(0.1)  # now the account's rate is kept strictly
        await put(store, delivery, *(item(f"a_{n}", "Answer", chat=str(n)) for n in range(1, 5)))
        await put(store, delivery, item("n_1", "Stopped.", kind="notice", urgent=True))
        await put(store, delivery, item("a_9", "Answer"))
        await delivery.flush(1000)
    assert sorted(platform.screen(CHAT)) == ["Answer", "Stopped."]
    assert platform.violations() == []


@simulated
async def test_a_retry_after_for_a_live_update_survives_a_restart(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, live=Live.DRAFT)
    platform.fail(memory.rate_limited(300.0), Draft)
    async with running(store, platform) as delivery:
        delivery.start_live(item("a_1", final=False)).update("text")
        await asyncio.sleep(10)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("n_1", "Restarted.", kind="notice"))
        await delivery.flush(1000)
    assert 300 <= world.monotonic() < 310
    assert platform.violations() == []


@simulated
async def test_an_unavailable_platform_is_retried_with_growing_pauses_and_never_given_up(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    platform.fail(memory.unavailable(), times=50)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "Answer"))
        await asyncio.sleep(60)
        assert 6 <= len(platform.ops) <= 12
        assert await delivery.wait_sent("a_1") is ItemState.SENT
    assert platform.screen(CHAT) == ["Answer"]
    assert len(platform.ops) == 51


@simulated
async def test_queued_items_are_sent_as_soon_as_the_platform_reconnects(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    platform.fail(memory.unavailable(), times=12)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "Answer"))
        await until(lambda: len(platform.ops) == 12)
        delivery.on_disconnected("memory")
        await put(store, delivery, item("a_2", "Another"))
        await asyncio.sleep(1)
        assert len(platform.ops) == 12
        began = world.monotonic()
        delivery.on_connected("memory")
        await delivery.flush(10)
        assert world.monotonic() - began < 0.01
    assert platform.screen(CHAT) == ["Answer", "Another"]


@simulated
async def test_a_rejected_item_is_dead_and_the_next_one_is_sent(world: World, store: Store) -> None:
    platform = Platform(clock=world)
    platform.fail(memory.rejected(), Post)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "Bad"), item("a_2", "Good"))
        assert await delivery.wait_sent("a_1") is ItemState.DEAD
        await delivery.flush(10)
        row = await row_of(store, "a_1")
        assert (row.state, row.error) == (
            "dead",
            "The platform refused this and would refuse it again.",
        )
    assert platform.screen(CHAT) == ["Good"]
    assert len(platform.ops) == 2


@simulated
async def test_after_a_chat_is_gone_nothing_is_sent_until_a_new_item_arrives(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    platform.lose_chat(CHAT)
    async with running(store, platform) as delivery:
        answer = delivery.start_live(item("a_9", final=False))
        await put(store, delivery, *(item(f"a_{n}", "Answer") for n in range(5)))
        await delivery.flush(10)
        answer.update("text")
        await asyncio.sleep(10)
        assert len(platform.ops) == 1
        assert (await row_of(store, "a_4")).state == "dead"
        platform.restore_chat(CHAT)
        await put(store, delivery, item("a_10", "Welcome back"))
        await delivery.flush(10)
    assert platform.screen(CHAT) == ["Welcome back"]
    assert platform.violations() == []


@simulated
async def test_an_op_that_ends_after_its_chat_is_gone_changes_nothing(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    gate = asyncio.Event()
    platform.fail(memory.delayed(gate), Post)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "Answer"))
        await until(lambda: bool(platform.ops))
        platform.lose_chat(CHAT)
        await put(store, delivery, item("n_1", "Stopped.", kind="notice", urgent=True))
        await delivery.flush(1)
        gate.set()
        await asyncio.sleep(1)
        assert (await row_of(store, "a_1")).state == "dead"


class _Locked(Platform):
    """A platform that refuses the credentials."""

    locked = True

    async def deliver(self, op: Op) -> Receipt:
        if self.locked:
            msg = "the token was revoked"
            raise Unauthorized(msg)
        return await super().deliver(op)


@simulated
async def test_with_refused_credentials_an_answer_waits_and_the_gateway_is_informed(
    world: World, store: Store
) -> None:
    platform = _Locked(clock=world)
    told: list[tuple[Adapter, str]] = []

    def on_refused(adapter: Adapter, error: Unauthorized) -> None:
        told.append((adapter, str(error)))

    async with running(store, platform, on_refused=on_refused) as delivery:
        await put(store, delivery, item("a_1", "Answer"))
        await asyncio.sleep(100)
        assert told == [(platform, "the token was revoked")]
        platform.locked = False
        delivery.on_connected("memory")
        await delivery.flush(10)
    assert platform.screen(CHAT) == ["Answer"]


@simulated
async def test_an_op_is_retried_after_its_deadline(world: World, store: Store) -> None:
    platform = Platform(clock=world)
    platform.fail(memory.hanging(carried_out=True), Post)
    async with running(store, platform, deadline_seconds=7.0) as delivery:
        await put(store, delivery, item("a_1", "Answer"))
        await asyncio.sleep(7.1)
        assert (await row_of(store, "a_1")).state == "unknown"
        await delivery.flush(10)
    assert 7 < world.monotonic() < 10
    assert platform.screen(CHAT) == ["Answer"]


@simulated
async def test_a_file_has_a_longer_deadline_than_a_message(world: World, store: Store) -> None:
    platform = Platform(clock=world)
    gate = asyncio.Event()
    platform.fail(memory.delayed(gate), Upload)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("u_1", "A picture", kind="upload"))
        await asyncio.sleep(590)
        gate.set()
        assert await delivery.wait_sent("u_1") is ItemState.SENT
        assert kinds(platform) == ["Upload"]
        platform.fail(memory.hanging(), Upload)
        await put(store, delivery, item("u_2", "Another", kind="upload"))
        await asyncio.sleep(599)
        assert kinds(platform) == ["Upload"] * 2
        await delivery.flush(10)
    assert kinds(platform) == ["Upload"] * 3


@simulated
async def test_hanging_typing_and_drafts_delay_an_answer_only_briefly(
    world: World, store: Store
) -> None:
    for live, kind, longest in ((Live.NONE, Typing, 2.1), (Live.DRAFT, Draft, 10.1)):
        platform = Platform(live.value, clock=world, live=live)
        platform.fail(memory.hanging(), kind)
        async with running(store, platform) as delivery:
            answer = delivery.start_live(item(f"a_{live}", platform=live.value, final=False))
            if live is Live.DRAFT:
                answer.update("text")
            await until(lambda platform=platform: bool(platform.ops))  # type: ignore[misc]
            began = world.monotonic()
            answer.close()
            await put(store, delivery, item(f"a_{live}", "Answer", platform=live.value))
            await delivery.flush(100)
            assert world.monotonic() - began < longest
        assert platform.screen(CHAT) == ["Answer"]


@simulated
async def test_without_idempotent_sends_answers_questions_and_files_are_repeated_with_a_mark_and_notices_are_not(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, repeat=Repeat.MARK)
    async with running(store, platform) as delivery:
        for number, kind in enumerate(("answer", "ask", "upload", "notice")):
            wanted = {"answer": Post, "ask": Ask, "upload": Upload, "notice": Post}[kind]
            platform.fail(memory.connection_lost_after(), wanted)
            await put(store, delivery, item(f"x_{number}", kind, kind=kind))
            await delivery.flush(100)
        assert (await row_of(store, "x_3")).state == "dead"
        assert "did not confirm" in (await row_of(store, "x_3")).error
        assert (await row_of(store, "x_0")).state == "sent"
    assert platform.screen(CHAT) == [
        "answer",
        f"{DUPLICATE_MARK}\n\nanswer",
        "ask",
        f"{DUPLICATE_MARK}\n\nask",
        "upload",
        f"{DUPLICATE_MARK}\n\nupload",
        "notice",
    ]


@simulated
async def test_a_marked_copy_is_sent_only_after_the_platform_answered_a_harmless_op(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, repeat=Repeat.MARK)
    platform.fail(memory.connection_lost_before(), Post)
    platform.fail(memory.hanging(), Typing, times=5)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "Answer"))
        await delivery.flush(1000)
    assert kinds(platform) == ["Post", *["Typing"] * 6, "Post"]
    assert platform.screen(CHAT) == [f"{DUPLICATE_MARK}\n\nAnswer"]


@simulated
async def test_an_op_stays_in_doubt_until_its_repeat_succeeds(world: World, store: Store) -> None:
    platform = Platform(clock=world, repeat=Repeat.LOOKUP)
    platform.fail(memory.connection_lost_after(), Post)
    platform.fail(memory.unavailable(), Post, times=100)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "Answer"))
        await asyncio.sleep(10)
        assert (await row_of(store, "a_1")).state == "unknown"
        await delivery.flush(100_000)
    assert platform.screen(CHAT) == ["Answer"]


@simulated
async def test_marked_copies_are_limited(world: World, store: Store) -> None:
    platform = Platform(clock=world, repeat=Repeat.MARK)
    platform.fail(memory.connection_lost_before(), Post, times=100)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "Answer"))
        assert await delivery.wait_sent("a_1") is ItemState.DEAD
    assert kinds(platform).count("Post") == 6


@simulated
async def test_a_marked_copy_keeps_its_mark_when_edited(world: World, store: Store) -> None:
    platform = Platform(clock=world, repeat=Repeat.MARK)
    platform.fail(memory.connection_lost_before(), Post)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "Answer"))
        await delivery.flush(100)
        await put(store, delivery, item("a_1", "Better answer"))
        await delivery.flush(100)
    assert platform.screen(CHAT) == [f"{DUPLICATE_MARK}\n\nBetter answer"]


async def _begun_and_erased(delivery: Delivery, platform: Platform) -> LiveItem:
    answer = delivery.start_live(item("a_1", final=False))
    answer.update("The begin")
    await until(lambda: bool(platform.screen(CHAT)))
    platform.erase(CHAT, platform.messages(CHAT)[0].id)
    return answer


@simulated
async def test_an_answer_whose_message_cannot_be_edited_is_posted_again(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, live=Live.EDIT)
    async with running(store, platform) as delivery:
        answer = await _begun_and_erased(delivery, platform)
        answer.close()
        await put(store, delivery, item("a_1", "The beginning and the end"))
        await delivery.flush(10)
    assert platform.screen(CHAT) == ["The beginning and the end"]


@simulated
async def test_an_already_deleted_message_need_not_be_deleted(world: World, store: Store) -> None:
    platform = Platform(clock=world, live=Live.EDIT)
    async with running(store, platform) as delivery:
        answer = await _begun_and_erased(delivery, platform)
        answer.drop()
        await asyncio.sleep(10)
        assert await store.outbox.undelivered() == ()
    assert [type(op) for op in platform.ops][-1] is Delete


class _Broken(Platform):
    """An adapter with a bug."""

    async def deliver(self, op: Op) -> Receipt:
        if op.address.chat == "broken":
            self.ops.append(op)
            raise ZeroDivisionError
        return await super().deliver(op)


@simulated
async def test_an_adapter_error_affects_one_item_only(world: World, store: Store) -> None:
    platform = _Broken(clock=world)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "Answer", chat="broken"), item("a_2", "Other"))
        assert await delivery.wait_sent("a_1") is ItemState.DEAD
        assert "ZeroDivisionError" in (await row_of(store, "a_1")).error
        await delivery.flush(10)
    assert len(platform.ops) == 4
    assert platform.screen(CHAT) == ["Other"]


@simulated
async def test_an_attempt_is_stored_before_it_is_made_and_a_locked_database_is_retried(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, repeat=Repeat.MARK)
    async with running(store, platform) as delivery:
        delivery.on_disconnected("memory")
        await put(store, delivery, item("a_1", "Answer"))
        store.errors = [StoreUnavailable("locked")] * 5
        delivery.on_connected("memory")
        await asyncio.sleep(1)
        assert platform.ops == []
        assert await delivery.wait_sent("a_1") is ItemState.SENT
    assert platform.screen(CHAT) == ["Answer"]


@simulated
async def test_an_item_missing_from_the_store_does_not_affect_others(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    async with running(store, platform) as delivery:
        delivery.enqueue([item("a_1", "Nobody put this")])
        await asyncio.sleep(1)
        await put(store, delivery, item("a_2", "Answer"))
        await delivery.flush(10)
        assert (await row_of(store, "a_2")).state == "sent"


@simulated
async def test_a_retry_after_that_cannot_be_stored_is_still_honoured(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    platform.fail(memory.rate_limited(50.0), Post)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "Answer"))
        store.errors = [StoreUnavailable("full")]
        await delivery.flush(100)
    assert platform.screen(CHAT) == ["Answer"]
    assert platform.violations() == []


@simulated
async def test_an_item_that_arrives_while_the_delivery_ends_stays_queued(
    world: World, store: Store
) -> None:
    platform, refused = Platform(clock=world), list[Exception]()

    def end(*_: object) -> None:
        world.call_soon(world.call_soon, enqueue)  # after the task group has seen the failure
        raise KeyError

    def enqueue() -> None:
        try:
            delivery.enqueue([item("a_2", "Late", chat="2")])
        except RuntimeError as error:
            refused.append(error)

    with contextlib.suppress(ExceptionGroup):
        async with running(store, platform, on_delivered=end) as delivery:
            await put(store, delivery, item("a_1", "Hello"))
            await asyncio.Event().wait()
    assert platform.screen(CHAT) == ["Hello"]
    assert refused == []
    gc.collect()  # a coroutine that is never awaited would be reported here
