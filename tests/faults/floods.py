"""Floods of messages and of text, and one person in another chat who is answered meanwhile.

400 strangers write to the bot, a member sends 150 commands in a group, and the model answers a
member with 20 MB in lines and in one line, and with 100 MB. The daemon is a process of its own. During each flood a person in a private chat asks once a
second; every answer must come within two seconds. `make floods` prints a table.
"""

import argparse
import asyncio
import contextlib
import re
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from tests.e2e.daemon import Daemon
from tests.fakes.dialects.requests import last_user_text
from tests.fakes.model_script import Head, Raw, Repeat, Script, body_of, ok, steps, text
from tests.fakes.model_server import ModelServer
from tests.fakes.telegram.server import TOKEN, TelegramServer, serving

LIMIT_SECONDS = 2.0
VICTIM, ADMIN, FLOODER, GROUP, FIRST_STRANGER = 1001, 1009, 1002, -100777, 5000
PATIENCE = 60.0
_REQUEST = re.compile(r"write (\d+) MB in (lines|one line)")
_LINES_PER_EVENT, _EVENTS = 60, 200  # of the part of a long answer that is repeated


class Flood(msgspec.Struct, frozen=True, kw_only=True):
    """A flood."""

    name: str
    messages: int
    start: Callable[[TelegramServer, int], None]  # with the number of messages


class FloodResult(msgspec.Struct, frozen=True, kw_only=True):
    """Observations of the person in the other chat and of the admin."""

    flood: Flood
    seconds: tuple[float, ...]  # from each question to its answer; `PATIENCE` if there was none
    longest_stall: float  # of the daemon's event loop, seen from outside
    megabytes: float  # the most that the daemon used
    admin_notices: int
    stop_seconds: float
    start_seconds: float  # of the next start, until the next answer

    @property
    def held(self) -> bool:
        """True if every question was answered in time."""
        return max(self.seconds) <= LIMIT_SECONDS


def strangers(server: TelegramServer, count: int) -> None:
    """Let `count` people without access write in private chats."""
    for number in range(count):
        stranger = FIRST_STRANGER + number
        server.say(stranger, "hello, who are you?", user=stranger)


def commands(server: TelegramServer, count: int) -> None:
    """Let a member send `count` commands in a group."""
    for _ in range(count):
        server.say(GROUP, "/whoami", user=FLOODER)


def long_answer(request: str) -> Callable[[TelegramServer, int], None]:
    """Return a flood in which a member asks for long answers."""

    def start(server: TelegramServer, count: int) -> None:
        for _ in range(count):
            server.say(FLOODER, request, user=FLOODER)

    return start


FLOODS = (
    Flood(name="strangers", messages=400, start=strangers),
    Flood(name="commands", messages=150, start=commands),
    Flood(name="20 MB answer", messages=1, start=long_answer("write 20 MB in lines")),
    Flood(name="20 MB in one line", messages=1, start=long_answer("write 20 MB in one line")),
    Flood(name="100 MB answer", messages=1, start=long_answer("write 100 MB in lines")),
)


def talker(body: dict[str, Any]) -> Script:
    """Answer questions at once, and requests to write with much text."""
    asked = last_user_text(body)
    if found := _REQUEST.search(asked):
        return long_text(float(found[1]), line_end="\n" if found[2] == "lines" else " ")
    return ok(f"that was {asked.rpartition('question ')[2]}.")


def long_text(megabytes: float, *, line_end: str = "\n") -> Script:
    """Return an answer of a size; the text repeats itself too rarely to be taken for a loop."""
    events = [
        "".join(
            f"Line {number}, with **bold** and `code` words and some more in it.{line_end}"
            for number in range(first, first + _LINES_PER_EVENT)
        )
        for first in range(0, _LINES_PER_EVENT * _EVENTS, _LINES_PER_EVENT)
    ]
    times = max(1, round(megabytes * 1e6 / sum(map(len, events))))
    pieces = [body_of((text(event),)).removesuffix(b"data: [DONE]\n\n") for event in events]
    return (Head(), Repeat(tuple(map(Raw, pieces)), times), *steps("F stop U D EOF"))


class Victim:
    """A person in a private chat who asks once a second."""

    def __init__(self, server: TelegramServer) -> None:
        self._server = server
        self._asked = 0
        self.seconds: list[float] = []

    async def ask_until(self, ended: asyncio.Event) -> None:
        """Ask once a second until `ended`, and record how long each answer took."""
        async with asyncio.TaskGroup() as answers:
            while not ended.is_set():
                answers.create_task(self.ask())
                await _wait_for(ended, 1.0)

    async def ask(self) -> float:
        """Ask one question; return the seconds until its answer."""
        self._asked += 1
        wanted = f"that was {self._asked}."
        began = time.monotonic()
        self._server.say(VICTIM, f"question {self._asked}", user=VICTIM)
        with contextlib.suppress(AssertionError):
            await self._server.until(
                lambda: any(wanted in shown for shown in self._latest()), PATIENCE
            )
        self.seconds.append(time.monotonic() - began)
        return self.seconds[-1]

    def _latest(self) -> list[str]:
        return [each.markdown for each in self._server.messages(VICTIM)[-20:]]


class Watch:
    """Observes the daemon from outside: its longest stall and the most memory it used."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self.longest_stall = 0.0
        self.megabytes = 0.0

    async def look_until(self, ended: asyncio.Event) -> None:
        """Ask for a sign of life all the time."""
        async with aiohttp.ClientSession() as http:
            while not ended.is_set():
                began = time.monotonic()
                async with http.get(f"{self._daemon.url}/livez") as response:
                    await response.read()
                self.longest_stall = max(self.longest_stall, time.monotonic() - began)
                self.megabytes = max(self.megabytes, resident_megabytes(self._daemon.pid))
                await asyncio.sleep(0.01)


def resident_megabytes(pid: int) -> float:
    """Return the memory that a process uses."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    return int(rollup.partition("Rss:")[2].split()[0]) / 1000


def floodable(home: Path, server: TelegramServer, model: ModelServer) -> Daemon:
    """Return a daemon with a victim, a flooder and an admin; not started yet."""
    return Daemon(
        home,
        "model.name=scripted",
        f"model.base_url={model.url}",
        "gateway.stale_after=3650d",
        f"platforms.telegram.token={TOKEN}",
        f"platforms.telegram.base_url={server.url}",
        "platforms.telegram.require_mention=false",
        f'access.allow=["telegram:{VICTIM}", "telegram:{FLOODER}"]',
        f'access.admins=["telegram:{ADMIN}"]',
        f'limits.users={{"telegram:{VICTIM}" = {{messages_per_minute = 10000}}}}',
        env={"OPENAI_API_KEY": "sk-none"},
    )


@contextlib.asynccontextmanager
async def _until_left(ended: asyncio.Event) -> AsyncIterator[None]:
    try:
        yield
    finally:
        ended.set()


async def play(flood: Flood, seconds: float) -> FloodResult:
    """Let one flood go over a daemon for some seconds, stop the daemon and start it again."""
    ended = asyncio.Event()
    with tempfile.TemporaryDirectory() as home:
        async with serving(enforce=True) as server, ModelServer(talker) as model:
            daemon = floodable(Path(home), server, model)
            victim, watch = Victim(server), Watch(daemon)
            async with daemon:
                await victim.ask()
                victim.seconds.clear()
                async with asyncio.TaskGroup() as group, _until_left(ended):
                    group.create_task(victim.ask_until(ended))
                    group.create_task(watch.look_until(ended))
                    flood.start(server, flood.messages)
                    await asyncio.sleep(seconds)
                notices = len(server.messages(ADMIN))
                times = tuple(victim.seconds)
                began = time.monotonic()
                await daemon.stop()
                stopped = time.monotonic()
                await daemon.start()
                await victim.ask()
                answered = time.monotonic()
    return FloodResult(
        flood=flood,
        seconds=times,
        longest_stall=watch.longest_stall,
        megabytes=watch.megabytes,
        admin_notices=notices,
        stop_seconds=stopped - began,
        start_seconds=answered - stopped,
    )


async def _wait_for(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def row(result: FloodResult) -> str:
    """Return the table's row of a flood."""
    times = sorted(result.seconds)
    p99 = times[min(len(times) - 1, round(0.99 * len(times)))]
    return (
        f"{result.flood.name:<20} {result.flood.messages:>8} {statistics.median(times):>7.2f} "
        f"{p99:>7.2f} {times[-1]:>7.2f} {result.longest_stall:>7.2f} {result.megabytes:>6.0f} "
        f"{result.admin_notices:>7} {result.stop_seconds:>6.1f} {result.start_seconds:>6.1f}  "
        f"{'pass' if result.held else 'FAIL'}\n"
    )


HEADER = (
    f"{'flood':<20} {'messages':>8} {'p50 s':>7} {'p99 s':>7} {'max s':>7} {'stall s':>7} "
    f"{'MB':>6} {'notices':>7} {'stop s':>6} {'start s':>6}\n"
)


async def run(names: Sequence[str], seconds: float) -> bool:
    """Play the floods, and print a row for each; return True if all passed."""
    sys.stdout.write(HEADER)
    held = True
    for flood in FLOODS:
        if names and flood.name not in names:
            continue
        result = await play(flood, seconds)
        sys.stdout.write(row(result))
        sys.stdout.flush()
        held = held and result.held
    return held


def main() -> int:
    """Run the floods; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="name of a flood")
    parser.add_argument("--seconds", type=float, default=30.0, help="duration of each flood")
    given = parser.parse_args()
    return 0 if asyncio.run(run(given.only, given.seconds)) else 1


if __name__ == "__main__":
    sys.exit(main())
