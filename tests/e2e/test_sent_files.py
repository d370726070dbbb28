"""Files that the agent sends to the chat, and the tool results that the model gets for them."""

import asyncio
import gzip
import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from platforms.core.contract import Live, Op, Receipt, Upload
from tests.e2e.gateway_kit import ME, GatewayKit, Screen, gateway, talkative
from tests.fakes.memory import VisibleMessage
from tests.fakes.model_script import Script, calls
from tests.fakes.model_server import ModelServer


class RecordingScreen(Screen):
    """Screen that records the content of each file at the moment of sending."""

    def __init__(self) -> None:
        super().__init__(live=Live.EDIT, live_interval=0.01, burst=1000)
        self.held: dict[str, bytes] = {}
        self.hold = asyncio.Event()
        self.hold.set()
        self.reached = asyncio.Event()

    async def deliver(self, op: Op) -> Receipt:
        if isinstance(op, Upload):
            self.reached.set()
            await self.hold.wait()
            self.held[op.name] = await asyncio.to_thread(Path(op.path).read_bytes)
        return await super().deliver(op)


def sending(path: str, caption: str = "") -> Callable[[dict[str, object]], Script]:
    """Return a model script that sends a file, then answers."""
    arguments = json.dumps({"path": path} | ({"caption": caption} if caption else {}))
    left = iter([calls(("c1", "send_file", arguments))])

    def answer(body: dict[str, object]) -> Script:
        return next(left, None) or talkative(body)

    return answer


def workspace(home: Path) -> Path:
    folder = home / "workspace" / f"memory%3A{ME}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def sent(messages: list[VisibleMessage]) -> list[str]:
    return [each.file for each in messages if each.file]


async def tool_result(kit: GatewayKit) -> str:
    rows = [each for each in await kit.asked(2) if each["role"] == "tool"]
    return str(rows[-1]["content"])


async def test_a_workspace_file_is_sent_with_its_caption(tmp_path: Path) -> None:
    (workspace(tmp_path) / "out").mkdir()
    (workspace(tmp_path) / "out" / "report.csv").write_text("a,b")
    async with (
        ModelServer(sending("out/report.csv", "The report")) as model,
        gateway(tmp_path, model, RecordingScreen()) as kit,
    ):
        await kit.screen.say(ME, "send it")
        messages = await kit.screen.shows(ME, "echo: send it", "The report")
        assert sent(messages) == ["report.csv"]
        assert await tool_result(kit) == "report.csv (3 bytes) was sent to the chat."
        assert isinstance(kit.screen, RecordingScreen)
        assert kit.screen.held == {"report.csv": b"a,b"}
        assert kit.screen.violations() == []


@pytest.mark.parametrize("name", [".part", ".other-part"])
async def test_a_file_named_like_a_partial_copy_is_sent(tmp_path: Path, name: str) -> None:
    (workspace(tmp_path) / name).write_text("a,b")
    async with (
        ModelServer(sending(name, "The report")) as model,
        gateway(tmp_path, model, RecordingScreen()) as kit,
    ):
        await kit.screen.say(ME, "send it")
        messages = await kit.screen.shows(ME, "echo: send it")
        assert sent(messages) == [name]


async def test_later_changes_to_a_sent_file_are_not_sent(tmp_path: Path) -> None:
    file = workspace(tmp_path) / "report.csv"
    file.write_text("first")
    screen = RecordingScreen()
    screen.hold.clear()
    async with (
        ModelServer(sending("report.csv")) as model,
        gateway(tmp_path, model, screen) as kit,
    ):
        await screen.say(ME, "send it")
        async with asyncio.timeout(8):
            await screen.reached.wait()
        file.write_text("second")
        screen.hold.set()
        await kit.screen.shows(ME, "echo: send it")
    assert screen.held == {"report.csv": b"first"}


KEY = "sk-" + "a1b2c3d4" * 4


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
async def test_secrets_in_a_sent_text_file_are_masked(tmp_path: Path, encoding: str) -> None:
    text = f"Grüße\nOPENAI_API_KEY={KEY}\n".encode(encoding)
    (workspace(tmp_path) / "notes.env").write_bytes(text)
    screen = RecordingScreen()
    async with (
        ModelServer(sending("notes.env")) as model,
        gateway(tmp_path, model, screen) as kit,
    ):
        await screen.say(ME, "send it")
        await screen.shows(ME, "echo: send it")
        assert "Passwords and keys in the file were replaced by ***." in await tool_result(kit)
    assert screen.held == {"notes.env": text.replace(KEY.encode(), b"***")}
    assert (workspace(tmp_path) / "notes.env").read_bytes() == text


def zipped(**members: str) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, text in members.items():
            packed.writestr(name.replace("_", "."), text)
    return archive.getvalue()


def word_text(*runs: str) -> str:
    """Return a Word text; Word splits words into runs."""
    return "".join(f"<w:r><w:t>{run}</w:t></w:r>" for run in runs)


NOT_TEXT = {
    "data.bin": b"\x00\x01" + KEY.encode(),
    "utf16.txt": f"KEY={KEY}".encode("utf-16"),
    "a.zip": zipped(a_txt="nothing", config_env=f"KEY={KEY}"),
    "letter.docx": zipped(document_xml=word_text("It is ", KEY[:9], KEY[9:])),
    "log.gz": gzip.compress(f"KEY={KEY}".encode()),
    "page.pdf": b"%PDF-1.7\n(" + KEY.encode() + b") Tj",
}


@pytest.mark.parametrize("name", NOT_TEXT)
async def test_a_file_with_a_secret_that_cannot_be_masked_is_not_sent(
    tmp_path: Path, name: str
) -> None:
    (workspace(tmp_path) / name).write_bytes(NOT_TEXT[name])
    screen = RecordingScreen()
    async with ModelServer(sending(name)) as model, gateway(tmp_path, model, screen) as kit:
        await screen.say(ME, "send it")
        await screen.shows(ME, "echo: send it")
        result = await tool_result(kit)
    assert result.startswith(f"Nothing was sent: {name} contains a password or key")
    assert ("in config.env" in result) == (name == "a.zip")
    assert screen.held == {}
    assert not [*(tmp_path / "outgoing").rglob(name)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("data.bin", bytes(range(256)) * 10_000),
        ("a.zip", zipped(a_txt="nothing")),
        ("broken.zip", zipped(a_txt="nothing")[:-9]),
        ("broken.gz", gzip.compress(b"nothing")[:-9]),
    ],
)
async def test_a_sent_file_without_secrets_that_is_no_text_stays_as_it_is(
    tmp_path: Path, name: str, content: bytes
) -> None:
    (workspace(tmp_path) / name).write_bytes(content)
    screen = RecordingScreen()
    async with ModelServer(sending(name)) as model, gateway(tmp_path, model, screen):
        await screen.say(ME, "send it")
        await screen.shows(ME, "echo: send it")
    assert screen.held == {name: content}


async def test_a_secret_in_a_tool_result_does_not_reach_the_model(tmp_path: Path) -> None:
    (workspace(tmp_path) / "notes.env").write_text(f"OPENAI_API_KEY={KEY}")
    left = iter([calls(("c1", "read_file", json.dumps({"path": "notes.env"})))])
    async with (
        ModelServer(lambda body: next(left, None) or talkative(body)) as model,
        gateway(tmp_path, model, RecordingScreen()) as kit,
    ):
        await kit.screen.say(ME, "read it")
        await kit.screen.shows(ME, "echo: read it")
        result = await tool_result(kit)
    assert "OPENAI_API_KEY=***" in result
    assert KEY not in result


def outside(home: Path) -> None:
    (home / "secret.txt").write_text("secret")
    workspace(home)


def link_out(home: Path) -> None:
    outside(home)
    (workspace(home) / "link.txt").symlink_to(home / "secret.txt")


def folder(home: Path) -> None:
    (workspace(home) / "folder").mkdir()


def empty(home: Path) -> None:
    (workspace(home) / "empty").touch()


def large(home: Path) -> None:
    with (workspace(home) / "large").open("wb") as file:
        file.truncate(10_000_001)


def pipe(home: Path) -> None:
    os.mkfifo(workspace(home) / "pipe")


@pytest.mark.parametrize(
    ("made", "path", "why"),
    [
        (outside, "../../secret.txt", "must not contain '..'"),
        (outside, "/etc/passwd", "leads out of the workspace"),
        (link_out, "link.txt", "link"),
        (folder, "folder", "is a folder"),
        (empty, "empty", "is empty"),
        (large, "large", "accepts at most 10 MB"),
        (pipe, "pipe", "not a regular file"),
        (folder, "missing", "There is no 'missing'"),
    ],
)
async def test_a_refused_file_is_reported_to_the_model_and_not_sent(
    tmp_path: Path, made: Callable[[Path], None], path: str, why: str
) -> None:
    made(tmp_path)
    async with (
        ModelServer(sending(path)) as model,
        gateway(tmp_path, model, RecordingScreen()) as kit,
    ):
        await kit.screen.say(ME, "send it")
        messages = await kit.screen.shows(ME, "echo: send it")
        assert sent(messages) == []
        said = await tool_result(kit)
        assert why in said or (made is link_out and "leads out" in said)
    assert not list((tmp_path / "outgoing").glob("*/*"))


async def test_an_undelivered_file_is_sent_once_after_a_restart(tmp_path: Path) -> None:
    (workspace(tmp_path) / "report.csv").write_text("a,b")
    screen = RecordingScreen()
    screen.hold.clear()
    async with (
        ModelServer(sending("report.csv")) as model,
        gateway(tmp_path, model, screen) as kit,
    ):
        await screen.say(ME, "send it")
        async with asyncio.timeout(8):
            await screen.reached.wait()
        await kit.crash()
    assert screen.held == {}
    later = RecordingScreen()
    async with ModelServer(talkative) as model, gateway(tmp_path, model, later) as kit:
        messages = await later.until(ME, lambda all_: bool(sent(all_)))
        assert sent(messages) == ["report.csv"]
        assert later.held == {"report.csv": b"a,b"}


async def test_a_secret_that_only_markdown_draws_is_not_shown(tmp_path: Path) -> None:
    hidden = f"{KEY[:10]}**{KEY[10:]}**"
    async with (
        ModelServer(sending("a.txt", f"The key: {hidden}")) as model,
        gateway(tmp_path, model, RecordingScreen()) as kit,
    ):
        (workspace(tmp_path) / "a.txt").write_text("a")
        await kit.screen.say(ME, "send it")
        messages = await kit.screen.shows(ME, "echo: send it", "The key: ")
    assert any("The key: \\*\\*\\*" in each.text for each in messages)
    assert hidden not in str(messages)
