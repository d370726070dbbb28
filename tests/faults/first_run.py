"""From nothing to the first reply in Telegram: how many commands, and how long.

`python -m tests.faults.first_run` builds the wheel, installs it into a new environment, sets it up at
a terminal and once more by flags alone, and has the owner's first messages arrive at the small
Telegram. The part without the installation runs with the tests.
"""

import argparse
import asyncio
import contextlib
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from gateway.config import credentials
from gateway.config.loader import read_environment
from sessions.values.clock import SystemClock
from tests.fakes.dialects.requests import last_user_text
from tests.fakes.model_script import Script, calls, words
from tests.fakes.model_server import ModelServer
from tests.fakes.seat import PATIENCE, Seat, seated
from tests.fakes.telegram.server import BOT_NAME, TOKEN, TelegramServer, serving

ROOT = Path(__file__).parents[2]
MOST_COMMANDS = 3
MOST_SECONDS = 60.0
OWNER = 1001

_LINK = rf"https://t\.me/{BOT_NAME}\?start=([A-Z0-9]{{8}}) "


def model(body: dict[str, Any]) -> Script:
    """Says again what it was told, and calls the tool when it is asked to."""
    said = last_user_text(body)
    if "Call the tool report_word" in said:
        return calls(("c1", "report_word", '{"word": "ready"}'))
    return words(f"echo: {said}")


class Newcomer:
    """Somebody with a fresh machine and a token; `program` is what they have installed."""

    def __init__(self, program: Path, home: Path, telegram: TelegramServer, service: str) -> None:
        self.program = program
        self.home = home
        self.telegram = telegram
        self.config = home / ".config/holdfast/holdfast.toml"
        # Without one of their own, the secrets of this machine's service would count for root.
        self.secrets = home / credentials.USER_FOLDER
        self.secrets.mkdir(parents=True)
        passed_on = ("PATH", "COVERAGE", "LANG")
        environ = {
            name: each for name, each in read_environment().items() if name.startswith(passed_on)
        }
        self.env: Mapping[str, str] = {
            **environ,
            "HOME": str(home),
            "HOLDFAST_CONFIG": str(self.config),  # or root's would be the machine's
            "HOLDFAST_HTTP__PORT": "0",
            "HOLDFAST_PLATFORMS__TELEGRAM__BASE_URL": telegram.url,
            "OPENAI_BASE_URL": service,
        }

    @contextlib.asynccontextmanager
    async def at_terminal(self, *command: str) -> AsyncIterator[Seat]:
        """Give a command at a terminal."""
        async with seated(self.program, *command, env=self.env, folder=self.home) as seat:
            yield seat

    async def set_up(self, *, start: bool) -> float:
        """Answer the wizard; with `start` the gateway runs in the same terminal until it replied."""
        began = time.monotonic()
        async with self.at_terminal("setup") as seat:
            await seat.sees(r"Platforms .*\[telegram\]: ")
            seat.types("\n")
            await seat.sees("Telegram bot token: $")
            half = len(TOKEN) // 2
            seat.types(f"  {TOKEN[:half]}\n{TOKEN[half:]} \n")  # as a narrow window breaks it
            await seat.sees(f"✓ This is @{BOT_NAME}")
            await seat.sees("✓ openai/scripted answers")
            await self.reaches_last_question(seat)
            seat.types("\n" if start else "no\n")
            await seat.sees(r"✓ .*holdfast\.toml is written and valid")
            if start:
                await self.becomes_owner(seat)
                await seat.sees(rf"✓ You are the owner: Ada L\. \(telegram:{OWNER}\)")
                await self.is_answered()
                seat.types("\x03")
            else:
                await seat.sees("Start Holdfast with: .*holdfast run")
            assert await seat.ends() == 0, seat.screen
            assert TOKEN[:half] not in seat.screen, seat.screen
        return time.monotonic() - began

    async def reaches_last_question(self, seat: Seat) -> None:
        """Add no MCP servers, which are offered where npx or uvx is installed."""
        seen = await seat.sees("MCP servers to add|Start it now in this terminal")
        if seen[0].startswith("MCP"):
            seat.types("\n")
            await seat.sees("Start it now in this terminal")

    async def set_up_by_flags(self) -> float:
        """Do the same as a script does."""
        began = time.monotonic()
        flags = ("--non-interactive", "--telegram-token", "-", "--no-service", "--json")
        said = await self.gives("setup", *flags, said=TOKEN)
        assert f'"handle": "@{BOT_NAME}"' in said, said
        return time.monotonic() - began

    async def runs_it(self) -> float:
        """Start it, become the owner and be answered."""
        began = time.monotonic()
        async with self.at_terminal("run") as seat:
            await self.becomes_owner(seat)
            await self.is_answered()
            seat.types("\x03")
            assert await seat.ends() == 0, seat.screen
        return time.monotonic() - began

    async def becomes_owner(self, seat: Seat) -> None:
        """Open the link and press Start."""
        code = (await seat.sees(_LINK))[1]
        self.telegram.say(OWNER, f"/start {code}", date=SystemClock().now() // 1000)
        await self._shown("You are now the owner of this gateway")

    async def is_answered(self) -> None:
        """Say something and read the reply."""
        self.telegram.say(OWNER, "hello", date=SystemClock().now() // 1000)
        await self._shown("echo: hello")

    async def gives(self, *command: str, said: str = "") -> str:
        """Give a command as a script does; it must work."""
        process = await asyncio.create_subprocess_exec(
            *(str(self.program), *command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(self.env),
            cwd=self.home,
        )
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate(said.encode())
        assert process.returncode == 0, err.decode()
        return out.decode()

    async def _shown(self, text: str) -> None:
        def is_there() -> bool:
            return any(text in shown for shown in self.telegram.screen(OWNER))

        await self.telegram.until(is_there, PATIENCE)


@contextlib.asynccontextmanager
async def newcomer(program: Path, home: Path) -> AsyncIterator[Newcomer]:
    """Have somebody with nothing, a Telegram and a model."""
    async with serving() as telegram, ModelServer(model) as service:
        yield Newcomer(program, home, telegram, service.url)


# --- with the installation -----------------------------------------------------------------------


async def wheel(folder: Path) -> Path:
    """Build what people install."""
    await _done(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    return _only_wheel(folder)


def _only_wheel(folder: Path) -> Path:
    (built,) = folder.glob("*.whl")
    return built


async def install(built: Path, folder: Path) -> float:
    """Install it into an environment of its own; gives the seconds that took."""
    began = time.monotonic()
    await _done(sys.executable, "-m", "venv", folder)
    pip = (folder / "bin/pip", "--disable-pip-version-check", "install", "-qq")
    await _done(*pip, f"{built}[telegram]")
    return time.monotonic() - began


async def _done(*command: object) -> None:
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()


async def walk(built: Path, place: Path, *, at_terminal: bool) -> bool:
    """Take the whole way once, and print what each command took."""
    home = _made(place / "home")
    program = place / "venv/bin/holdfast"
    steps = {"pip install": await install(built, place / "venv")}
    async with newcomer(program, home) as person:
        if at_terminal:
            steps["holdfast setup"] = await person.set_up(start=False)
        else:
            steps["holdfast setup --non-interactive"] = await person.set_up_by_flags()
        unit = await person.gives("service", "install", "--user", "--dry-run")
        assert re.search("(?m)^ *Type=notify$", unit), unit
        steps["holdfast run, up to the first reply"] = await person.runs_it()
    whole = sum(steps.values())
    for name, seconds in steps.items():
        sys.stdout.write(f"  {seconds:5.1f} s  {name}\n")
    well = len(steps) <= MOST_COMMANDS and whole < MOST_SECONDS
    sys.stdout.write(
        f"  {whole:5.1f} s  {len(steps)} commands: {'ok' if well else 'NOT OK'} "
        f"(at most {MOST_COMMANDS}, {MOST_SECONDS:g} s)\n"
    )
    sys.stdout.flush()
    return well


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


async def run() -> bool:
    """Take both ways; before, once for the cache of packages."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        built = await wheel(folder)
        await install(built, folder / "warm")
        sys.stdout.write("At a terminal, with a warm cache of packages:\n")
        fine = await walk(built, folder / "terminal", at_terminal=True)
        sys.stdout.write("By flags alone:\n")
        return await walk(built, folder / "flags", at_terminal=False) and fine


def main() -> None:
    """See the module."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    sys.exit(0 if asyncio.run(run()) else 1)


if __name__ == "__main__":
    main()
