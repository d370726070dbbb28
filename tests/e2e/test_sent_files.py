"""Files that the agent sends to the chat, and the tool results that the model gets for them."""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from platforms.core.contract import Live, Op, Receipt, Upload
from tests.e2e.house import ME, House, Screen, gateway, talkative
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


async def tool_result(house: House) -> str:
    rows = [each for each in await house.asked(2) if each["role"] == "tool"]
    return str(rows[-1]["content"])


async def test_a_workspace_file_is_sent_with_its_caption(tmp_path: Path) -> None:
    (workspace(tmp_path) / "out").mkdir()
    (workspace(tmp_path) / "out" / "report.csv").write_text("a,b")
    async with (
        ModelServer(sending("out/report.csv", "The report")) as model,
        gateway(tmp_path, model, RecordingScreen()) as house,
    ):
        await house.screen.say(ME, "send it")
        messages = await house.screen.shows(ME, "echo: send it", "The report")
        assert sent(messages) == ["report.csv"]
        assert await tool_result(house) == "report.csv (3 bytes) was sent to the chat."
        assert isinstance(house.screen, RecordingScreen)
        assert house.screen.held == {"report.csv": b"a,b"}
        assert house.screen.violations() == []


async def test_later_changes_to_a_sent_file_are_not_sent(tmp_path: Path) -> None:
    file = workspace(tmp_path) / "report.csv"
    file.write_text("first")
    screen = RecordingScreen()
    screen.hold.clear()
    async with (
        ModelServer(sending("report.csv")) as model,
        gateway(tmp_path, model, screen) as house,
    ):
        await screen.say(ME, "send it")
        async with asyncio.timeout(8):
            await screen.reached.wait()
        file.write_text("second")
        screen.hold.set()
        await house.screen.shows(ME, "echo: send it")
    assert screen.held == {"report.csv": b"first"}


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
        gateway(tmp_path, model, RecordingScreen()) as house,
    ):
        await house.screen.say(ME, "send it")
        messages = await house.screen.shows(ME, "echo: send it")
        assert sent(messages) == []
        said = await tool_result(house)
        assert why in said or (made is link_out and "leads out" in said)
    assert not list((tmp_path / "outgoing").glob("*/*"))


async def test_an_undelivered_file_is_sent_once_after_a_restart(tmp_path: Path) -> None:
    (workspace(tmp_path) / "report.csv").write_text("a,b")
    screen = RecordingScreen()
    screen.hold.clear()
    async with (
        ModelServer(sending("report.csv")) as model,
        gateway(tmp_path, model, screen) as house,
    ):
        await screen.say(ME, "send it")
        async with asyncio.timeout(8):
            await screen.reached.wait()
        await house.crash()
    assert screen.held == {}
    later = RecordingScreen()
    async with ModelServer(talkative) as model, gateway(tmp_path, model, later) as house:
        messages = await later.until(ME, lambda all_: bool(sent(all_)))
        assert sent(messages) == ["report.csv"]
        assert later.held == {"report.csv": b"a,b"}
