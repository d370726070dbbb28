"""Live updates of an answer being written."""

import asyncio
from typing import Any

import msgspec
import pytest

from platforms.core.contract import (
    Draft,
    Edit,
    Live,
    Post,
    Repeat,
    Task,
    TaskState,
    Typing,
)
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
    write,
)

# --- live -------------------------------------------------------------------------------------


@simulated
async def test_an_edited_answer_grows_at_the_interval_and_ends_complete(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, live=Live.EDIT, live_interval=1.0)
    text = "Some **bold words** and\n```py\ncode = 1\n" + "line\n" * 150 + "```\nend"
    async with running(store, platform) as delivery:
        await write(delivery, text)
        seconds = world.monotonic()
        await put(store, delivery, item("a_1", text))
        await delivery.flush(10)
        assert world.monotonic() - seconds < 0.01
    assert platform.screen(CHAT) == [text]
    assert kinds(platform)[0] == "Post"
    edits = [op for op in platform.ops if isinstance(op, Edit)]
    assert seconds - 2 <= len(edits) <= seconds + 1
    assert [edit.streaming for edit in edits] == [True] * (len(edits) - 1) + [False]
    assert platform.violations() == []


@simulated
async def test_the_last_edit_waits_for_the_minimum_time_after_a_live_update(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, live=Live.EDIT, live_interval=1.0, rest=1.0)
    async with running(store, platform) as delivery:
        answer = delivery.start_live(item("a_1", ""))
        answer.update("It is")
        await until(lambda: bool(platform.screen(CHAT)))
        began = world.monotonic()
        await asyncio.sleep(0.4)
        await put(store, delivery, item("a_1", "It is so."))
        await delivery.wait_sent("a_1")
        assert world.monotonic() - began == pytest.approx(1.0, abs=0.02)
        await put(store, delivery, item("a_2", "At once."))
        await delivery.wait_sent("a_2")
        assert world.monotonic() - began < 1.1
    assert platform.screen(CHAT) == ["It is so.", "At once."]


@simulated
async def test_a_stream_only_grows_and_is_closed(world: World, store: Store) -> None:
    platform = Platform(clock=world, live=Live.STREAM, text_limit=300)
    text = "**Bold** and `code`\n\n```py\n" + "a line of code\n" * 60 + "```\nend"
    async with running(store, platform) as delivery:
        await write(delivery, text, pause=0.2)
        await put(store, delivery, item("a_1", text))
        await delivery.flush(10)
    assert len(platform.messages(CHAT)) > 2
    assert sum(isinstance(op, Edit) and op.streaming for op in platform.ops) > 3
    assert platform.violations() == []


@simulated
async def test_a_draft_is_shown_with_its_status_refreshed_and_replaced_by_the_answer(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, live=Live.DRAFT)
    async with running(store, platform) as delivery:
        answer = delivery.start_live(item("a_1", final=False))
        answer.update("", status="thinking")
        await asyncio.sleep(1)
        assert platform.screen(CHAT) == ["thinking"]
        answer.update("So **far", status="searching")
        await asyncio.sleep(2)
        assert platform.screen(CHAT) == ["So **far** searching"]
        await asyncio.sleep(100)
        assert platform.screen(CHAT) == ["So **far** searching"]
        assert len(platform.ops) < 10
        answer.close()
        await put(store, delivery, item("a_1", "So **far** so good"))
        await delivery.flush(10)
    assert platform.screen(CHAT) == ["So **far** so good"]
    assert platform.violations() == []


@simulated
async def test_a_failed_draft_is_shown_later(world: World, store: Store) -> None:
    platform = Platform(clock=world, live=Live.DRAFT)
    platform.fail(memory.unavailable(), Draft)
    platform.fail(memory.connection_lost_before(), Draft)
    async with running(store, platform) as delivery:
        delivery.start_live(item("a_1", final=False)).update("So far")
        await asyncio.sleep(5)
        assert platform.screen(CHAT) == ["So far"]


@pytest.mark.parametrize("live", Live)
def test_a_dropped_answer_is_deleted(live: Live) -> None:
    @simulated
    async def scene(world: World, store: Store) -> None:
        platform = Platform(clock=world, live=live)
        async with running(store, platform) as delivery:
            answer = delivery.start_live(item("a_1", final=False))
            answer.update("Never mind", status="working")
            await asyncio.sleep(3)
            assert bool(platform.screen(CHAT)) is (live is not Live.NONE)
            answer.drop()
            answer.update("Too late")
            await asyncio.sleep(10)
            assert platform.screen(CHAT) == []
            assert await store.outbox.undelivered() == ()
        assert platform.violations() == []

    scene()


@simulated
async def test_a_dropped_answer_is_emptied_where_nothing_can_be_deleted(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, live=Live.STREAM, delete=False)
    async with running(store, platform) as delivery:
        answer = delivery.start_live(item("a_1", final=False))
        answer.update("Never mind")
        await asyncio.sleep(3)
        answer.drop()
        await asyncio.sleep(3)
        assert platform.screen(CHAT) == ["…"]
    assert platform.violations() == []


@simulated
async def test_typing_is_shown_until_there_is_text(world: World, store: Store) -> None:
    platform = Platform(clock=world, live=Live.EDIT, typing_interval=5.0)
    async with running(store, platform) as delivery:
        answer = delivery.start_live(item("a_1", final=False))
        await asyncio.sleep(12)
        assert kinds(platform) == ["Typing"] * 3
        assert platform.typing(CHAT)
        answer.update("Text")
        await asyncio.sleep(30)
        assert kinds(platform) == ["Typing"] * 3 + ["Post"]
        answer.close()
        await put(store, delivery, item("a_1", "Text"))
        await delivery.flush(10)
        await asyncio.sleep(30)
    assert kinds(platform)[3:] == ["Post", "Edit"]


def _statuses(platform: Platform) -> list[str]:
    return [op.status for op in platform.ops if isinstance(op, Typing)]


def _apart(clock: World, **more: Any) -> Platform:
    """A platform with a status line outside the messages."""
    return Platform(clock=clock, live=Live.STREAM, typing_interval=None, status=True, **more)


@simulated
async def test_a_separate_status_is_updated_when_it_changes(world: World, store: Store) -> None:
    platform = _apart(world)
    async with running(store, platform) as delivery:
        answer = delivery.start_live(item("a_1", final=False))
        for text, status in (("", "slow"), ("", "slow"), ("", "slower"), ("Te", ""), ("Text", "")):
            answer.update(text, status)
            await asyncio.sleep(3)
        assert _statuses(platform) == ["slow", "slower", ""]
        assert platform.screen(CHAT) == ["Text"]
        answer.close()
        await put(store, delivery, item("a_1", "Text"))
        await delivery.flush(10)
    assert kinds(platform) == ["Typing"] * 3 + ["Post", "Edit", "Edit"]
    assert platform.violations() == []


@simulated
async def test_a_separate_status_is_cleared_once_before_the_final_answer(
    world: World, store: Store
) -> None:
    platform = _apart(world)
    async with running(store, platform) as delivery:
        for number, text in enumerate(("Text", "")):
            answer = delivery.start_live(item(f"a_{number}", final=False))
            answer.update("", "slow")
            await asyncio.sleep(3)
            answer.update("", "never told: it comes too late")
            answer.close()
            if text:
                await put(store, delivery, item(f"a_{number}", text))
            else:
                answer.drop()
            await delivery.flush(10)
            await asyncio.sleep(3)
    assert _statuses(platform) == ["slow", ""] * 2
    assert kinds(platform) == ["Typing", "Typing", "Post", "Typing", "Typing"]


@simulated
async def test_a_status_that_cannot_be_cleared_does_not_delay_the_answer(
    world: World, store: Store
) -> None:
    for fault in (memory.rejected(), memory.hanging(), memory.connection_lost_before()):
        platform = _apart(world)
        async with running(store, platform) as delivery:
            answer = delivery.start_live(item(name := f"a_{world.monotonic()}", final=False))
            answer.update("", "slow")
            await asyncio.sleep(3)
            platform.fail(fault, Typing, times=9)
            answer.close()
            await put(store, delivery, item(name, "Text"))
            began = world.monotonic()
            await delivery.flush(100)
            assert world.monotonic() - began < 4
        assert platform.screen(CHAT) == ["Text"]
        assert _statuses(platform) == ["slow", ""]


@simulated
async def test_a_status_is_redacted_and_shown_only_where_supported(
    world: World, store: Store
) -> None:
    seen, blind = _apart(world), Platform("blind", clock=world, live=Live.STREAM)
    async with running(store, seen, blind, redact=lambda text: text.replace("key", "***")) as home:
        for platform in (seen, blind):
            answer = home.start_live(
                item(f"{platform.name}_1", platform=platform.name, final=False)
            )
            answer.update("", "the key")
        await asyncio.sleep(3)
    assert _statuses(seen) == ["the ***"]
    assert _statuses(blind) == [""]


# --- tasks and the end of typing --------------------------------------------------------------


READING = Task("c1", "📖 key", TaskState.RUNNING)


READ = msgspec.structs.replace(READING, state=TaskState.DONE)


WRITING = Task("c2", "✏️ b", TaskState.RUNNING)


def _with_cards(clock: World, **more: Any) -> Platform:
    return Platform(clock=clock, live=Live.STREAM, tasks=True, typing_ends=True, **more)


def _tasks(platform: Platform) -> list[tuple[Task, ...]]:
    return [op.tasks for op in platform.ops if isinstance(op, Post | Edit)]


@simulated
async def test_tasks_are_shown_before_the_first_text_and_updated_without_text(
    world: World, store: Store
) -> None:
    platform = _with_cards(world)
    async with running(store, platform, redact=lambda text: text.replace("key", "***")) as delivery:
        answer = delivery.start_live(item("a_1", final=False))
        for text, tasks in (("", (READING,)), ("", (READ,)), ("So", (READ, WRITING))):
            answer.follow(lambda text=text: text, "", tasks)  # type: ignore[misc]
            await asyncio.sleep(3)
        answer.close()
        await put(store, delivery, item("a_1", "So be it"))
        await delivery.flush(10)
        assert platform.screen(CHAT) == ["So be it"]
        assert not platform.typing(CHAT)
    assert kinds(platform) == ["Post", "Edit", "Edit", "Edit", "Typing"]
    clean, done = (msgspec.structs.replace(each, title="📖 ***") for each in (READING, READ))
    assert _tasks(platform) == [(clean,), (done,), (done, WRITING), (done, WRITING)]
    assert platform.violations() == []


@simulated
async def test_a_task_stays_in_the_message_that_was_last_when_it_started(
    world: World, store: Store
) -> None:
    platform = _with_cards(world, text_limit=200)
    first, both = "word " * 30, "word " * 60
    async with running(store, platform) as delivery:
        answer = delivery.start_live(item("a_1", final=False))
        for text, tasks in ((first, (READING,)), (both, (READ,)), (both, (READ, WRITING))):
            answer.follow(lambda text=text: text, "", tasks)  # type: ignore[misc]
            await asyncio.sleep(5)
        assert [message.tasks for message in platform.messages(CHAT)] == [(READ,), (WRITING,)]
        answer.close()
        await put(store, delivery, item("a_1", both))
        await delivery.flush(10)
        assert [message.tasks for message in platform.messages(CHAT)] == [(READ,), (WRITING,)]
    assert platform.violations() == []


@simulated
async def test_a_task_too_fast_for_live_updates_is_shown_at_the_end(
    world: World, store: Store
) -> None:
    platform = _with_cards(world)
    async with running(store, platform) as delivery:
        answer = delivery.start_live(item("a_1", final=False))
        answer.follow(lambda: "", "", (READ,))
        await asyncio.sleep(3)
        answer.follow(lambda: "So", "", (READ, WRITING))
        answer.close()
        await put(store, delivery, item("a_1", "So"))
        await delivery.flush(10)
        (message,) = platform.messages(CHAT)
        assert message.tasks == (READ, WRITING)
    assert platform.violations() == []


@simulated
async def test_a_message_without_text_is_known_after_a_crash_and_deleted(
    world: World, store: Store
) -> None:
    platform = _with_cards(world, repeat=Repeat.LOOKUP)
    async with running(store, platform) as delivery:
        answer = delivery.start_live(item("a_1", final=False))
        answer.follow(lambda: "", "", (READING,))
        await asyncio.sleep(3)
        assert len(platform.messages(CHAT)) == 1
    async with running(store, platform):
        await asyncio.sleep(10)
        assert platform.messages(CHAT) == []
    assert platform.violations() == []


@simulated
async def test_without_task_support_tasks_are_not_shown(world: World, store: Store) -> None:
    platform = Platform(clock=world, live=Live.EDIT)
    async with running(store, platform) as delivery:
        answer = delivery.start_live(item("a_1", final=False))
        answer.follow(lambda: "", "", (READING,))
        await asyncio.sleep(3)
        answer.follow(lambda: "So", "", (READ,))
        await asyncio.sleep(3)
    assert platform.screen(CHAT) == ["So"]
    assert set(_tasks(platform)) == {()}


@simulated
async def test_typing_is_ended_once_where_the_platform_requires_it(
    world: World, store: Store
) -> None:
    platform = _with_cards(world, typing_interval=60.0)
    async with running(store, platform) as delivery:
        for text in ("So", ""):
            answer = delivery.start_live(item(name := f"a_{text}", final=False))
            await asyncio.sleep(3)
            assert platform.typing(CHAT)
            answer.close()
            if text:
                await put(store, delivery, item(name, text))
            else:
                answer.drop()
            await delivery.flush(10)
            await asyncio.sleep(3)
            assert not platform.typing(CHAT)
        await put(store, delivery, item("b_1", "what was never seen to be written"))
        await delivery.flush(10)
    assert [op.over for op in platform.ops if isinstance(op, Typing)] == [False, True] * 2
    assert platform.violations() == []


@simulated
async def test_a_failure_to_end_typing_delays_nothing(world: World, store: Store) -> None:
    for fault in (memory.rejected(), memory.hanging(), memory.connection_lost_before()):
        platform = _with_cards(world)
        async with running(store, platform) as delivery:
            answer = delivery.start_live(item(name := f"a_{world.monotonic()}", final=False))
            await asyncio.sleep(3)
            platform.fail(fault, Typing, times=9)
            answer.close()
            await put(store, delivery, item(name, "Text"))
            await delivery.flush(100)
            assert (await row_of(store, name)).state == "sent"
        assert platform.screen(CHAT) == ["Text"]
        assert [op.over for op in platform.ops if isinstance(op, Typing)] == [False, True]


@simulated
async def test_a_refused_live_update_is_the_last_one(world: World, store: Store) -> None:
    for live in (Live.EDIT, Live.DRAFT):
        platform = Platform(live.value, clock=world, live=live)
        platform.fail(memory.rejected(), Edit if live is Live.EDIT else Draft)
        async with running(store, platform) as delivery:
            answer = delivery.start_live(item(f"a_{live}", platform=live.value, final=False))
            for number in range(1, 100):
                answer.update("word " * number)
                await asyncio.sleep(0.1)
            await put(store, delivery, item(f"a_{live}", "All of it", platform=live.value))
            delivery.enqueue([item(f"a_{live}", "All of it", platform=live.value)])
            await delivery.flush(10)
        assert platform.screen(CHAT) == ["All of it"]
        assert len(platform.ops) == 3 if live is Live.EDIT else 2


@simulated
async def test_two_answers_in_one_chat_grow_side_by_side(world: World, store: Store) -> None:
    platform = Platform(clock=world, live=Live.EDIT)
    async with running(store, platform) as delivery:
        answers = [delivery.start_live(item(f"a_{number}", final=False)) for number in range(2)]
        for number in range(1, 60):
            for answer in answers:
                answer.update("word " * number)
            await asyncio.sleep(0.1)
        for number, answer in enumerate(answers):
            answer.close()
            await put(store, delivery, item(f"a_{number}", f"Answer {number}"))
        await delivery.flush(10)
    assert platform.screen(CHAT) == ["Answer 0", "Answer 1"]
    updates = [op.message for op in platform.ops if isinstance(op, Edit)]
    assert abs(updates.count("1") - updates.count("2")) <= 1
    assert platform.violations() == []
