"""A day of life in ten minutes: two hundred people on three platforms, and everything that happens.

In the first third the daemon is stopped and killed again and again, then one process lives through.
It begins with a rush, in which all ask at once; in the second half it can be seen whether what the
process keeps grows beyond what that took. All the time connections break off, calls fail, are
refused as too many or are cut after they were carried out, and the model breaks off, too. Each
question must be answered, and none twice but for copies that say so. `make soak` is the long form;
it wants an idle machine.
"""

import argparse
import asyncio
import contextlib
import gc
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from gateway.http import api_key
from tests.e2e.all_platforms import ThreePlatforms, daemon_in, three_platforms
from tests.e2e.chat_users import ChatUsers, OnDiscord, OnSlack, OnTelegram
from tests.e2e.daemon import Daemon
from tests.fakes.dialects.requests import last_user_text
from tests.fakes.discord import server as discord
from tests.fakes.model_script import Script, words
from tests.fakes.model_server import ModelServer
from tests.fakes.slack import server as slack
from tests.fakes.telegram import faults as telegram

MEGABYTES_FOR_10_000 = 1.0
LAG = 0.05
OWN_DELAY = 0.5  # seconds; else what is counted here says nothing about the daemon
MARK = "duplicate"
MINUTE = 61.0  # for so long a platform counts
PATIENCE = 200.0  # for one answer, with kills and waits of a platform in between

_ASKED = re.compile(r"question (\d+-\d+)")
_ANSWERED = re.compile(r"that was (\d+-\d+)\.")
_LAGS = re.compile(r'^holdfast_loop_lag_seconds_bucket\{le="([^"]+)"\} (\S+)$', re.MULTILINE)
_METRIC = r"^{}(?:\{{\}})? (\S+)$"


class Plan(msgspec.Struct, frozen=True):
    """How much of everything."""

    people: int = 200
    turns: int = 20_000
    seconds: float = 600.0
    restart_every: float = 30.0
    trouble_every: float = 4.0
    seed: int = 1
    home: str = ""  # kept, to be looked at; else one of its own


class Sample(msgspec.Struct, frozen=True):
    """How the process stood at a moment."""

    turns: int  # of all that were answered
    megabytes: float
    files: int
    tasks: int


class Model:
    """Answers a question; now and then slowly, in pieces, or not at the first try."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._tried: set[str] = set()

    def __call__(self, body: dict[str, Any]) -> Script:
        asked = _ASKED.findall(last_user_text(body))
        if not asked:  # it is asked for a summary, or to go on
            asked = _ASKED.findall(str(body["messages"])[-20_000:]) or ["0-0"]
        answer = f"Some words about it, and **more** of them: that was {asked[-1]}."
        dice = self._chance.random()
        if dice > 0.04 or asked[-1] in self._tried:
            return words(answer, 0.1 if dice > 0.9 else 0.0)
        self._tried.add(asked[-1])
        if dice < 0.01:
            return "S500"
        return f'H T"{answer[:20]}" {"RST" if dice < 0.025 else "EOF"}'


class Person:
    """Somebody who asks, reads the answer, and asks again."""

    def __init__(self, chat_users: ChatUsers, number: int, at: int, chance: random.Random) -> None:
        self.chat_users, self.number = chat_users, number
        self._name = f"{at + 1}{number:03d}"
        self._chance = chance
        self.asked: list[str] = []

    async def live(
        self, pause: float, rush: asyncio.Event, over: asyncio.Event, answered: Counter[str]
    ) -> None:
        while not over.is_set():
            began, early = time.monotonic(), not rush.is_set()
            await self._ask()
            answered[self.chat_users.platform] += 1
            rest = pause * self._chance.uniform(0.6, 1.4) - (time.monotonic() - began)
            if rest > 0:
                await _either(rush if early else over, rest)

    async def _ask(self) -> None:
        if self._chance.random() < 0.05:
            await self.chat_users.say(
                self.number, "/new" if self.chat_users.platform != "slack" else "!new"
            )
        token = f"{self._name}-{len(self.asked) + 1}"
        self.asked.append(token)
        await self.chat_users.say(self.number, f"question {token}")
        wanted = f"that was {token}."
        try:
            async with asyncio.timeout(PATIENCE):
                while True:  # whoever looks at every change of two hundred chats does nothing else
                    if any(wanted in text for text in self.chat_users.latest(self.number)):
                        return
                    await asyncio.sleep(0.1)
        except TimeoutError:
            seen = self.chat_users.latest(self.number)
            msg = f"{self.chat_users.platform} {token} was not answered; what is seen: {seen}"
            raise AssertionError(msg) from None

    def faults(self) -> list[str]:
        """What is wrong with what this person sees in the end."""
        shown = self.chat_users.shown(self.number)
        copies = Counter(token for text in shown for token in _ANSWERED.findall(text))
        marked = Counter(
            token for text in shown if MARK in text for token in _ANSWERED.findall(text)
        )
        where = f"{self.chat_users.platform} {self._name}"
        return [
            f"{where}: {token} is answered {copies[token]} times, {marked[token]} of them marked"
            for token in self.asked
            if not 1 <= copies[token] <= 1 + marked[token]
        ]


class Watch:
    """Reads how the process stands, and what it says of its loop."""

    def __init__(self, answered: Counter[str]) -> None:
        self._answered = answered
        self._lags: Counter[str] = Counter()
        self._now: dict[str, float] = {}
        self.samples: list[Sample] = []

    async def look(self, daemon: Daemon, http: aiohttp.ClientSession) -> None:
        key = api_key.key_path(daemon.home).read_text(encoding="ascii").strip()
        headers = {"Authorization": f"Bearer {key}"}
        async with http.get(f"{daemon.url}/metrics", headers=headers) as response:
            page = await response.text()
        self.samples.append(
            Sample(
                self._answered.total(),
                _read(page, "holdfast_process_resident_memory_bytes") / 1e6,
                int(_read(page, "holdfast_process_open_fds")),
                int(_read(page, "holdfast_tasks")),
            )
        )
        self._now = {bound: float(count) for bound, count in _LAGS.findall(page)}

    def ended(self) -> None:
        """The process is gone; what it counted is kept."""
        self._lags.update(self._now)
        self._now = {}

    def late(self) -> float:
        """The share of looks at which the loop was later than it may be."""
        return 1 - self._lags[str(LAG)] / self._lags["+Inf"]


def _read(page: str, name: str) -> float:
    found = re.search(_METRIC.format(name), page, re.MULTILINE)
    assert found, f"{name} is not on the page"
    return float(found[1])


def slope(samples: Sequence[Sample]) -> float:
    """Megabytes for each 10,000 turns, by the straight line that fits best."""
    turns = [each.turns for each in samples]
    middle = sum(turns) / len(turns)
    high = sum(each.megabytes for each in samples) / len(samples)
    above = sum((each.turns - middle) * (each.megabytes - high) for each in samples)
    spread = sum((each - middle) ** 2 for each in turns)
    return 10_000 * above / spread if spread else 0.0


async def _either(over: asyncio.Event, seconds: float) -> None:
    """Wait until it is over, or so long."""
    try:
        async with asyncio.timeout(seconds):
            await over.wait()
    except TimeoutError:
        pass


async def trouble(
    place: ThreePlatforms, every: float, over: asyncio.Event, chance: random.Random
) -> None:
    """Let something go wrong, again and again."""
    on_telegram, on_discord, on_slack = place.people.values()
    assert isinstance(on_telegram, OnTelegram)
    assert isinstance(on_discord, OnDiscord)
    assert isinstance(on_slack, OnSlack)

    async def cut_telegram() -> None:
        on_telegram.server.cut_polls(politely=chance.random() < 0.5)

    async def fail_telegram() -> None:
        kinds = (
            telegram.too_many(1),
            telegram.failed(502, "Bad Gateway"),
            telegram.cut_before(),
            telegram.cut_after(),
        )
        on_telegram.server.fail("sendMessage", chance.choice(kinds))

    async def cut_discord() -> None:
        await (
            on_discord.server.cut()
            if chance.random() < 0.5
            else on_discord.server.ask_to_reconnect()
        )

    async def fail_discord() -> None:
        kinds = (
            discord.Fault(status=500),
            discord.Fault(cut_before=True),
            discord.Fault(cut_after=True),
        )
        on_discord.server.fail("POST message", chance.choice(kinds))

    async def cut_slack() -> None:
        if chance.random() < 0.5:
            on_slack.server.cut()
        else:
            await on_slack.server.ask_to_reconnect()

    async def fail_slack() -> None:
        kinds = (
            slack.rate_limited(1),
            slack.Fault(status=500),
            slack.Fault(drop="before"),
            slack.Fault(drop="after"),
        )
        on_slack.server.fail("chat.postMessage", chance.choice(kinds))

    while not over.is_set():
        await _either(over, every * chance.uniform(0.5, 1.5))
        cuts = (cut_telegram, cut_discord, cut_slack)
        fails = (fail_telegram, fail_discord, fail_slack)
        await chance.choice(cuts if chance.random() < 0.25 else fails)()


def spare_the_collector() -> None:
    """Look only at what is new: all that was ever said is kept here, and looking at that takes long.

    Meanwhile no platform would answer, and what came evenly would be counted in one moment.
    """
    gc.collect()
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, 1_000_000)


async def own_delay(over: asyncio.Event) -> float:
    """How late this process was at most, with all the platforms in it."""
    worst = 0.0
    while not over.is_set():
        due = time.monotonic() + 0.05
        await asyncio.sleep(0.05)
        worst = max(worst, time.monotonic() - due)
    return worst


async def restarts(
    daemon: Daemon, watch: Watch, plan: Plan, until: float, chance: random.Random
) -> int:
    """Stop and kill the daemon in turns; gives how often."""
    count = 0
    while time.monotonic() + plan.restart_every < until:
        await asyncio.sleep(plan.restart_every * chance.uniform(0.7, 1.3))
        async with aiohttp.ClientSession() as http:
            await watch.look(daemon, http)
        watch.ended()
        await (daemon.kill() if count % 2 else daemon.stop())
        await daemon.start()
        count += 1
    return count


async def live(plan: Plan) -> int:
    """Live through it all; gives the exit code."""
    chance = random.Random(plan.seed)  # noqa: S311 - it only has to vary
    answered: Counter[str] = Counter()
    watch = Watch(answered)
    each = plan.people // 3 + 1
    rush, over, calm = asyncio.Event(), asyncio.Event(), asyncio.Event()
    pause = plan.seconds * plan.people / plan.turns
    with contextlib.ExitStack() as stack:
        home = plan.home or stack.enter_context(tempfile.TemporaryDirectory())
        async with (
            three_platforms(each, judged=False) as place,
            ModelServer(Model(chance)) as model,
        ):
            everybody = [
                Person(
                    chat_users,
                    number,
                    at,
                    random.Random(plan.seed * 1_000 + at * each + number),  # noqa: S311 - likewise
                )
                for at, chat_users in enumerate(place.people.values())
                for number in range(each)
            ][: plan.people]
            extra = ("sessions.on_interrupted=resume", "gateway.drain_seconds=5")
            async with daemon_in(place, Path(home), model, *extra) as daemon:
                began = time.monotonic()
                async with asyncio.TaskGroup() as group, asyncio.TaskGroup() as talk:
                    for person in everybody:
                        talk.create_task(person.live(pause, rush, over, answered))
                    group.create_task(trouble(place, plan.trouble_every, calm, chance))
                    delay = group.create_task(own_delay(over))
                    quiet = began + plan.seconds / 3
                    count = await restarts(daemon, watch, plan, quiet, chance)
                    rush.set()
                    await asyncio.sleep(max(0.0, began + plan.seconds / 2 - time.monotonic()))
                    first, pace = len(watch.samples), complaints(place)
                    async with aiohttp.ClientSession() as http:
                        while (
                            time.monotonic() < began + plan.seconds or answered.total() < plan.turns
                        ) and time.monotonic() < began + 1.5 * plan.seconds:
                            await watch.look(daemon, http)
                            if time.monotonic() < quiet + MINUTE:
                                pace = complaints(place)
                            await asyncio.sleep(plan.seconds / 200)
                        calm.set()
                        over.set()
                        await watch.look(daemon, http)
                watch.ended()
                took = time.monotonic() - began
                await asyncio.sleep(3.0)  # a last edit, and the signs
                assert await daemon.stop() == 0
            if time.monotonic() < quiet + MINUTE:
                pace = complaints(place)
            faults = [fault for person in everybody for fault in person.faults()]
            # Who was killed has not noted what he called last; in the next minute the platform says.
            forgiven = Counter(each for each in pace if "pace" in each or "in a second" in each)
            faults += (Counter(complaints(place)) - forgiven).elements()
    return report(plan, answered, watch, watch.samples[first:], count, took, delay.result(), faults)


def complaints(place: ThreePlatforms) -> list[str]:
    """What the platforms would punish, or people would notice."""
    return [
        f"{name}: {each}"
        for name, chat_users in place.people.items()
        for each in chat_users.complaints()
    ]


def report(
    plan: Plan,
    answered: Counter[str],
    watch: Watch,
    second: Sequence[Sample],
    restarts: int,
    took: float,
    delay: float,
    faults: Sequence[str],
) -> int:
    """Print what came of it; gives the exit code. What took less than a minute has not settled."""
    quarter, short = len(second) // 2, plan.seconds < 60
    early, later = second[:quarter], second[quarter:]
    grown = slope(second)
    first, last = second[0].megabytes, second[-1].megabytes
    enough = plan.people if short else plan.turns  # on a busy machine people ask less often
    rows = [
        ("turns answered", f"{answered.total()} {dict(answered)}", answered.total() >= enough),
        ("delay of the platforms", f"at most {delay:.2f} s", delay <= OWN_DELAY or short),
        ("time, restarts", f"{took:.0f} s, {restarts}", restarts > 0 or short),
        ("missing, twice, odd", str(len(faults)), not faults),
        (
            "memory",
            f"{first:.1f} to {last:.1f} MB, {grown:+.2f} MB for 10,000 turns",
            grown < MEGABYTES_FOR_10_000 or short,
        ),
        *(
            (
                what,
                f"at most {max(before)}, then {max(after)}; at least {min(before)}, then {min(after)}",
                short or min(after) <= min(before) + 8,
            )
            for what, before, after in (
                ("open files", [e.files for e in early], [e.files for e in later]),
                ("tasks", [e.tasks for e in early], [e.tasks for e in later]),
            )
        ),
        (
            "loop later than 50 ms",
            f"{100 * watch.late():.2f} % of the looks, one a second",
            watch.late() <= 0.01 or short,
        ),
    ]
    for what, said, well in rows:
        sys.stdout.write(f"{'ok ' if well else 'NOT'} {what:<22} {said}\n")
    for fault in faults[:20]:
        sys.stdout.write(f"    {fault}\n")
    return int(not all(well for _, _, well in rows))


def main() -> int:
    """Run it with as much of everything as asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=Plan().people)
    parser.add_argument("--turns", type=int, default=Plan().turns)
    parser.add_argument("--seconds", type=float, default=Plan().seconds)
    parser.add_argument("--restart-every", type=float, default=Plan().restart_every)
    parser.add_argument("--seed", type=int, default=Plan().seed)
    parser.add_argument("--home", default="", help="keep the state here, to look at it afterwards")
    chosen = parser.parse_args()
    plan = Plan(
        chosen.people,
        chosen.turns,
        chosen.seconds,
        restart_every=chosen.restart_every,
        seed=chosen.seed,
        home=chosen.home,
    )
    spare_the_collector()
    return asyncio.run(live(plan))


if __name__ == "__main__":
    sys.exit(main())
