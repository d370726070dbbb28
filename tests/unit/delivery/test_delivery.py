"""What a person sees of answers, notices and questions."""

import asyncio
import gc
import weakref
from typing import Any

import msgspec
import pytest

from gateway.delivery.outbox import Delivery
from gateway.delivery.view import MARK
from platforms import memory
from platforms.core.contract import (
    Adapter,
    Ask,
    Button,
    Delete,
    Draft,
    Edit,
    Live,
    Op,
    Post,
    Receipt,
    Repeat,
    Task,
    TaskState,
    Typing,
    Upload,
)
from platforms.core.errors import Unauthorized
from sessions.errors import StoreUnavailable
from sessions.records import ItemState
from tests.unit.delivery.simulation import (
    CHAT,
    Platform,
    Store,
    World,
    item,
    put,
    row_of,
    running,
    simulated,
    until,
)


def _kinds(platform: Platform) -> list[str]:
    return [type(op).__name__ for op in platform.ops]


# --- one item --------------------------------------------------------------------------------


@simulated
async def test_an_answer_is_posted_and_then_written_down_as_sent(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "Hello *you*"))
        assert await delivery.wait_sent("a_1") is ItemState.SENT
        assert platform.screen(CHAT) == ["Hello *you*"]
        assert (await row_of(store, "a_1")).state == "sent"
        assert platform.violations() == []


@simulated
async def test_a_long_answer_is_several_messages_with_the_buttons_under_the_last(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, text_limit=100, buttons=1)
    buttons = (Button("Go on", "resume"), Button("Too many", "x"))
    long = item("a_1", "One.\n\n" + "two " * 20 + "\n\n" + "three " * 15, buttons=buttons)
    async with running(store, platform) as delivery:
        await put(store, delivery, long)
        await delivery.settle(10)
    shown = platform.messages(CHAT)
    assert [message.op for message in shown] == ["a_1.0", "a_1.1"]
    assert [message.buttons for message in shown] == [(), buttons[:1]]
    assert platform.violations() == []


@simulated
async def test_an_answer_that_is_ready_at_once_costs_one_op_and_one_commit(
    world: World, store: Store
) -> None:
    for live in Live:
        platform = Platform(live.value, clock=world, live=live)
        async with running(store, platform) as delivery:
            answer = delivery.live(item("a_1", platform=live.value, final=False))
            answer.update("All of")
            await asyncio.sleep(0.01)
            answer.update("All of it")
            answer.close()
            await put(store, delivery, final := item(f"a_{live}", "All", platform=live.value))
            answer.drop()
            before = store.commits
            await delivery.settle(10)
            assert store.commits == before + 1, live
            assert _kinds(platform) == ["Post"]
            assert final.id in platform.messages(CHAT)[0].op


@pytest.mark.parametrize(
    ("live", "repeat", "commits"),
    [
        (Live.DRAFT, Repeat.ALWAYS, 1),
        (Live.NONE, Repeat.MARK, 2),
        (Live.DRAFT, Repeat.MARK, 2),
        (Live.NONE, Repeat.NONCE, 2),
        (Live.EDIT, Repeat.ALWAYS, 2),  # the first live message is on record before it is tried
        (Live.EDIT, Repeat.NONCE, 2),
        (Live.EDIT, Repeat.MARK, 3),
    ],
)
def test_an_answer_costs_few_commits(live: Live, repeat: Repeat, commits: int) -> None:
    @simulated
    async def scene(world: World, store: Store) -> None:
        platform = Platform(clock=world, live=live, repeat=repeat)
        async with running(store, platform) as delivery:
            answer = delivery.live(item("a_1", final=False))
            for number in range(1, 40):
                answer.update("word " * number)
                await asyncio.sleep(0.1)
            answer.close()
            await put(store, delivery, item("a_1", "word " * 40))
            await delivery.settle(10)
        assert store.commits == commits + 1  # and the turn's own
        assert platform.screen(CHAT) == [("word " * 40).strip()]

    scene()


@simulated
async def test_a_question_and_a_file_are_shown_as_what_they_are(world: World, store: Store) -> None:
    platform = Platform(clock=world)
    yes = (Button("Yes", "approve"),)
    async with running(store, platform) as delivery:
        await put(
            store,
            delivery,
            item("q_1", "Run it?", kind="ask", buttons=yes),
            item("u_1", "A picture", kind="upload"),
            item("u_2", "text " * 300, kind="upload"),
            item("u_3", "", kind="upload"),
        )
        await delivery.settle(10)
    shown = [
        (message.file, message.text[:9], message.buttons) for message in platform.messages(CHAT)
    ]
    assert shown == [
        ("", "Run it?", yes),
        ("x.png", "A picture", ()),
        ("", "text text", ()),  # too long to stand under a file
        ("x.png", "", ()),
        ("x.png", "", ()),
    ]
    assert _kinds(platform) == ["Ask", "Upload", "Post", "Upload", "Upload"]


@simulated
async def test_a_reply_is_one_only_with_its_first_message(world: World, store: Store) -> None:
    platform = Platform(clock=world, text_limit=60)
    deaf = Platform("deaf", clock=world, reply=False)
    async with running(store, platform, deaf) as delivery:
        for name in ("memory", "deaf"):
            answer = item(f"a_{name}", "word " * 20, platform=name)
            await put(store, delivery, msgspec.structs.replace(answer, reply_to="77"))
        await delivery.settle(10)
    assert [message.reply_to for message in platform.messages(CHAT)] == ["77", None]
    assert deaf.messages(CHAT)[0].reply_to is None


@simulated
async def test_everything_that_leaves_is_cleaned(world: World, store: Store) -> None:
    platform = Platform(clock=world, live=Live.DRAFT)
    async with running(
        store, platform, clean=lambda text: text.replace("sk-123", "***")
    ) as delivery:
        answer = delivery.live(item("a_1", final=False))
        answer.update("The key is sk-123.", status="reading sk-123")
        await until(lambda: bool(platform.screen(CHAT)))
        answer.close()
        await put(store, delivery, item("a_1", "The key is sk-123."))
        await delivery.settle(10)
    assert _kinds(platform) == ["Draft", "Post"]
    assert "sk-123" not in str(platform.ops)
    assert platform.screen(CHAT) == ["The key is ***."]


@simulated
async def test_a_notice_put_again_changes_its_message(world: World, store: Store) -> None:
    platform = Platform(clock=world)
    rigid = Platform("rigid", clock=world, edit=False)
    async with running(store, platform, rigid) as delivery:
        for text in ("1 waiting", "2 waiting", "2 waiting", "3 waiting"):
            for name in ("memory", "rigid"):
                await put(store, delivery, item(f"n_{name}", text, kind="notice", platform=name))
            await delivery.settle(10)
    assert platform.screen(CHAT) == ["3 waiting"]
    assert _kinds(platform) == ["Post", "Edit", "Edit"]
    assert rigid.screen(CHAT) == ["1 waiting", "2 waiting", "3 waiting"]
    assert all(op.notice for op in platform.ops if isinstance(op, Post | Edit))
    assert platform.violations() + rigid.violations() == []


@simulated
async def test_a_notice_that_is_put_again_before_it_was_shown_is_shown_once(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    async with running(store, platform) as delivery:
        delivery.disconnected("memory")
        await put(store, delivery, item("n_1", "1 waiting", kind="notice"))
        await put(store, delivery, item("n_1", "2 waiting", kind="notice"))
        delivery.connected("memory")
        await delivery.settle(10)
    assert [op.text for op in platform.ops if isinstance(op, Post)] == ["2 waiting"]


@simulated
async def test_an_item_with_nothing_to_show_is_done_at_once(world: World, store: Store) -> None:
    platform = Platform(clock=world)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", " \n "))
        assert await delivery.wait_sent("a_1") is ItemState.SENT
    assert platform.ops == []


# --- live ------------------------------------------------------------------------------------


async def _write(delivery: Delivery, text: str, pause: float = 0.05) -> None:
    answer = delivery.live(item("a_1", final=False))
    for end in range(0, len(text), 10):
        answer.update(text[:end])
        await asyncio.sleep(pause)
    answer.close()


@simulated
async def test_an_edited_answer_grows_at_the_interval_and_ends_as_it_should(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, live=Live.EDIT, live_interval=1.0)
    text = "Some **bold words** and\n```py\ncode = 1\n" + "line\n" * 150 + "```\nend"
    async with running(store, platform) as delivery:
        await _write(delivery, text)
        seconds = world.monotonic()
        await put(store, delivery, item("a_1", text))
        await delivery.settle(10)
        assert world.monotonic() - seconds < 0.01
    assert platform.screen(CHAT) == [text]
    assert _kinds(platform)[0] == "Post"
    edits = [op for op in platform.ops if isinstance(op, Edit)]
    assert seconds - 2 <= len(edits) <= seconds + 1
    assert [edit.streaming for edit in edits] == [True] * (len(edits) - 1) + [False]
    assert platform.violations() == []


@simulated
async def test_the_last_edit_waits_until_the_message_has_rested(world: World, store: Store) -> None:
    platform = Platform(clock=world, live=Live.EDIT, live_interval=1.0, rest=1.0)
    async with running(store, platform) as delivery:
        answer = delivery.live(item("a_1", ""))
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
        await _write(delivery, text, pause=0.2)
        await put(store, delivery, item("a_1", text))
        await delivery.settle(10)
    assert len(platform.messages(CHAT)) > 2
    assert sum(isinstance(op, Edit) and op.streaming for op in platform.ops) > 3
    assert platform.violations() == []


@simulated
async def test_a_draft_is_shown_with_its_status_kept_alive_and_replaced_by_the_answer(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, live=Live.DRAFT)
    async with running(store, platform) as delivery:
        answer = delivery.live(item("a_1", final=False))
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
        await delivery.settle(10)
    assert platform.screen(CHAT) == ["So **far** so good"]
    assert platform.violations() == []


@simulated
async def test_a_draft_that_did_not_get_through_is_shown_later(world: World, store: Store) -> None:
    platform = Platform(clock=world, live=Live.DRAFT)
    platform.fail(memory.unavailable(), Draft)
    platform.fail(memory.cut_before(), Draft)
    async with running(store, platform) as delivery:
        delivery.live(item("a_1", final=False)).update("So far")
        await asyncio.sleep(5)
        assert platform.screen(CHAT) == ["So far"]


@pytest.mark.parametrize("live", Live)
def test_what_is_dropped_vanishes(live: Live) -> None:
    @simulated
    async def scene(world: World, store: Store) -> None:
        platform = Platform(clock=world, live=live)
        async with running(store, platform) as delivery:
            answer = delivery.live(item("a_1", final=False))
            answer.update("Never mind", status="working")
            await asyncio.sleep(3)
            assert bool(platform.screen(CHAT)) is (live is not Live.NONE)
            answer.drop()
            answer.update("Too late")
            await asyncio.sleep(10)
            assert platform.screen(CHAT) == []
            assert await store.open_items() == ()
        assert platform.violations() == []

    scene()


@simulated
async def test_what_is_dropped_where_nothing_can_be_deleted_says_nothing_any_more(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, live=Live.STREAM, delete=False)
    async with running(store, platform) as delivery:
        answer = delivery.live(item("a_1", final=False))
        answer.update("Never mind")
        await asyncio.sleep(3)
        answer.drop()
        await asyncio.sleep(3)
        assert platform.screen(CHAT) == ["…"]
    assert platform.violations() == []


@simulated
async def test_typing_is_shown_until_there_is_something_to_read(world: World, store: Store) -> None:
    platform = Platform(clock=world, live=Live.EDIT, typing_interval=5.0)
    async with running(store, platform) as delivery:
        answer = delivery.live(item("a_1", final=False))
        await asyncio.sleep(12)
        assert _kinds(platform) == ["Typing"] * 3
        assert platform.typing(CHAT)
        answer.update("Text")
        await asyncio.sleep(30)
        assert _kinds(platform) == ["Typing"] * 3 + ["Post"]
        answer.close()
        await put(store, delivery, item("a_1", "Text"))
        await delivery.settle(10)
        await asyncio.sleep(30)
    assert _kinds(platform)[3:] == ["Post", "Edit"]


def _statuses(platform: Platform) -> list[str]:
    return [op.status for op in platform.ops if isinstance(op, Typing)]


def _apart(clock: World, **more: Any) -> Platform:
    """A platform with a line for the status apart from its messages."""
    return Platform(clock=clock, live=Live.STREAM, typing_interval=None, status=True, **more)


@simulated
async def test_a_status_apart_from_the_messages_is_told_when_its_words_change(
    world: World, store: Store
) -> None:
    platform = _apart(world)
    async with running(store, platform) as delivery:
        answer = delivery.live(item("a_1", final=False))
        for text, status in (("", "slow"), ("", "slow"), ("", "slower"), ("Te", ""), ("Text", "")):
            answer.update(text, status)
            await asyncio.sleep(3)
        assert _statuses(platform) == ["slow", "slower", ""]
        assert platform.screen(CHAT) == ["Text"]
        answer.close()
        await put(store, delivery, item("a_1", "Text"))
        await delivery.settle(10)
    assert _kinds(platform) == ["Typing"] * 3 + ["Post", "Edit", "Edit"]
    assert platform.violations() == []


@simulated
async def test_a_status_is_taken_away_once_before_the_answer_is_whole(
    world: World, store: Store
) -> None:
    platform = _apart(world)
    async with running(store, platform) as delivery:
        for number, text in enumerate(("Text", "")):
            answer = delivery.live(item(f"a_{number}", final=False))
            answer.update("", "slow")
            await asyncio.sleep(3)
            answer.update("", "never told: it comes too late")
            answer.close()
            if text:
                await put(store, delivery, item(f"a_{number}", text))
            else:
                answer.drop()
            await delivery.settle(10)
            await asyncio.sleep(3)
    assert _statuses(platform) == ["slow", ""] * 2
    assert _kinds(platform) == ["Typing", "Typing", "Post", "Typing", "Typing"]


@simulated
async def test_a_status_that_cannot_be_taken_away_holds_up_no_answer(
    world: World, store: Store
) -> None:
    for fault in (memory.rejected(), memory.hanging(), memory.cut_before()):
        platform = _apart(world)
        async with running(store, platform) as delivery:
            answer = delivery.live(item(name := f"a_{world.monotonic()}", final=False))
            answer.update("", "slow")
            await asyncio.sleep(3)
            platform.fail(fault, Typing, times=9)
            answer.close()
            await put(store, delivery, item(name, "Text"))
            began = world.monotonic()
            await delivery.settle(100)
            assert world.monotonic() - began < 4
        assert platform.screen(CHAT) == ["Text"]
        assert _statuses(platform) == ["slow", ""]


@simulated
async def test_a_status_leaves_out_secrets_and_platforms_that_show_none(
    world: World, store: Store
) -> None:
    seen, blind = _apart(world), Platform("blind", clock=world, live=Live.STREAM)
    async with running(store, seen, blind, clean=lambda text: text.replace("key", "***")) as home:
        for platform in (seen, blind):
            answer = home.live(item(f"{platform.name}_1", platform=platform.name, final=False))
            answer.update("", "the key")
        await asyncio.sleep(3)
    assert _statuses(seen) == ["the ***"]
    assert _statuses(blind) == [""]


# --- tasks, and the end of typing --------------------------------------------------------------

READING = Task("c1", "📖 key", TaskState.RUNNING)
READ = msgspec.structs.replace(READING, state=TaskState.DONE)
WRITING = Task("c2", "✏️ b", TaskState.RUNNING)


def _with_cards(clock: World, **more: Any) -> Platform:
    return Platform(clock=clock, live=Live.STREAM, tasks=True, typing_ends=True, **more)


def _tasks(platform: Platform) -> list[tuple[Task, ...]]:
    return [op.tasks for op in platform.ops if isinstance(op, Post | Edit)]


@simulated
async def test_tasks_are_shown_before_the_first_word_and_change_without_one(
    world: World, store: Store
) -> None:
    platform = _with_cards(world)
    async with running(store, platform, clean=lambda text: text.replace("key", "***")) as delivery:
        answer = delivery.live(item("a_1", final=False))
        for text, tasks in (("", (READING,)), ("", (READ,)), ("So", (READ, WRITING))):
            answer.follow(lambda text=text: text, "", tasks)  # type: ignore[misc]
            await asyncio.sleep(3)
        answer.close()
        await put(store, delivery, item("a_1", "So be it"))
        await delivery.settle(10)
        assert platform.screen(CHAT) == ["So be it"]
        assert not platform.typing(CHAT)
    assert _kinds(platform) == ["Post", "Edit", "Edit", "Edit", "Typing"]
    clean, done = (msgspec.structs.replace(each, title="📖 ***") for each in (READING, READ))
    assert _tasks(platform) == [(clean,), (done,), (done, WRITING), (done, WRITING)]
    assert platform.violations() == []


@simulated
async def test_a_task_stays_in_the_message_that_was_being_written_when_it_began(
    world: World, store: Store
) -> None:
    platform = _with_cards(world, text_limit=200)
    first, both = "word " * 30, "word " * 60
    async with running(store, platform) as delivery:
        answer = delivery.live(item("a_1", final=False))
        for text, tasks in ((first, (READING,)), (both, (READ,)), (both, (READ, WRITING))):
            answer.follow(lambda text=text: text, "", tasks)  # type: ignore[misc]
            await asyncio.sleep(5)
        assert [message.tasks for message in platform.messages(CHAT)] == [(READ,), (WRITING,)]
        answer.close()
        await put(store, delivery, item("a_1", both))
        await delivery.settle(10)
        assert [message.tasks for message in platform.messages(CHAT)] == [(READ,), (WRITING,)]
    assert platform.violations() == []


@simulated
async def test_a_task_too_quick_to_be_shown_while_it_ran_is_shown_in_the_end(
    world: World, store: Store
) -> None:
    platform = _with_cards(world)
    async with running(store, platform) as delivery:
        answer = delivery.live(item("a_1", final=False))
        answer.follow(lambda: "", "", (READ,))
        await asyncio.sleep(3)
        answer.follow(lambda: "So", "", (READ, WRITING))
        answer.close()
        await put(store, delivery, item("a_1", "So"))
        await delivery.settle(10)
        (message,) = platform.messages(CHAT)
        assert message.tasks == (READ, WRITING)
    assert platform.violations() == []


@simulated
async def test_what_is_shown_without_a_word_is_known_after_a_crash_and_taken_away(
    world: World, store: Store
) -> None:
    platform = _with_cards(world, repeat=Repeat.LOOKUP)
    async with running(store, platform) as delivery:
        answer = delivery.live(item("a_1", final=False))
        answer.follow(lambda: "", "", (READING,))
        await asyncio.sleep(3)
        assert len(platform.messages(CHAT)) == 1
    async with running(store, platform):
        await asyncio.sleep(10)
        assert platform.messages(CHAT) == []
    assert platform.violations() == []


@simulated
async def test_where_tasks_have_no_form_of_their_own_nothing_is_said_of_them(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, live=Live.EDIT)
    async with running(store, platform) as delivery:
        answer = delivery.live(item("a_1", final=False))
        answer.follow(lambda: "", "", (READING,))
        await asyncio.sleep(3)
        answer.follow(lambda: "So", "", (READ,))
        await asyncio.sleep(3)
    assert platform.screen(CHAT) == ["So"]
    assert set(_tasks(platform)) == {()}


@simulated
async def test_that_nothing_is_written_any_more_is_said_once_where_it_must_be(
    world: World, store: Store
) -> None:
    platform = _with_cards(world, typing_interval=60.0)
    async with running(store, platform) as delivery:
        for text in ("So", ""):
            answer = delivery.live(item(name := f"a_{text}", final=False))
            await asyncio.sleep(3)
            assert platform.typing(CHAT)
            answer.close()
            if text:
                await put(store, delivery, item(name, text))
            else:
                answer.drop()
            await delivery.settle(10)
            await asyncio.sleep(3)
            assert not platform.typing(CHAT)
        await put(store, delivery, item("b_1", "what was never seen to be written"))
        await delivery.settle(10)
    assert [op.over for op in platform.ops if isinstance(op, Typing)] == [False, True] * 2
    assert platform.violations() == []


@simulated
async def test_an_end_of_typing_that_cannot_be_said_holds_up_nothing(
    world: World, store: Store
) -> None:
    for fault in (memory.rejected(), memory.hanging(), memory.cut_before()):
        platform = _with_cards(world)
        async with running(store, platform) as delivery:
            answer = delivery.live(item(name := f"a_{world.monotonic()}", final=False))
            await asyncio.sleep(3)
            platform.fail(fault, Typing, times=9)
            answer.close()
            await put(store, delivery, item(name, "Text"))
            await delivery.settle(100)
            assert (await row_of(store, name)).state == "sent"
        assert platform.screen(CHAT) == ["Text"]
        assert [op.over for op in platform.ops if isinstance(op, Typing)] == [False, True]


@simulated
async def test_a_live_update_that_the_platform_refuses_is_the_last_one(
    world: World, store: Store
) -> None:
    for live in (Live.EDIT, Live.DRAFT):
        platform = Platform(live.value, clock=world, live=live)
        platform.fail(memory.rejected(), Edit if live is Live.EDIT else Draft)
        async with running(store, platform) as delivery:
            answer = delivery.live(item(f"a_{live}", platform=live.value, final=False))
            for number in range(1, 100):
                answer.update("word " * number)
                await asyncio.sleep(0.1)
            await put(store, delivery, item(f"a_{live}", "All of it", platform=live.value))
            answer.finish(item(f"a_{live}", "All of it", platform=live.value))
            await delivery.settle(10)
        assert platform.screen(CHAT) == ["All of it"]
        assert len(platform.ops) == 3 if live is Live.EDIT else 2


@simulated
async def test_two_answers_in_one_chat_grow_side_by_side(world: World, store: Store) -> None:
    platform = Platform(clock=world, live=Live.EDIT)
    async with running(store, platform) as delivery:
        answers = [delivery.live(item(f"a_{number}", final=False)) for number in range(2)]
        for number in range(1, 60):
            for answer in answers:
                answer.update("word " * number)
            await asyncio.sleep(0.1)
        for number, answer in enumerate(answers):
            answer.close()
            await put(store, delivery, item(f"a_{number}", f"Answer {number}"))
        await delivery.settle(10)
    assert platform.screen(CHAT) == ["Answer 0", "Answer 1"]
    updates = [op.message for op in platform.ops if isinstance(op, Edit)]
    assert abs(updates.count("1") - updates.count("2")) <= 1
    assert platform.violations() == []


# --- order and budget ------------------------------------------------------------------------


@simulated
async def test_an_urgent_notice_waits_neither_for_others_nor_for_an_op_that_hangs(
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
        await delivery.settle(100)
    assert platform.screen(CHAT) == ["Stopped.", "Answer 0", "Answer 1", "Answer 2"]
    assert platform.violations() == []


@simulated
async def test_an_urgent_notice_has_room_although_the_budget_is_used_up(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, live=Live.EDIT, live_interval=0.01, burst=5, per_second=0.2)
    async with running(store, platform) as delivery:
        answer = delivery.live(item("a_1", final=False))
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
        await delivery.settle(1000)
        await asyncio.sleep(100)
    assert platform.violations() == []


@simulated
async def test_urgent_and_other_ops_share_one_budget(world: World, store: Store) -> None:
    platform = Platform(clock=world, repeat=Repeat.MARK, burst=1, per_second=1.0)
    async with running(store, platform) as delivery:
        urgent = item("n_1", "Stopped.", kind="notice", urgent=True)
        await put(store, delivery, item("a_1", "Answer"), urgent)
        await delivery.settle(10)
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
            answer = delivery.live(item(f"a_{name}", platform=name, final=False))
            for number in range(1, 300):
                answer.update("word " * number)
                await asyncio.sleep(0.2)
        updates[name] = len(platform.ops)
    assert updates["limited"] < updates["spared"] * 0.7


@simulated
async def test_a_final_answer_that_must_wait_holds_back_what_came_after_it(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, live=Live.EDIT)
    platform.fail(memory.unavailable(), Post, times=3)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "First"))
        await asyncio.sleep(0.1)
        later = delivery.live(item("a_3", final=False))
        later.update("Third, being written")
        await put(store, delivery, item("a_2", "Second"))
        await until(lambda: len(platform.screen(CHAT)) == 3)
    assert platform.screen(CHAT) == ["First", "Second", "Third, being written"]


@simulated
async def test_twenty_chats_stream_at_once_within_their_budgets_and_all_answers_arrive(
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
        answer = delivery.live(item(name, chat=chat, platform=platform.name, final=False))
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
        await delivery.settle(100)
        assert world.monotonic() - written < 10
    for platform in platforms:
        for number in range(5):
            assert platform.screen(str(number)) == [f"Chat {number}: " + "word " * 299 + "word"]
        assert platform.violations() == []
        if platform.name != "none":
            assert len(platform.ops) > 30


# --- what goes wrong -------------------------------------------------------------------------


@simulated
async def test_a_retry_after_is_waited_out_in_full_also_over_a_restart(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    platform.fail(memory.rate_limited(300.0), Post)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "Answer"))
        await asyncio.sleep(100)
        assert (await row_of(store, "a_1")).not_before > world.now()
    async with running(store, platform) as delivery:
        await put(store, delivery, item("n_1", "Stopped.", kind="notice", urgent=True))
        await delivery.settle(1000)
    assert 300 <= world.monotonic() < 310
    assert sorted(platform.screen(CHAT)) == ["Answer", "Stopped."]
    assert platform.violations() == []


@simulated
async def test_no_fraction_of_a_retry_after_is_lost_over_a_restart(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    platform.fail(memory.rate_limited(1.0), Post)
    await asyncio.sleep(0.0004)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "Answer"))
        await asyncio.sleep(0.1003)
    async with running(store, platform) as delivery:
        await delivery.settle(10)
    assert platform.screen(CHAT) == ["Answer"]
    assert platform.violations() == []


@simulated
async def test_a_retry_after_for_a_live_update_holds_over_a_restart_too(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, live=Live.DRAFT)
    platform.fail(memory.rate_limited(300.0), Draft)
    async with running(store, platform) as delivery:
        delivery.live(item("a_1", final=False)).update("text")
        await asyncio.sleep(10)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("n_1", "Restarted.", kind="notice"))
        await delivery.settle(1000)
    assert 300 <= world.monotonic() < 310
    assert platform.violations() == []


@simulated
async def test_while_a_platform_is_down_it_is_tried_less_and_less_but_never_given_up(
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
async def test_what_waits_goes_out_as_soon_as_the_platform_is_connected_again(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    platform.fail(memory.unavailable(), times=12)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "Answer"))
        await until(lambda: len(platform.ops) == 12)
        delivery.disconnected("memory")
        await put(store, delivery, item("a_2", "Another"))
        await asyncio.sleep(1)
        assert len(platform.ops) == 12
        began = world.monotonic()
        delivery.connected("memory")
        await delivery.settle(10)
        assert world.monotonic() - began < 0.01
    assert platform.screen(CHAT) == ["Answer", "Another"]


@simulated
async def test_what_the_platform_refuses_is_dead_and_the_rest_goes_on(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    platform.fail(memory.rejected(), Post)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "Bad"), item("a_2", "Good"))
        assert await delivery.wait_sent("a_1") is ItemState.DEAD
        await delivery.settle(10)
        row = await row_of(store, "a_1")
        assert (row.state, row.error) == (
            "dead",
            "The platform refused this and would refuse it again.",
        )
    assert platform.screen(CHAT) == ["Good"]
    assert len(platform.ops) == 2


@simulated
async def test_in_a_chat_that_is_gone_nothing_more_is_tried_until_something_new_is_said(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    platform.lose_chat(CHAT)
    async with running(store, platform) as delivery:
        answer = delivery.live(item("a_9", final=False))
        await put(store, delivery, *(item(f"a_{n}", "Answer") for n in range(5)))
        await delivery.settle(10)
        answer.update("text")
        await asyncio.sleep(10)
        assert len(platform.ops) == 1
        assert (await row_of(store, "a_4")).state == "dead"
        platform.find_chat(CHAT)
        await put(store, delivery, item("a_10", "Welcome back"))
        await delivery.settle(10)
    assert platform.screen(CHAT) == ["Welcome back"]
    assert platform.violations() == []


@simulated
async def test_an_op_that_ends_after_its_chat_was_gone_changes_nothing(
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
        await delivery.settle(1)
        gate.set()
        await asyncio.sleep(1)
        assert (await row_of(store, "a_1")).state == "dead"


class _Locked(Platform):
    """A platform that refuses the credentials."""

    locked = True

    async def deliver(self, op: Op) -> Receipt:
        if self.locked:
            raise Unauthorized
        return await super().deliver(op)


@simulated
async def test_without_credentials_an_answer_waits_and_the_gateway_is_told(
    world: World, store: Store
) -> None:
    platform = _Locked(clock=world)
    told: list[Adapter] = []
    async with running(store, platform, on_refused=told.append) as delivery:
        await put(store, delivery, item("a_1", "Answer"))
        await asyncio.sleep(100)
        assert told == [platform]
        platform.locked = False
        delivery.connected("memory")
        await delivery.settle(10)
    assert platform.screen(CHAT) == ["Answer"]


@simulated
async def test_a_platform_that_never_answers_is_given_up_after_the_deadline_and_tried_again(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    platform.fail(memory.hanging(carried_out=True), Post)
    async with running(store, platform, deadline=7.0) as delivery:
        await put(store, delivery, item("a_1", "Answer"))
        await asyncio.sleep(7.1)
        assert (await row_of(store, "a_1")).state == "unknown"
        await delivery.settle(10)
    assert 7 < world.monotonic() < 10
    assert platform.screen(CHAT) == ["Answer"]


@simulated
async def test_a_file_may_take_longer_than_a_message(world: World, store: Store) -> None:
    platform = Platform(clock=world)
    gate = asyncio.Event()
    platform.fail(memory.delayed(gate), Upload)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("u_1", "A picture", kind="upload"))
        await asyncio.sleep(590)
        gate.set()
        assert await delivery.wait_sent("u_1") is ItemState.SENT
        assert _kinds(platform) == ["Upload"]
        platform.fail(memory.hanging(), Upload)
        await put(store, delivery, item("u_2", "Another", kind="upload"))
        await asyncio.sleep(599)
        assert _kinds(platform) == ["Upload"] * 2
        await delivery.settle(10)
    assert _kinds(platform) == ["Upload"] * 3


@simulated
async def test_typing_and_drafts_that_hang_do_not_hold_up_the_answer_for_long(
    world: World, store: Store
) -> None:
    for live, kind, longest in ((Live.NONE, Typing, 2.1), (Live.DRAFT, Draft, 10.1)):
        platform = Platform(live.value, clock=world, live=live)
        platform.fail(memory.hanging(), kind)
        async with running(store, platform) as delivery:
            answer = delivery.live(item(f"a_{live}", platform=live.value, final=False))
            if live is Live.DRAFT:
                answer.update("text")
            await until(lambda platform=platform: bool(platform.ops))  # type: ignore[misc]
            began = world.monotonic()
            answer.close()
            await put(store, delivery, item(f"a_{live}", "Answer", platform=live.value))
            await delivery.settle(100)
            assert world.monotonic() - began < longest
        assert platform.screen(CHAT) == ["Answer"]


@simulated
async def test_where_a_repeat_cannot_be_told_a_cut_answer_question_or_file_is_marked_but_no_notice_is_repeated(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, repeat=Repeat.MARK)
    async with running(store, platform) as delivery:
        for number, kind in enumerate(("answer", "ask", "upload", "notice")):
            wanted = {"answer": Post, "ask": Ask, "upload": Upload, "notice": Post}[kind]
            platform.fail(memory.cut_after(), wanted)
            await put(store, delivery, item(f"x_{number}", kind, kind=kind))
            await delivery.settle(100)
        assert (await row_of(store, "x_3")).state == "dead"
        assert "not known" in (await row_of(store, "x_3")).error
        assert (await row_of(store, "x_0")).state == "sent"
    assert platform.screen(CHAT) == [
        "answer",
        f"{MARK}\n\nanswer",
        "ask",
        f"{MARK}\n\nask",
        "upload",
        f"{MARK}\n\nupload",
        "notice",
    ]


@simulated
async def test_before_a_marked_copy_is_sent_the_platform_must_have_answered_something_harmless(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, repeat=Repeat.MARK)
    platform.fail(memory.cut_before(), Post)
    platform.fail(memory.hanging(), Typing, times=5)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "Answer"))
        await delivery.settle(1000)
    assert _kinds(platform) == ["Post", *["Typing"] * 6, "Post"]
    assert platform.screen(CHAT) == [f"{MARK}\n\nAnswer"]


@simulated
async def test_an_op_stays_in_doubt_while_its_repeat_does_not_get_through(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, repeat=Repeat.LOOKUP)
    platform.fail(memory.cut_after(), Post)
    platform.fail(memory.unavailable(), Post, times=100)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "Answer"))
        await asyncio.sleep(10)
        assert (await row_of(store, "a_1")).state == "unknown"
        await delivery.settle(100_000)
    assert platform.screen(CHAT) == ["Answer"]


@simulated
async def test_marked_copies_are_not_sent_for_ever(world: World, store: Store) -> None:
    platform = Platform(clock=world, repeat=Repeat.MARK)
    platform.fail(memory.cut_before(), Post, times=100)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "Answer"))
        assert await delivery.wait_sent("a_1") is ItemState.DEAD
    assert _kinds(platform).count("Post") == 6


@simulated
async def test_a_copy_that_is_marked_stays_marked_when_it_changes(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, repeat=Repeat.MARK)
    platform.fail(memory.cut_before(), Post)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "Answer"))
        await delivery.settle(100)
        await put(store, delivery, item("a_1", "Better answer"))
        await delivery.settle(100)
    assert platform.screen(CHAT) == [f"{MARK}\n\nBetter answer"]


@simulated
async def test_an_answer_whose_message_cannot_be_edited_any_more_is_posted_anew(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, live=Live.EDIT)
    async with running(store, platform) as delivery:
        answer = delivery.live(item("a_1", final=False))
        answer.update("The begin")
        await until(lambda: bool(platform.screen(CHAT)))
        platform.erase(CHAT, platform.messages(CHAT)[0].id)
        answer.close()
        await put(store, delivery, item("a_1", "The beginning and the end"))
        await delivery.settle(10)
    assert platform.screen(CHAT) == ["The beginning and the end"]


@simulated
async def test_a_message_that_somebody_deleted_need_not_be_taken_away(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, live=Live.EDIT)
    async with running(store, platform) as delivery:
        answer = delivery.live(item("a_1", final=False))
        answer.update("The begin")
        await until(lambda: bool(platform.screen(CHAT)))
        platform.erase(CHAT, platform.messages(CHAT)[0].id)
        answer.drop()
        await asyncio.sleep(10)
        assert await store.open_items() == ()
    assert [type(op) for op in platform.ops][-1] is Delete


class _Broken(Platform):
    """An adapter with a mistake in it."""

    async def deliver(self, op: Op) -> Receipt:
        if op.address.chat == "broken":
            self.ops.append(op)
            raise ZeroDivisionError
        return await super().deliver(op)


@simulated
async def test_a_mistake_in_an_adapter_harms_one_item_and_nothing_else(
    world: World, store: Store
) -> None:
    platform = _Broken(clock=world)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "Answer", chat="broken"), item("a_2", "Other"))
        assert await delivery.wait_sent("a_1") is ItemState.DEAD
        assert "ZeroDivisionError" in (await row_of(store, "a_1")).error
        await delivery.settle(10)
    assert len(platform.ops) == 4
    assert platform.screen(CHAT) == ["Other"]


@simulated
async def test_nothing_is_tried_before_it_is_on_record_and_a_locked_database_is_waited_for(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, repeat=Repeat.MARK)
    async with running(store, platform) as delivery:
        delivery.disconnected("memory")
        await put(store, delivery, item("a_1", "Answer"))
        store.errors = [StoreUnavailable("locked")] * 5
        delivery.connected("memory")
        await asyncio.sleep(1)
        assert platform.ops == []
        assert await delivery.wait_sent("a_1") is ItemState.SENT
    assert platform.screen(CHAT) == ["Answer"]


@simulated
async def test_an_item_that_is_not_in_the_store_any_more_harms_no_other(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    async with running(store, platform) as delivery:
        delivery.wake([item("a_1", "Nobody put this")])
        await asyncio.sleep(1)
        await put(store, delivery, item("a_2", "Answer"))
        await delivery.settle(10)
        assert (await row_of(store, "a_2")).state == "sent"


@simulated
async def test_a_retry_after_that_cannot_be_kept_is_honoured_all_the_same(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    platform.fail(memory.rate_limited(50.0), Post)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "Answer"))
        store.errors = [StoreUnavailable("full")]
        await delivery.settle(100)
    assert platform.screen(CHAT) == ["Answer"]
    assert platform.violations() == []


# --- start and end ---------------------------------------------------------------------------


@simulated
async def test_what_an_earlier_process_left_is_counted_and_delivered(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    async with running(store) as delivery:
        await put(
            store, delivery, item("a_1", "Answer"), item("a_2", "To a platform that is no more")
        )
        assert await delivery.recover() == 2
    async with running(store, platform) as delivery:
        await delivery.settle(10)
    assert platform.screen(CHAT) == ["Answer", "To a platform that is no more"]


@simulated
async def test_nothing_is_delivered_before_the_platform_is_connected_and_somebody_owns_the_tasks(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    async with running(store, platform) as delivery:
        delivery.disconnected("memory")
        await put(store, delivery, item("a_1", "Answer"))
        await asyncio.sleep(10)
        assert platform.ops == []
        await delivery.settle(10)  # what cannot be delivered is not waited for
        assert world.monotonic() == 10


@simulated
async def test_settling_waits_until_what_was_delivered_is_written_down(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    async with running(store, platform) as delivery:
        store.slow = 1.0
        await put(store, delivery, item("a_1", "Answer"))
        await until(lambda: bool(platform.screen(CHAT)))
        await delivery.settle(10)
    assert await store.open_items() == ()


@simulated
async def test_settling_ends_when_its_time_is_over(world: World, store: Store) -> None:
    platform = Platform(clock=world)
    platform.fail(memory.unavailable(), times=1000)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "Answer"))
        await delivery.settle(12)
    assert world.monotonic() == 12
    assert [each.id for each in await store.open_items()] == ["a_1"]


@pytest.mark.parametrize("live", [Live.EDIT, Live.STREAM])
@pytest.mark.parametrize("repeat", [Repeat.ALWAYS, Repeat.MARK])
def test_an_answer_whose_writer_died_and_that_nobody_ends_is_left_as_it_looks_but_closed(
    live: Live, repeat: Repeat
) -> None:
    @simulated
    async def scene(world: World, store: Store) -> None:
        platform = Platform(clock=world, live=live, repeat=repeat, text_limit=200)
        async with running(store, platform) as delivery:
            answer = delivery.live(item("a_1", final=False))
            for end in range(0, 550, 10):
                answer.update(("word " * 120)[:end])
                await asyncio.sleep(0.2)
        seen = platform.screen(CHAT)
        assert len(seen) >= 3
        async with running(store, platform):
            await asyncio.sleep(20)
        assert platform.screen(CHAT)[:-1] == seen[:-1]
        assert seen[-1].startswith(platform.screen(CHAT)[-1])
        assert await store.open_items() == ()
        if live is Live.STREAM:
            assert platform.violations() == []

    scene()


@simulated
async def test_an_answer_that_is_taken_up_again_goes_on_in_its_message(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, live=Live.EDIT)
    for text in ("The begin", "The beginning, and more"):
        async with running(store, platform) as delivery:
            answer = delivery.live(item("a_1", final=False))
            answer.update(text)
            await asyncio.sleep(30)
        assert platform.screen(CHAT) == [text]
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "The beginning and the end"))
        await delivery.settle(10)
    assert platform.screen(CHAT) == ["The beginning and the end"]
    assert platform.violations() == []


@simulated
async def test_the_final_form_of_an_answer_whose_writer_died_is_shown_at_once(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, live=Live.EDIT)
    async with running(store, platform) as delivery:
        delivery.live(item("a_1", final=False)).update("The begin")
        await asyncio.sleep(2)
    began = world.monotonic()
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "The beginning, interrupted"))
        await delivery.settle(10)
    assert world.monotonic() - began < 0.1
    assert platform.screen(CHAT) == ["The beginning, interrupted"]


@simulated
async def test_the_memory_of_idle_chats_is_bounded(world: World, store: Store) -> None:
    platform = Platform(clock=world)
    async with running(store, platform) as delivery:
        for number in range(300):
            await put(store, delivery, item(f"a_{number}", "text", chat=str(number)))
        await delivery.settle(10)
        assert len(delivery._lanes) == 300  # all of them are still within their budgets' memory
        await asyncio.sleep(100)
        await put(store, delivery, item("a_x", "text", chat="1"))
        await delivery.settle(10)
        assert len(delivery._lanes) == 256
        await put(store, delivery, item("a_y", "text", chat="1"), item("a_z", "text", chat="2"))
        await delivery.settle(10)
    assert platform.screen("1") == ["text"] * 3
    assert platform.violations() == []


def test_what_cannot_be_shown_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    @simulated
    async def scene(world: World, store: Store) -> None:
        platform = Platform(clock=world)
        platform.fail(memory.rejected(), Post)
        async with running(store, platform) as delivery:
            await put(store, delivery, item("a_1"), item("a_2", "Lost", platform="nowhere"))
            await put(store, delivery, item("a_3", "Bad"))
            await delivery.settle(10)

    scene()
    assert "a_3 cannot be shown in memory@:1001: The platform refused" in caplog.text
    assert 'a_2 waits: nothing delivers to {"platform":"nowhere"' in caplog.text


class Writer:
    """Writes an answer, and holds what shows it, as a turn does."""

    def __init__(self, delivery: Delivery) -> None:
        self.live = delivery.live(item("a_1", final=False))
        self.live.follow(self.text)

    def text(self) -> str:
        return "Answer"


@simulated
async def test_whoever_wrote_an_answer_is_freed_with_it_and_not_by_the_collector(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    async with running(store, platform) as delivery:
        writer = Writer(delivery)
        freed = weakref.ref(writer)
        await asyncio.sleep(1)
        await put(store, delivery, item("a_1", "Answer"))
        await delivery.settle(10)
        gc.disable()
        try:
            del writer
            assert freed() is None
        finally:
            gc.enable()
