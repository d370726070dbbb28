"""Attachments reach the agent, through the whole gateway and across interruptions."""

import asyncio
import base64
import json
import os
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent.settings import VoiceSettings
from agent.tools.contract import Risk, ToolContext
from agent.tools.define import tool
from gateway.settings import GatewaySettings, MediaSettings
from gateway.turns import run
from platforms.core.contract import (
    Accepted,
    Address,
    File,
    InboundEdit,
    InboundMessage,
    Live,
    Part,
    Sender,
    Text,
)
from sessions.values.size import Size
from tests.e2e.daemon import Daemon
from tests.e2e.gateway_kit import GatewayKit, Screen, gateway, opened, talkative
from tests.fakes.downloads import Going
from tests.fakes.memory.adapter import DEFAULT_SENDER
from tests.fakes.model_script import Script, words
from tests.fakes.model_server import ModelServer
from tests.fakes.senders import Sent, telegram_message
from tests.fakes.telegram.server import TOKEN, serving
from tests.fakes.transcription import TranscriptionServer, transcription_server

CHAT = "7"
RECEIVED = "workspace/*/received/*/*"
PATH = re.compile(r"received/[0-9a-z]{10}/[^ ]+")
NOTES = b"the notes of Monday\n"


class FileScreen(Screen):
    """In-memory platform whose people send files."""

    def __init__(self) -> None:
        super().__init__(live=Live.EDIT, live_interval=0.01, burst=1000)
        self.fetched: list[str] = []
        self.hangs: set[str] = set()  # refs whose download hangs
        self.fetch_started = asyncio.Condition()

    async def fetch(self, file: File) -> AsyncIterator[bytes]:
        self.fetched.append(file.ref)
        async with self.fetch_started:
            self.fetch_started.notify_all()
        if file.ref in self.hangs:
            yield self.files[file.ref][:5]
            await asyncio.Event().wait()
        async for piece in super().fetch(file):
            yield piece

    async def wait_for_fetch(self, ref: str) -> None:
        async with asyncio.timeout(5), self.fetch_started:
            await self.fetch_started.wait_for(lambda: ref in self.fetched)

    def offers(
        self,
        ref: str,
        content: bytes = NOTES,
        name: str = "notes.txt",
        media_type: str = "text/plain",
        **more: Any,
    ) -> File:
        self.files[ref] = content
        return File(name, media_type, ref, **{"size": len(content), **more})

    def voice_message(self, ref: str) -> File:
        return self.offers(ref, b"Ogg", "voice.ogg", "audio/ogg", voice=True)

    async def send(self, *parts: Part, chat: str = CHAT, event: str = "") -> Accepted:
        return await self.inject(
            InboundMessage(
                id=event or self._new_id(),
                at=self._clock.now(),
                address=Address(self.name, chat, self.account),
                sender=DEFAULT_SENDER,
                parts=parts,
                direct=True,
                addressed=True,
            )
        )


def received_files(home: Path) -> list[Path]:
    """Return the received files, including partial downloads."""
    return sorted(home.glob(RECEIVED))


def reader(body: dict[str, Any]) -> Script:
    """Model script that reads the attached file and answers with its content."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        return words("it says: " + str(last["content"]).partition("\n")[2].strip())
    path = PATH.search(json.dumps(last["content"]))
    assert path, last
    return f"H C(0,c1,read_file,{json.dumps({'path': path[0]})}) F tool_calls D"


async def last_content(kit: GatewayKit, number: int) -> str:
    """Return the content of the last row of the model's n-th request."""
    asked = await kit.asked(number)
    return str(asked[-1]["content"])


async def first_content(kit: GatewayKit, number: int) -> str:
    """Return the content of the first row of the model's n-th request."""
    return str((await kit.asked(number))[0]["content"])


# --- documents -----------------------------------------------------------------------------------


async def test_the_model_gets_the_path_of_a_document_and_can_read_it(tmp_path: Path) -> None:
    screen = FileScreen()
    async with ModelServer(reader) as model, gateway(tmp_path, model, screen) as kit:
        await screen.send(Text("what does it say?"), screen.offers("r1"))
        await screen.shows(CHAT, "it says: the notes of Monday")
        request = await last_content(kit, 1)
        path = PATH.search(request)
        assert path
        line = f"[File: {path[0]} (text/plain, 20 bytes)]"
        assert request == f"what does it say?\n{line}"
        after = await kit.asked(2)
        assert after[0] == (await kit.asked(1))[0]
    (file,) = received_files(tmp_path)
    assert file.name == "notes.txt"
    assert file.read_bytes() == NOTES
    assert screen.fetched == ["r1"]
    assert screen.violations() == []
    async with opened(tmp_path) as store:
        (session,) = await store.sessions.list()
        (row, *_) = await store.sessions.history(session.id)
        assert (row.content, row.files[0].fetched) == ("what does it say?", True)
        assert session.title == "what does it say?"


async def test_an_album_without_text_is_called_by_its_file_names(tmp_path: Path) -> None:
    screen = FileScreen()
    async with ModelServer(talkative) as model, gateway(tmp_path, model, screen) as kit:
        await screen.send(screen.offers("r1"), screen.offers("r2", b"other"))
        await screen.shows(CHAT, "echo: ")
        assert [line.partition(" ")[0] for line in (await last_content(kit, 1)).splitlines()] == [
            "[File:",
            "[File:",
        ]
        await screen.say(CHAT, "/undo")
        await screen.shows(CHAT, "“notes.txt, notes.txt”")
    assert [each.name for each in received_files(tmp_path)] == ["notes-2.txt", "notes.txt"]


async def test_missing_files_are_reported_to_the_model_and_the_person(tmp_path: Path) -> None:
    screen = FileScreen()
    small = MediaSettings(largest=Size(1000))
    async with (
        ModelServer(talkative) as model,
        gateway(tmp_path, model, screen, media=small) as kit,
    ):
        gone = File("gone.txt", "text/plain", ref="nowhere", size=5)
        await screen.send(Text("look"), screen.offers("r1", b"x" * 2_400), gone)
        await screen.shows(
            CHAT,
            "📎 Not received: notes.txt: too large (2.4 KB, at most 1 KB); gone.txt: There is no",
        )
        assert (await last_content(kit, 1)).splitlines() == [
            "look",
            "[File notes.txt is not available: too large (2.4 KB, at most 1 KB).]",
            "[File gone.txt is not available: There is no file nowhere.]",
        ]
        await screen.say(CHAT, "and now?")
        await screen.shows(CHAT, "echo: and now?")
        assert (await kit.asked(2))[0] == (await kit.asked(1))[0]
    assert screen.fetched == ["nowhere"]
    assert screen.violations() == []


async def test_editing_a_queued_message_replaces_its_files(tmp_path: Path) -> None:
    screen = FileScreen()
    async with ModelServer(talkative) as model, gateway(tmp_path, model, screen) as kit:
        await screen.say(CHAT, "hang")
        await kit.asked(1)
        await screen.send(Text("this"), screen.offers("r1"), event="e1")
        place = Address(screen.name, CHAT)
        other = screen.offers("r2", b"better", "better.txt")
        edit = InboundEdit(
            "e2",
            1,
            address=place,
            sender=DEFAULT_SENDER,
            message="e1",
            parts=(Text("this"), other),
            direct=True,
        )
        await screen.inject(edit)
        await screen.say(CHAT, "/new")
        assert "better.txt" in await last_content(kit, 2)
    assert screen.fetched == ["r2"]


async def test_a_file_in_a_steering_message_reaches_the_model_after_the_tool(
    tmp_path: Path,
) -> None:
    screen = FileScreen()
    begun, go = asyncio.Event(), asyncio.Event()

    @tool(risk=Risk.READ)
    async def ponder(context: ToolContext) -> str:  # noqa: ARG001 - required of every tool
        """Take some time.

        Args:
            context: Not part of the call.
        """
        begun.set()
        await go.wait()
        return "done"

    def script(body: dict[str, Any]) -> Script:
        called = any(each["role"] == "tool" for each in body["messages"])
        return words("seen") if called else "H C(0,c1,ponder,{}) F tool_calls D"

    steering = GatewaySettings(drain_seconds=0, busy="steer")
    async with (
        ModelServer(script) as model,
        gateway(tmp_path, model, screen, gateway=steering, tools=(ponder,)) as kit,
    ):
        await screen.say(CHAT, "think")
        async with asyncio.timeout(5):
            await begun.wait()
        await screen.send(Text("with this"), screen.offers("r1"))
        go.set()
        await screen.shows(CHAT, "seen")
        steered = await last_content(kit, 2)
        assert re.fullmatch(r"with this\n\[File: received/\S+ \(text/plain, 20 bytes\)\]", steered)
    async with opened(tmp_path) as store:
        (session,) = await store.sessions.list()
        rows = await store.sessions.history(session.id)
        assert [file.fetched for row in rows for file in row.files] == [True]
    assert len(model.requests) == 2
    assert screen.violations() == []


# --- pictures ------------------------------------------------------------------------------------


PIXEL = b"\x89PNG\r\n\x1a\n" + b"a pixel"


def pictures(row: dict[str, Any]) -> list[bytes]:
    """Return the decoded pictures in one row of a request."""
    content = row["content"]
    urls = [
        each["image_url"]["url"]
        for each in (content if isinstance(content, list) else [])
        if each["type"] == "image_url"
    ]
    return [base64.b64decode(url.removeprefix("data:image/png;base64,")) for url in urls]


def sees(body: dict[str, Any]) -> Script:
    return words(f"pictures: {len(pictures(body['messages'][-1]))}")


async def test_a_picture_is_shown_to_the_model_in_all_later_requests(tmp_path: Path) -> None:
    screen = FileScreen()
    async with ModelServer(sees) as model, gateway(tmp_path, model, screen) as kit:
        await screen.send(Text("what is it?"), screen.offers("r1", PIXEL, "dot.jpg", "image/jpeg"))
        await screen.shows(CHAT, "pictures: 1")
        (row,) = await kit.asked(1)
        assert pictures(row) == [PIXEL]
        assert "[Picture: received/" in row["content"][0]["text"]
        await screen.send(Text("and now?"))
        await screen.shows(CHAT, "pictures: 0")
        first, answer, second = await kit.asked(2)
        assert pictures(first) == [PIXEL]
        assert answer["content"] == "pictures: 1"
        assert pictures(second) == []
        assert screen.fetched == ["r1"]


async def test_a_file_with_a_false_picture_type_is_treated_as_a_file(tmp_path: Path) -> None:
    screen = FileScreen()
    async with ModelServer(sees) as model, gateway(tmp_path, model, screen) as kit:
        await screen.send(screen.offers("r1", b"%PDF-1.7", "dot.png", "image/png"))
        await screen.shows(CHAT, "pictures: 0")
        assert "[File: received/" in await last_content(kit, 1)


async def test_a_retry_after_a_crash_still_shows_the_picture(
    tmp_path: Path,
) -> None:
    screen = FileScreen()
    hangs = "H HANG"
    async with ModelServer(hangs) as model, gateway(tmp_path, model, screen) as kit:
        await screen.send(screen.offers("r1", PIXEL, "dot.png", "image/png"))
        await kit.asked(1)
        await kit.crash()
    async with ModelServer(sees) as model, gateway(tmp_path, model, screen) as kit:
        await screen.say(CHAT, "/retry")
        await screen.shows(CHAT, "pictures: 1")
        assert pictures((await kit.asked(1))[-1]) == [PIXEL]


# --- voice ---------------------------------------------------------------------------------------


@pytest.fixture
async def transcription() -> AsyncIterator[TranscriptionServer]:
    async with transcription_server() as server:
        yield server


async def test_a_voice_message_is_transcribed_once(
    tmp_path: Path, transcription: TranscriptionServer
) -> None:
    screen = FileScreen()
    voice = VoiceSettings(transcription_url=transcription.url)
    async with (
        ModelServer(talkative) as model,
        gateway(tmp_path, model, screen, voice=voice) as kit,
    ):
        await screen.send(screen.voice_message("r1"))
        await screen.shows(CHAT, "echo: [Voice message: “Buy milk and bread.”]")
        assert await last_content(kit, 1) == "[Voice message: “Buy milk and bread.”]"
        await screen.say(CHAT, "/retry")
        await kit.asked(2)
        assert await last_content(kit, 2) == "[Voice message: “Buy milk and bread.”]"
        await screen.until(CHAT, lambda shown: sum("echo" in each.text for each in shown) == 2)
        await screen.say(CHAT, "/undo")
        await screen.shows(CHAT, "Undone: I removed “Buy milk and bread.”")
    assert (len(transcription.asked), screen.fetched) == (1, ["r1"])
    async with opened(tmp_path) as store:
        (session,) = await store.sessions.list()
        assert session.title == "Buy milk and bread."
        assert {turn.request for turn in await store.turns.of_session(session.id)} == {
            "Buy milk and bread."
        }


async def test_the_queue_notice_quotes_the_transcript_of_a_voice_message(
    tmp_path: Path, transcription: TranscriptionServer
) -> None:
    screen = FileScreen()
    voice = VoiceSettings(transcription_url=transcription.url)
    async with (
        ModelServer(lambda _: 'H T"so far " HANG') as model,
        gateway(tmp_path, model, screen, voice=voice),
    ):
        await screen.send(screen.voice_message("r1"))
        await screen.shows(CHAT, "so far")
        await screen.say(CHAT, "more")
        await screen.shows(CHAT, "Working on “Buy milk and bread.”. 1 message is queued.")


async def test_without_a_transcription_service_the_model_is_told_so(tmp_path: Path) -> None:
    screen = FileScreen()
    async with ModelServer(talkative) as model, gateway(tmp_path, model, screen) as kit:
        await screen.send(screen.voice_message("r1"))
        await screen.shows(CHAT, "echo: ")
        asked = await last_content(kit, 1)
    path = PATH.search(asked)
    assert path
    assert asked == (
        f"[Voice message: {path[0]} (audio/ogg, 3 bytes); it cannot be transcribed, because "
        "no transcription service is configured]"
    )
    assert not any("📎" in each.text for each in screen.messages(CHAT))


# --- slow downloads -------------------------------------------------------------------------------


async def test_stop_cancels_a_hanging_download(tmp_path: Path) -> None:
    screen = FileScreen()
    async with ModelServer(talkative) as model, gateway(tmp_path, model, screen) as kit:
        screen.hangs.add("r1")
        await screen.send(screen.offers("r1"))
        await screen.wait_for_fetch("r1")
        began = time.perf_counter()
        await screen.say(CHAT, "/stop")
        await screen.shows(CHAT, "⏹ Stopped.")
        took = time.perf_counter() - began
        assert took < 1.0, f"{took:.3f} s"  # 300 ms, with a margin for a busy disk
        await screen.say(CHAT, "still there?")
        await screen.shows(CHAT, "echo: still there?")
        assert await kit.asked(1) == [{"role": "user", "content": "still there?"}]
        # Resuming the conversation downloads the missing file once.
        screen.hangs.clear()
        for number, text in ((2, "again?"), (3, "and now?")):
            await screen.say(CHAT, "/resume" if number == 2 else "and this")
            await screen.say(CHAT, text)
            await screen.shows(CHAT, f"echo: {text}")
            assert re.match(
                r"\[File: \S+ \(text/plain, 20 bytes\)\]", await first_content(kit, number)
            )
    assert screen.fetched == ["r1", "r1"]
    assert [each.name for each in received_files(tmp_path)] == ["notes.txt"]


async def test_ten_chats_continue_while_the_downloads_of_one_hang(tmp_path: Path) -> None:
    screen = FileScreen()
    async with ModelServer(talkative) as model, gateway(tmp_path, model, screen):
        screen.hangs |= {f"bad {number}" for number in range(20)}
        await screen.send(*(screen.offers(ref) for ref in sorted(screen.hangs)), chat="bad")
        await screen.wait_for_fetch("bad 0")
        async with asyncio.timeout(5):
            for number in range(10):
                chat = f"good {number}"
                await screen.send(Text("look"), screen.offers(chat), chat=chat)
            for number in range(10):
                await screen.shows(f"good {number}", "echo: look\n[File: ")
        await screen.say("bad", "/stop")
        await screen.shows("bad", "⏹ Stopped.")


async def test_a_slow_download_is_shown_in_the_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "FETCH_NOTICE_SECONDS", 0.05)
    screen = FileScreen()
    async with ModelServer(talkative) as model, gateway(tmp_path, model, screen):
        screen.hangs.add("r1")
        await screen.send(screen.offers("r1"))
        await screen.shows(CHAT, "📎 notes.txt")
        await screen.say(CHAT, "/stop")
        await screen.shows(CHAT, "⏹ Stopped.")
    assert not any("📎" in each.text for each in screen.messages(CHAT))


# --- interruptions -------------------------------------------------------------------------------


async def test_continue_after_a_crash_downloads_the_missing_file(
    tmp_path: Path,
) -> None:
    screen = FileScreen()
    screen.hangs.add("r1")
    async with ModelServer(reader) as model:
        async with gateway(tmp_path, model, screen) as kit:
            await screen.send(Text("read this"), screen.offers("r1"))
            await screen.wait_for_fetch("r1")
            await kit.crash()
        screen.hangs.clear()
        async with gateway(tmp_path, model, screen):
            told = await screen.shows(CHAT, "I was restarted while working on “read this”")
            (button,) = (each for each in told[-1].buttons if each.label == "Continue")
            await screen.press(CHAT, button.action)
            await screen.shows(CHAT, "it says: the notes of Monday")
    assert screen.fetched == ["r1", "r1"]
    assert [each.name for each in received_files(tmp_path)] == ["notes.txt"]


async def test_a_daemon_killed_during_a_download_answers_once_with_the_file(
    tmp_path: Path,
) -> None:
    gate = asyncio.Event()
    async with ModelServer(reader) as model, serving() as telegram:
        telegram.downloads.plan(Going(after=5, gate=gate))
        telegram.offer("ref1", NOTES)
        daemon = Daemon(
            tmp_path,
            "model.name=scripted",
            "gateway.stale_after=3650d",
            "sessions.on_interrupted=resume",
            'access.allow=["telegram:1001"]',
            f"model.base_url={model.url}",
            f"platforms.telegram.base_url={telegram.url}",
            env={"OPENAI_API_KEY": "sk-none", "TELEGRAM_BOT_TOKEN": TOKEN},
            warm=True,
        )
        async with daemon:
            telegram.say(1001, **telegram_message(Sent("document", NOTES, "n.txt"), "ref1"))
            await telegram.downloads.wait(1)
            await daemon.kill()
            gate.set()
            assert model.requests == []
            await daemon.start()
            await telegram.until(
                lambda: any("Monday" in each.markdown for each in telegram.messages(1001)), 15
            )
            assert await daemon.stop() == 0
        texts = [each.markdown for each in telegram.messages(1001)]
    assert sum("it says" in text for text in texts) == 1
    (file,) = received_files(tmp_path)
    assert (file.name, file.read_bytes()) == ("n.txt", NOTES)


async def test_old_received_files_are_removed_at_the_start(tmp_path: Path) -> None:
    screen = FileScreen()
    async with ModelServer(talkative) as model:
        async with gateway(tmp_path, model, screen):
            await screen.send(screen.offers("r1"))
            await screen.shows(CHAT, "echo: ")
        (file,) = received_files(tmp_path)
        month_ago = time.time() - 31 * 86400  # noqa: TID251
        os.utime(file, (month_ago, month_ago))
        async with gateway(tmp_path, model, screen):
            async with asyncio.timeout(5):
                while received_files(tmp_path):  # noqa: ASYNC110 - no event for changes on disk
                    await asyncio.sleep(0.01)


# --- several people ------------------------------------------------------------------------------


async def test_a_missing_file_is_not_fetched_in_the_turn_of_another_person(tmp_path: Path) -> None:
    screen = FileScreen()
    file = screen.offers("r1")
    screen.hangs.add("r1")
    chief, ann = Sender("9", "Chief"), Sender("1001", "Ann")

    async def say(sender: Sender, *parts: Part) -> None:
        await screen.inject(
            InboundMessage(
                id=screen._new_id(),
                at=screen._clock.now(),
                address=Address(screen.name, "room", "", "7"),
                sender=sender,
                parts=parts,
                addressed=True,
            )
        )

    async with (
        ModelServer(talkative) as model,
        gateway(tmp_path, model, screen, admins=("memory:9",)) as kit,
    ):
        await say(chief, Text("read this"), file)
        await screen.wait_for_fetch("r1")
        await say(chief, Text("/stop"))
        await screen.shows("room", "Stopped")
        await say(chief, Text("/resume"))
        await screen.shows("room", "Back in the earlier")
        screen.hangs.clear()
        await say(ann, Text("hello"))
        await screen.shows("room", "hello")
        assert screen.fetched == ["r1"]
        assert "notes.txt" in await first_content(kit, 1)
        await say(chief, Text("and now?"))
        await screen.shows("room", "and now?")
        assert screen.fetched == ["r1", "r1"]
    (found,) = received_files(tmp_path)
    assert found.parent.parent.parent.name == "memory%3A9"
