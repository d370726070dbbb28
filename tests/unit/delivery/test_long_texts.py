"""Texts that are too long for a chat: the first messages, and the whole text as a file."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.delivery.long_text import FILE_NAME, IN_FILE, STILL_WRITING, encode_file
from gateway.delivery.view import read_body, write_body
from platforms.core.contract import Live, Post, Repeat, Upload
from platforms.core.errors import Unavailable
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
    running,
    simulated,
    until,
)

WORDS = "".join(f"word {number:04d}\n\n" for number in range(400))  # 11 characters each
SHOWN = 3


def platform(world: World, live: Live = Live.NONE, **more: Any) -> Platform:
    return Platform(clock=world, live=live, text_limit=200, messages=SHOWN, burst=1000, **more)


def uploads(chat: Platform) -> list[Upload]:
    return [op for op in chat.ops if isinstance(op, Upload)]


def content(upload: Upload) -> str:
    return Path(upload.path).read_text(encoding="utf-8")


def remove(upload: Upload) -> None:
    Path(upload.path).unlink()


@simulated
async def test_a_text_of_more_messages_than_allowed_is_also_sent_as_a_file(
    world: World, store: Store
) -> None:
    chat = platform(world)
    async with running(store, chat) as delivery:
        await put(store, delivery, item("a_1", WORDS))
        assert await delivery.wait_sent("a_1") is ItemState.SENT
        shown = chat.screen(CHAT)
        assert len(shown) == SHOWN + 2  # a note and the file
        assert WORDS.startswith("\n\n".join(shown[:SHOWN]))
        assert shown[SHOWN] == IN_FILE
        (upload,) = uploads(chat)
        assert upload.name == FILE_NAME
        assert content(upload) == WORDS
        assert chat.violations() == []


@simulated
async def test_a_long_private_answer_is_not_sent_as_a_file_that_all_can_see(
    world: World, store: Store
) -> None:
    chat = platform(world)
    long = item("n_1", WORDS, kind="notice")
    body = msgspec.structs.replace(read_body(long), only_for="1001")
    async with running(store, chat) as delivery:
        await put(store, delivery, msgspec.structs.replace(long, body=write_body(body)))
        assert await delivery.wait_sent("n_1") is ItemState.SENT
    assert set(kinds(chat)) == {"Post"}
    assert {op.only_for for op in chat.ops if isinstance(op, Post)} == {"1001"}
    assert "\n\n".join(chat.screen(CHAT)) == WORDS.rstrip()


@simulated
async def test_a_text_that_fits_is_not_sent_as_a_file(world: World, store: Store) -> None:
    chat = platform(world)
    async with running(store, chat) as delivery:
        await put(store, delivery, item("a_1", WORDS[:500]))
        await delivery.wait_sent("a_1")
    assert kinds(chat) == ["Post"] * SHOWN


@simulated
async def test_a_chat_without_files_gets_all_messages(world: World, store: Store) -> None:
    chat = platform(world, files=None)
    async with running(store, chat) as delivery:
        await put(store, delivery, item("a_1", WORDS))
        await delivery.wait_sent("a_1")
    assert "\n\n".join(chat.screen(CHAT)) == WORDS.strip()


@pytest.mark.parametrize("live", [Live.EDIT, Live.STREAM, Live.DRAFT])
@pytest.mark.parametrize("repeat", [Repeat.ALWAYS, Repeat.MARK])
def test_a_growing_text_stops_at_the_limit_and_ends_with_the_file(
    live: Live, repeat: Repeat
) -> None:
    @simulated
    async def scene(world: World, store: Store) -> None:
        chat = platform(world, live, repeat=repeat, live_interval=0.1)
        async with running(store, chat) as delivery:
            answer = delivery.start_live(item("a_1", final=False))
            for end in range(0, len(WORDS), 40):
                answer.update(WORDS[:end])
                await asyncio.sleep(0.05)
            assert chat.screen(CHAT)[-1].startswith(STILL_WRITING)
            seen = chat.screen(CHAT)[:-1]
            answer.close()
            await put(store, delivery, item("a_1", WORDS))
            await delivery.wait_sent("a_1")
        shown = chat.screen(CHAT)
        assert len(shown) == SHOWN + 2
        assert shown[: len(seen)] == seen
        assert shown[SHOWN] == IN_FILE
        assert len(uploads(chat)) == 1
        assert chat.violations() == []

    scene()


@simulated
async def test_the_file_is_written_again_after_a_restart(world: World, store: Store) -> None:
    chat = platform(world)
    chat.fail(memory.DeliveryFault(lambda: Unavailable("down")), Upload, times=50)
    async with running(store, chat) as delivery:
        await put(store, delivery, item("a_1", WORDS))
        await until(lambda: bool(uploads(chat)))
        remove(uploads(chat)[0])
    again = platform(world)
    async with running(store, again) as delivery:
        await delivery.wait_sent("a_1")
        (upload,) = uploads(again)
        assert content(upload) == WORDS
        assert not any(isinstance(op, Post) for op in again.ops)


@simulated
async def test_secrets_are_masked_in_the_file(world: World, store: Store) -> None:
    chat = platform(world)
    async with running(store, chat, redact=lambda text: text.replace("0399", "***")) as delivery:
        await put(store, delivery, item("a_1", WORDS))
        await delivery.wait_sent("a_1")
        assert content(uploads(chat)[0]) == WORDS.replace("0399", "***")


@simulated
async def test_showing_a_long_text_reads_only_its_beginning(world: World, store: Store) -> None:
    """The work for each op must not grow with the text behind the shown messages."""
    read: list[int] = []

    def redact(text: str) -> str:
        read.append(len(text))
        return text

    chat = platform(world, Live.EDIT, live_interval=0.1)
    async with running(store, chat, redact=redact) as delivery:
        answer = delivery.start_live(item("a_1", final=False))
        for _ in range(20):
            answer.update(WORDS * 20)
            await asyncio.sleep(0.1)
        assert read
        assert max(read) <= 200 * (SHOWN + 4)
        answer.close()
        await put(store, delivery, item("a_1", WORDS * 20))
        await delivery.wait_sent("a_1")
    assert [length for length in read if length > 200 * (SHOWN + 4)] == [len(WORDS) * 20]


def test_a_file_is_no_larger_than_the_platform_accepts() -> None:
    cut = encode_file("🙂" * 1000, 1001)
    assert len(cut) <= 1001
    assert cut.decode().startswith("🙂" * 200)
    assert cut.decode().endswith("ends here.)\n")
    assert encode_file("🙂", 4) == "🙂".encode()


@pytest.mark.parametrize("live", [Live.NONE, Live.DRAFT, Live.EDIT])
def test_a_long_text_is_rendered_outside_the_event_loop(live: Live) -> None:
    @simulated
    async def scene(world: World, store: Store) -> None:
        here, rendered_here = threading.get_ident(), list[int]()

        def redact(text: str) -> str:
            if threading.get_ident() == here:
                rendered_here.append(len(text))
            return text

        chat = Platform(clock=world, live=live, text_limit=1_000_000, burst=1000)
        async with running(store, chat, redact=redact) as delivery:
            answer = delivery.start_live(item("a_1", final=False))
            answer.update(WORDS * 10)
            await asyncio.sleep(2)
            answer.update(WORDS * 11)
            await asyncio.sleep(2)
            answer.close()
            await put(store, delivery, item("a_1", WORDS * 12))
            await delivery.wait_sent("a_1")
        assert chat.screen(CHAT) == [(WORDS * 12).rstrip()]
        assert all(length < 100 for length in rendered_here)

    scene()
