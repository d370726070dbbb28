"""First start with only a bot token and a model key in the environment, up to a second person.

The settings given are the addresses of the fake services and one MCP server.
"""

import asyncio
import contextlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any, Self

from gateway.config.loader import read_environment
from sessions.values.clock import SystemClock
from tests.e2e.gateway_kit import talkative
from tests.fakes.model_script import Script
from tests.fakes.model_server import ModelServer
from tests.fakes.telegram.server import BOT_NAME, TOKEN, Shown, TelegramServer, serving

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
TOOLS = Path(__file__).parents[1] / "fakes" / "mcp_server.py"
PATIENCE = 45.0
ANN, BOB = 1001, 1002

CALLS = {
    "write": 'H C(0,c1,write_file,{"path":"notes/today.txt","content":"buy tea\\n"}) F tool_calls U D',
    "tell": 'H C(0,c2,send,{"to":"bob","text":"tea is here"}) F tool_calls U D',
}


def obedient(body: dict[str, Any]) -> Script:
    """Model script that calls the tool named by the first word, else echoes the message."""
    last = body["messages"][-1]
    word = str(last["content"]).split()[0] if last["role"] == "user" else ""
    return CALLS.get(word) or talkative(body)


class Started:
    """The installed program, run with defaults in an empty home folder."""

    def __init__(
        self, home: Path, telegram: TelegramServer, model: ModelServer, *, tools: bool = False
    ) -> None:
        passed_on = ("PATH", "COVERAGE", "LANG")
        self.home = home
        self._telegram = telegram
        self._env = {
            **{
                name: each
                for name, each in read_environment().items()
                if name.startswith(passed_on)
            },
            "HOME": str(home),
            "TELEGRAM_BOT_TOKEN": TOKEN,
            "OPENAI_API_KEY": "sk-none",
        }
        server = {"command": sys.executable, "args": [str(TOOLS), "stdio", str(self.effects_file)]}
        tables = ", ".join(f"{name} = {json.dumps(value)}" for name, value in server.items())
        self._sets = [
            "http.port=0",
            f"platforms.telegram.base_url={telegram.url}",
            f"model.base_url={model.url}",
        ]
        if tools:
            self._sets.append(f'mcp=[{{name = "post", {tables}}}]')
        self.printed: list[str] = []

    @property
    def effects_file(self) -> Path:
        return self.home / "effects"

    @property
    def files(self) -> dict[str, str]:
        """Content of the files in the workspace, by relative path."""
        state = self.home / ".local" / "share" / "holdfast" / "workspace"
        return {
            str(each.relative_to(state)): each.read_text()
            for each in state.rglob("*")
            if each.is_file()
        }

    @property
    def effects(self) -> list[str]:
        """Calls that the MCP server carried out, without their keys."""
        lines = self.effects_file.read_text().splitlines() if self.effects_file.exists() else []
        return [line.rpartition(" ")[0] for line in lines]

    async def __aenter__(self) -> Self:
        sets = [part for each in self._sets for part in ("--set", each)]
        screen, terminal = os.openpty()  # the link for the owner is printed only to a terminal
        self._process = await asyncio.create_subprocess_exec(
            *(HOLDFAST, "run", *sets), stdout=terminal, cwd=self.home, env=self._env
        )
        os.close(terminal)
        self._output = asyncio.StreamReader()
        self._screen, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._output), os.fdopen(screen, "rb", 0)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.terminate()
        await self._process.wait()
        self._screen.close()

    async def prints(self, pattern: str) -> str:
        """Wait for a line of output that matches; return the pattern's first group."""
        with contextlib.suppress(OSError):  # the program ended, and with it the terminal
            while line := (await self._output.readline()).decode():
                self.printed.append(line)
                if found := re.search(pattern, line):
                    return found[1]
        msg = f"the program ended without printing {pattern!r}: {self.printed}"
        raise AssertionError(msg)

    async def connects(self, server: str) -> None:
        """Wait for an MCP server; the start of the program does not wait for a slow one."""
        while any(f"MCP server {server}" in line for line in await self.run("status")):
            pass

    async def run(self, *words: str) -> list[str]:
        """Run another command of the program; return its output lines."""
        asked = await asyncio.create_subprocess_exec(
            *(HOLDFAST, *words), stdout=asyncio.subprocess.PIPE, cwd=self.home, env=self._env
        )
        said, _ = await asked.communicate()
        assert asked.returncode == 0
        return said.decode().splitlines()

    def say(self, person: int, text: str) -> None:
        self._telegram.say(person, text, user=person, date=SystemClock().now() // 1000)


def question(messages: list[Shown]) -> Shown:
    return next(each for each in messages if each.buttons)


async def test_first_start_leads_to_an_owner_with_tools_and_a_second_person(tmp_path: Path) -> None:
    async with ModelServer(obedient) as model, serving() as telegram, asyncio.timeout(PATIENCE):
        async with Started(tmp_path, telegram, model, tools=True) as daemon:
            code = await daemon.prints(rf"https://t\.me/{BOT_NAME}\?start=([A-Z0-9]{{8}}) ")
            daemon.say(ANN, f"/start {code}")
            await telegram.shows(ANN, "You are now the owner of this gateway")

            daemon.say(ANN, "hello")
            await telegram.shows(ANN, "echo: hello")

            daemon.say(ANN, "write it down")
            await telegram.shows(ANN, "echo: write it down")
            assert daemon.files == {f"telegram%3A{ANN}/notes/today.txt": "buy tea\n"}

            await daemon.connects("post")
            daemon.say(ANN, "tell bob")
            asked = question(await telegram.shows(ANN, "May I use **post_send**?"))
            assert '"to": "bob"' in asked.markdown
            assert daemon.effects == []
            allow, _ = asked.actions
            telegram.press(ANN, asked, allow)
            await telegram.shows(ANN, f"✅ Allowed by telegram:{ANN}.", "echo: tell bob")
            telegram.press(ANN, asked, allow)  # a repeated press has no effect
            await telegram.shows(ANN, "This question is already answered.")
            assert daemon.effects == ["send bob tea is here"]

            requests = len(model.requests)
            for text in ("hello", "write it down", "/status", "/approve", f"/start {code}"):
                daemon.say(BOB, text)
            await telegram.shows(BOB, "I don't know you yet", "This code is not valid")
            shown = "\n".join(each.markdown for each in telegram.messages(BOB))
            (pairing,) = set(re.findall(r"with this code: ([A-Z0-9]{8})", shown))
            assert "echo" not in shown
            assert len(model.requests) == requests
            await telegram.shows(ANN, f"(telegram:{BOB}) asks for access")

            assert await daemon.run("pair", "approve", pairing) == [
                f"telegram:{BOB} (Ada L.) now has access."
            ]
            await telegram.shows(BOB, "✅ You now have access.")
            daemon.say(BOB, "hello")
            await telegram.shows(BOB, "echo: hello")
            assert len(model.requests) == requests + 1
            assert set(daemon.files) == {f"telegram%3A{ANN}/notes/today.txt"}
            assert daemon.effects == ["send bob tea is here"]
        assert telegram.complaints() == []


async def test_a_new_claim_is_printed_as_a_link_to_the_bot(
    tmp_path: Path,
) -> None:
    async with (
        ModelServer(obedient) as model,
        serving() as telegram,
        asyncio.timeout(PATIENCE),
        Started(tmp_path, telegram, model) as daemon,
    ):
        old = await daemon.prints(rf"https://t\.me/{BOT_NAME}\?start=([A-Z0-9]{{8}}) ")
        line, link = await daemon.run("pair", "claim")
        code = line.removeprefix("claim ")
        assert link == f"https://t.me/{BOT_NAME}?start={code}"
        daemon.say(ANN, f"/start {old}")
        await telegram.shows(ANN, "This code is not valid")
        daemon.say(ANN, line)
        await telegram.shows(ANN, "You are now the owner of this gateway")
