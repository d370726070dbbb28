"""Delivery of answers, notices and questions; start and end."""

import asyncio
import gc
import weakref

import msgspec
import pytest

from gateway.delivery.outbox import Delivery
from gateway.delivery.view import read_body, write_body
from platforms.core.contract import (
    Button,
    Edit,
    Live,
    Post,
    Repeat,
    Upload,
)
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

# --- one item ---------------------------------------------------------------------------------


@simulated
async def test_an_answer_is_posted_and_then_stored_as_sent(world: World, store: Store) -> None:
    platform = Platform(clock=world)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "Hello *you*"))
        assert await delivery.wait_sent("a_1") is ItemState.SENT
        assert platform.screen(CHAT) == ["Hello *you*"]
        assert (await row_of(store, "a_1")).state == "sent"
        assert platform.violations() == []


@simulated
async def test_a_long_answer_is_split_with_the_buttons_under_the_last_message(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, text_limit=100, buttons=1)
    buttons = (Button("Go on", "resume"), Button("Too many", "x"))
    long = item("a_1", "One.\n\n" + "two " * 20 + "\n\n" + "three " * 15, buttons=buttons)
    async with running(store, platform) as delivery:
        await put(store, delivery, long)
        await delivery.flush(10)
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
            answer = delivery.start_live(item("a_1", platform=live.value, final=False))
            answer.update("All of")
            await asyncio.sleep(0.01)
            answer.update("All of it")
            answer.close()
            await put(store, delivery, final := item(f"a_{live}", "All", platform=live.value))
            answer.drop()
            before = store.commits
            await delivery.flush(10)
            assert store.commits == before + 1, live
            assert kinds(platform) == ["Post"]
            assert final.id in platform.messages(CHAT)[0].op


@pytest.mark.parametrize(
    ("live", "repeat", "commits"),
    [
        (Live.DRAFT, Repeat.ALWAYS, 1),
        (Live.NONE, Repeat.MARK, 2),
        (Live.DRAFT, Repeat.MARK, 2),
        (Live.NONE, Repeat.NONCE, 2),
        (Live.EDIT, Repeat.ALWAYS, 2),  # the first live message is stored before the attempt
        (Live.EDIT, Repeat.NONCE, 2),
        (Live.EDIT, Repeat.MARK, 3),
    ],
)
def test_an_answer_costs_few_commits(live: Live, repeat: Repeat, commits: int) -> None:
    @simulated
    async def scene(world: World, store: Store) -> None:
        platform = Platform(clock=world, live=live, repeat=repeat)
        async with running(store, platform) as delivery:
            answer = delivery.start_live(item("a_1", final=False))
            for number in range(1, 40):
                answer.update("word " * number)
                await asyncio.sleep(0.1)
            answer.close()
            await put(store, delivery, item("a_1", "word " * 40))
            await delivery.flush(10)
        assert store.commits == commits + 1  # including the turn's own
        assert platform.screen(CHAT) == [("word " * 40).strip()]

    scene()


@simulated
async def test_questions_and_files_use_their_own_ops(world: World, store: Store) -> None:
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
        await delivery.flush(10)
    shown = [
        (message.file, message.text[:9], message.buttons) for message in platform.messages(CHAT)
    ]
    assert shown == [
        ("", "Run it?", yes),
        ("x.png", "A picture", ()),
        ("", "text text", ()),  # too long for a caption
        ("x.png", "", ()),
        ("x.png", "", ()),
    ]
    assert kinds(platform) == ["Ask", "Upload", "Post", "Upload", "Upload"]


@simulated
async def test_only_the_first_message_of_an_answer_is_a_reply(world: World, store: Store) -> None:
    platform = Platform(clock=world, text_limit=60)
    deaf = Platform("deaf", clock=world, reply=False)
    async with running(store, platform, deaf) as delivery:
        for name in ("memory", "deaf"):
            answer = item(f"a_{name}", "word " * 20, platform=name)
            await put(store, delivery, msgspec.structs.replace(answer, reply_to="77"))
        await delivery.flush(10)
    assert [message.reply_to for message in platform.messages(CHAT)] == ["77", None]
    assert deaf.messages(CHAT)[0].reply_to is None


@simulated
async def test_every_outgoing_text_is_redacted(world: World, store: Store) -> None:
    platform = Platform(clock=world, live=Live.DRAFT)
    async with running(
        store, platform, redact=lambda text: text.replace("sk-123", "***")
    ) as delivery:
        answer = delivery.start_live(item("a_1", final=False))
        answer.update("The key is sk-123.", status="reading sk-123")
        await until(lambda: bool(platform.screen(CHAT)))
        answer.close()
        await put(store, delivery, item("a_1", "The key is sk-123."))
        await delivery.flush(10)
    assert kinds(platform) == ["Draft", "Post"]
    assert "sk-123" not in str(platform.ops)
    assert platform.screen(CHAT) == ["The key is ***."]


@simulated
async def test_no_outgoing_text_or_file_name_has_hidden_characters(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, live=Live.DRAFT)
    async with running(
        store, platform, redact=lambda text: text.replace("sk-123", "***")
    ) as delivery:
        answer = delivery.start_live(item("a_1", final=False))
        answer.update("Look\x1b[2J at sk-\u200b123", status="\u202ereading")
        await until(lambda: bool(platform.screen(CHAT)))
        answer.close()
        await put(store, delivery, item("a_1", "Look\x1b[2J at sk-\u200b123 \u202eevil"))
        upload = item("u_1", "a\x00", kind="upload")
        body = msgspec.structs.replace(read_body(upload), name="\u202egpj.exe")
        await put(store, delivery, msgspec.structs.replace(upload, body=write_body(body)))
        await delivery.flush(10)
    assert platform.screen(CHAT)[0] == "Look␛[2J at *** evil"
    assert [(op.name, op.caption) for op in platform.ops if isinstance(op, Upload)] == [
        ("gpj.exe", "a␀")
    ]
    assert not set("\x1b\x00\u200b\u202e") & set(
        str(platform.ops).encode().decode("unicode_escape")
    )


@simulated
async def test_a_notice_put_again_edits_its_message(world: World, store: Store) -> None:
    platform = Platform(clock=world)
    rigid = Platform("rigid", clock=world, edit=False)
    async with running(store, platform, rigid) as delivery:
        for text in ("1 waiting", "2 waiting", "2 waiting", "3 waiting"):
            for name in ("memory", "rigid"):
                await put(store, delivery, item(f"n_{name}", text, kind="notice", platform=name))
            await delivery.flush(10)
    assert platform.screen(CHAT) == ["3 waiting"]
    assert kinds(platform) == ["Post", "Edit", "Edit"]
    assert rigid.screen(CHAT) == ["1 waiting", "2 waiting", "3 waiting"]
    assert all(op.notice for op in platform.ops if isinstance(op, Post | Edit))
    assert platform.violations() + rigid.violations() == []


@simulated
async def test_a_notice_put_again_before_it_was_shown_is_shown_once(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    async with running(store, platform) as delivery:
        delivery.on_disconnected("memory")
        await put(store, delivery, item("n_1", "1 waiting", kind="notice"))
        await put(store, delivery, item("n_1", "2 waiting", kind="notice"))
        delivery.on_connected("memory")
        await delivery.flush(10)
    assert [op.text for op in platform.ops if isinstance(op, Post)] == ["2 waiting"]


@simulated
async def test_an_item_without_content_is_done_at_once(world: World, store: Store) -> None:
    platform = Platform(clock=world)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", " \n "))
        assert await delivery.wait_sent("a_1") is ItemState.SENT
    assert platform.ops == []


# --- start and end ----------------------------------------------------------------------------


@simulated
async def test_items_of_an_earlier_process_are_counted_and_delivered(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    async with running(store) as delivery:
        await put(
            store, delivery, item("a_1", "Answer"), item("a_2", "To a platform that is no more")
        )
        assert await delivery.recover() == 2
    async with running(store, platform) as delivery:
        await delivery.flush(10)
    assert platform.screen(CHAT) == ["Answer", "To a platform that is no more"]


@simulated
async def test_nothing_is_delivered_before_the_platform_connects_and_run_starts(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    async with running(store, platform) as delivery:
        delivery.on_disconnected("memory")
        await put(store, delivery, item("a_1", "Answer"))
        await asyncio.sleep(10)
        assert platform.ops == []
        await delivery.flush(10)  # undeliverable items are not awaited
        assert world.monotonic() == 10


@simulated
async def test_flush_waits_until_the_results_are_stored(world: World, store: Store) -> None:
    platform = Platform(clock=world)
    async with running(store, platform) as delivery:
        store.slow = 1.0
        await put(store, delivery, item("a_1", "Answer"))
        await until(lambda: bool(platform.screen(CHAT)))
        await delivery.flush(10)
    assert await store.outbox.undelivered() == ()


@simulated
async def test_flush_ends_after_its_timeout(world: World, store: Store) -> None:
    platform = Platform(clock=world)
    platform.fail(memory.unavailable(), times=1000)
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "Answer"))
        await delivery.flush(12)
    assert world.monotonic() == 12
    assert [each.id for each in await store.outbox.undelivered()] == ["a_1"]


@pytest.mark.parametrize("live", [Live.EDIT, Live.STREAM])
@pytest.mark.parametrize("repeat", [Repeat.ALWAYS, Repeat.MARK])
def test_an_abandoned_answer_keeps_its_text_and_is_closed(live: Live, repeat: Repeat) -> None:
    @simulated
    async def scene(world: World, store: Store) -> None:
        platform = Platform(clock=world, live=live, repeat=repeat, text_limit=200)
        async with running(store, platform) as delivery:
            answer = delivery.start_live(item("a_1", final=False))
            for end in range(0, 550, 10):
                answer.update(("word " * 120)[:end])
                await asyncio.sleep(0.2)
        seen = platform.screen(CHAT)
        assert len(seen) >= 3
        async with running(store, platform):
            await asyncio.sleep(20)
        assert platform.screen(CHAT)[:-1] == seen[:-1]
        assert seen[-1].startswith(platform.screen(CHAT)[-1])
        assert await store.outbox.undelivered() == ()
        if live is Live.STREAM:
            assert platform.violations() == []

    scene()


@simulated
async def test_a_resumed_answer_continues_in_its_message(world: World, store: Store) -> None:
    platform = Platform(clock=world, live=Live.EDIT)
    for text in ("The begin", "The beginning, and more"):
        async with running(store, platform) as delivery:
            answer = delivery.start_live(item("a_1", final=False))
            answer.update(text)
            await asyncio.sleep(30)
        assert platform.screen(CHAT) == [text]
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "The beginning and the end"))
        await delivery.flush(10)
    assert platform.screen(CHAT) == ["The beginning and the end"]
    assert platform.violations() == []


@simulated
async def test_the_final_form_of_an_abandoned_answer_is_shown_at_once(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world, live=Live.EDIT)
    async with running(store, platform) as delivery:
        delivery.start_live(item("a_1", final=False)).update("The begin")
        await asyncio.sleep(2)
    began = world.monotonic()
    async with running(store, platform) as delivery:
        await put(store, delivery, item("a_1", "The beginning, interrupted"))
        await delivery.flush(10)
    assert world.monotonic() - began < 0.1
    assert platform.screen(CHAT) == ["The beginning, interrupted"]


@simulated
async def test_only_a_limited_number_of_idle_chats_is_remembered(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    async with running(store, platform) as delivery:
        for number in range(300):
            await put(store, delivery, item(f"a_{number}", "text", chat=str(number)))
        await delivery.flush(10)
        assert len(delivery._lanes) == 300  # none has a rested budget yet
        await asyncio.sleep(100)
        await put(store, delivery, item("a_x", "text", chat="1"))
        await delivery.flush(10)
        assert len(delivery._lanes) == 256
        await put(store, delivery, item("a_y", "text", chat="1"), item("a_z", "text", chat="2"))
        await delivery.flush(10)
    assert platform.screen("1") == ["text"] * 3
    assert platform.violations() == []


def test_undeliverable_items_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    @simulated
    async def scene(world: World, store: Store) -> None:
        platform = Platform(clock=world)
        platform.fail(memory.rejected(), Post)
        async with running(store, platform) as delivery:
            await put(store, delivery, item("a_1"), item("a_2", "Lost", platform="nowhere"))
            await put(store, delivery, item("a_3", "Bad"))
            await delivery.flush(10)

    scene()
    assert "a_3 cannot be sent to memory@:1001: The platform refused" in caplog.text
    assert 'a_2 stays queued: no adapter delivers to {"platform":"nowhere"' in caplog.text


class Writer:
    """Writes an answer and holds its live item, as a turn does."""

    def __init__(self, delivery: Delivery) -> None:
        self.live = delivery.start_live(item("a_1", final=False))
        self.live.follow(self.text)

    def text(self) -> str:
        return "Answer"


@simulated
async def test_the_writer_of_a_finished_answer_is_freed_without_the_garbage_collector(
    world: World, store: Store
) -> None:
    platform = Platform(clock=world)
    async with running(store, platform) as delivery:
        writer = Writer(delivery)
        freed = weakref.ref(writer)
        await asyncio.sleep(1)
        await put(store, delivery, item("a_1", "Answer"))
        await delivery.flush(10)
        gc.disable()
        try:
            del writer
            assert freed() is None
        finally:
            gc.enable()
