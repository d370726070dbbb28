"""How each row of the table is measured: both programs in turns, over and over, in one run."""

import asyncio
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import msgspec

from tests.bench.contestants import Contestant
from tests.bench.histories import seed
from tests.bench.orders import Heard, Say, Talk, Talked, Told
from tests.bench.verdicts import Goal, Row, compared

T = TypeVar("T")

_AFTER = 0.3  # seconds in which a program finishes what nobody waits for
_SETTLED = 1.0  # seconds after which its memory is read
_SLOWER = 1.5  # times the length of an answer
_EDITS_APART = 0.95  # a second, with room for the way of an edit over the wire


class Sizes(msgspec.Struct, frozen=True):
    """How much is measured."""

    rounds: int = 5
    turns: int = 600  # to see what is the most that it can do
    at_once: int = 32
    alone: int = 40  # messages of which each waits for the answer to the one before
    new_chats: int = 500
    streams: int = 30  # whose CPU is measured; of more, an account may not show each twice in 2 s
    tokens: int = 100
    apart: int = 20  # milliseconds between tokens
    first_step: int = 60  # streams at once
    step: float = 1.15
    most: int = 1200
    starts: int = 7
    memory_chats: int = 1000
    paced_seconds: int = 15
    paced_turns: int = 5
    histories: tuple[int, int] = (10, 1000)  # messages
    history_chats: int = 10
    killed: int = 20  # turns under way
    killed_after: float = 2.0  # seconds; the answers take five
    down: int = 5  # messages sent while it is down
    patience: float = 60.0  # after the restart


QUICK = Sizes(
    rounds=2,
    turns=200,
    alone=20,
    streams=20,
    first_step=50,
    step=1.5,
    most=420,
    starts=3,
    memory_chats=300,
    paced_seconds=4,
    history_chats=5,
    patience=8.0,
)
"""In less than two minutes."""


class Bench:
    """Both programs, and people who have not said anything yet."""

    def __init__(self, ours: Contestant, floor: Contestant, sizes: Sizes) -> None:
        self.ours = ours
        self.floor = floor
        self.sizes = sizes
        self.faults: list[str] = []  # messages that were not answered once
        self._chats = 10_000

    def fresh(self, count: int) -> int:
        """Take so many people; gives the first one's number."""
        first, self._chats = self._chats, self._chats + count
        return first

    async def talk(self, contestant: Contestant, talk: Talk) -> Talked:
        """Have people talk, each message to be answered once."""
        talked = await contestant.ask(talk, talk.seconds)
        assert isinstance(talked, Talked)
        contestant.used()  # it must still be there
        if talked.missing or talked.twice or talked.odd:
            self.faults.append(
                f"{contestant.name}: of {talk.messages} messages {talked.missing} unanswered, "
                f"{talked.twice} answered twice {talked.odd[:3]}"
            )
        return talked

    async def in_turns(
        self, measure: Callable[[Contestant], Awaitable[T]], rounds: int
    ) -> list[tuple[T, T]]:
        """Measure both, again and again; who comes first changes."""
        found: list[tuple[T, T]] = []
        for number in range(rounds):
            if number % 2:
                theirs = await measure(self.floor)
                found.append((await measure(self.ours), theirs))
            else:
                ours = await measure(self.ours)
                found.append((ours, await measure(self.floor)))
        return found

    async def cpu_of(self, contestant: Contestant, talk: Talk) -> tuple[Talked, float]:
        """Have people talk; gives the CPU seconds of each turn as well."""
        before = contestant.used().cpu
        talked = await self.talk(contestant, talk)
        await asyncio.sleep(_AFTER)
        return talked, (contestant.used().cpu - before) / talk.messages


async def rows(bench: Bench, only: str = "") -> AsyncIterator[Row]:
    """Measure everything, or one thing only, and give one row after the other."""
    for contestant in (bench.ours, bench.floor):
        await contestant.start()
        await bench.talk(contestant, Talk(bench.fresh(40), 40, 80, 8))  # what is slow only once
    for measure in (
        saturation,
        alone,
        new_chats,
        streaming,
        streams_at_once,
        paced,
        starts,
        histories,
        kills,
    ):
        if not only or measure.__name__ in only.split(","):
            for row in await measure(bench):
                yield row


async def saturation(bench: Bench) -> list[Row]:
    """Answers that come at once, as many as it can."""
    sizes = bench.sizes

    async def measure(contestant: Contestant) -> tuple[float, float]:
        chats = sizes.turns // 2
        talk = Talk(bench.fresh(chats), chats, sizes.turns, sizes.at_once)
        talked, cpu = await bench.cpu_of(contestant, talk)
        return 1000 * cpu, len(talked.delays) / talked.seconds

    found = await bench.in_turns(measure, sizes.rounds)
    cpu = [(ours[0], floor[0]) for ours, floor in found]
    speed = [(ours[1], floor[1]) for ours, floor in found]
    return [
        compared("CPU per turn, instant model", "ms", cpu, Goal(1.3), digits=2),
        compared("turns per second at saturation", "/s", speed, Goal(0.8, at_least=True)),
    ]


async def alone(bench: Bench) -> list[Row]:
    """One message at a time."""
    sizes = bench.sizes

    async def measure(contestant: Contestant) -> tuple[float, float]:
        chats = sizes.alone // 2
        first = bench.fresh(chats)
        await bench.talk(contestant, Talk(first, chats, chats, 4))
        talked, cpu = await bench.cpu_of(contestant, Talk(first, chats, sizes.alone, 1))
        return 1000 * statistics.median(talked.delays or [float("inf")]), 1000 * cpu

    found = await bench.in_turns(measure, sizes.rounds)
    delays = [(ours[0], floor[0]) for ours, floor in found]
    cpu = [(ours[1], floor[1]) for ours, floor in found]
    return [
        compared("added delay, one message at a time, median", "ms", delays, Goal(2.0)),
        compared("CPU per turn then", "ms", cpu, None, digits=2),
    ]


async def new_chats(bench: Bench) -> list[Row]:
    """Many people write for the first time, all in one moment."""
    count = bench.sizes.new_chats

    async def measure(contestant: Contestant) -> tuple[float, int]:
        talked = await bench.talk(contestant, Talk(bench.fresh(count), count, count, count))
        return talked.seconds, talked.missing

    found = await bench.in_turns(measure, bench.sizes.rounds)
    seconds = [(ours[0], floor[0]) for ours, floor in found]
    missing = sum(ours[1] for ours, _ in found)
    return [
        compared(
            f"{count} new chats at once, until all are answered",
            "s",
            seconds,
            Goal(1.3),
            digits=2,
            besides=not missing,
            remark=f"{missing} of ours were not answered" if missing else "",
        )
    ]


async def streaming(bench: Bench) -> list[Row]:
    """Answers that take a while: ours are shown while they are written."""
    sizes = bench.sizes

    async def measure(contestant: Contestant) -> tuple[float, float]:
        count = sizes.streams
        talk = Talk(bench.fresh(count), count, count, count, sizes.tokens, sizes.apart)
        talked, cpu = await bench.cpu_of(contestant, talk)
        return 1000 * cpu, talked.shown_live / count

    found = await bench.in_turns(measure, sizes.rounds)
    cpu = [(ours[0], floor[0]) for ours, floor in found]
    live = statistics.median(ours[1] for ours, _ in found)
    seconds = sizes.tokens * sizes.apart / 1000
    return [
        compared(
            f"CPU per turn, {sizes.tokens} tokens over {seconds:g} s",
            "ms",
            cpu,
            Goal(1.0),
            besides=live >= 1,
            remark=f"ours with {live:.1f} live updates a turn, the floor with none",
        )
    ]


async def streams_at_once(bench: Bench) -> list[Row]:
    """How many such answers at once, until one in twenty takes half as long again."""
    sizes = bench.sizes
    ideal = sizes.tokens * sizes.apart / 1000

    async def keeps_up(contestant: Contestant, count: int) -> bool:
        talk = Talk(bench.fresh(count), count, count, count, sizes.tokens, sizes.apart, seconds=40)
        talked = await bench.talk(contestant, talk)
        await asyncio.sleep(_AFTER)
        delays = sorted(talked.delays)
        return not talked.missing and delays[int(0.95 * len(delays))] <= _SLOWER * ideal

    async def measure(contestant: Contestant) -> float:
        held, count = 0, sizes.first_step
        while count <= sizes.most:
            if not await keeps_up(contestant, count) and not await keeps_up(contestant, count):
                break
            held, count = count, round(count * sizes.step)
        return float(held)

    pairs = await bench.in_turns(measure, 1)
    told = all(floor for _, floor in pairs)
    row = compared(
        "such turns at once until p95 > 1.5 x ideal",
        "",
        pairs,
        Goal(2.0, at_least=True),
        digits=0,
        besides=told,
        remark="" if told else f"says nothing: the floor could not even carry {sizes.first_step}",
    )
    return [row]


async def paced(bench: Bench) -> list[Row]:
    """A long answer while a chat takes one edit a second."""
    sizes = bench.sizes
    count, tokens = sizes.paced_turns, sizes.paced_seconds * 10

    async def measure(contestant: Contestant, first: int) -> Talked:
        talk = Talk(first, count, count, count, tokens, 100, edits_apart=_EDITS_APART)
        return await bench.talk(contestant, talk)

    async with asyncio.TaskGroup() as group:
        floor = group.create_task(measure(bench.floor, bench.fresh(count)))
        private = await measure(bench.ours, bench.fresh(count))
        in_groups = await measure(bench.ours, -1_000_000 - bench.fresh(count))
    found = []
    for talked, where in ((private, "private"), (in_groups, "groups")):
        slowest = max(talked.delays, default=float("inf"))
        found += [
            Row(
                f"429s in {count} turns of {sizes.paced_seconds} s, {where}",
                talked.refused,
                floor.result().refused,
                "",
                Goal(0, of="ours"),
                digits=0,
                besides=talked.shown_live > 0,
                remark=f"{talked.shown_live / count:.1f} live updates a turn",
            ),
            Row(
                f"time to the final text then, {where}",
                slowest,
                max(floor.result().delays, default=float("inf")),
                "s",
                Goal(sizes.paced_seconds + 1, of="ours"),
                digits=2,
            ),
        ]
    return found


async def starts(bench: Bench) -> list[Row]:
    """Start to ready, the first turn, and memory before and after many chats."""
    sizes = bench.sizes

    async def measure(contestant: Contestant) -> tuple[float, float]:
        await contestant.stop()
        seconds = await contestant.start()
        talked = await bench.talk(contestant, Talk(bench.fresh(1), 1, 1, 1))
        return seconds, 1000 * max(talked.delays, default=float("inf"))

    async def memory(contestant: Contestant) -> tuple[float, float]:
        await contestant.stop()
        await contestant.start()
        await asyncio.sleep(_SETTLED)
        idle = contestant.used().memory
        count = sizes.memory_chats
        await bench.talk(contestant, Talk(bench.fresh(count), count, count, sizes.at_once))
        await asyncio.sleep(_SETTLED)
        return idle, contestant.used().memory

    found = await bench.in_turns(measure, sizes.starts)
    ready = [(ours[0], floor[0]) for ours, floor in found]
    first = [(ours[1], floor[1]) for ours, floor in found]
    kept = await bench.in_turns(memory, 1)
    idle = [(ours[0], floor[0]) for ours, floor in kept]
    after = [(ours[1], floor[1]) for ours, floor in kept]
    chats = f"{sizes.memory_chats:,}"
    return [
        compared("start to ready", "s", ready, Goal(1.2), digits=2),
        compared("first turn after the start", "ms", first, Goal(100, of="ours"), digits=0),
        compared("resident memory, idle", "MB", idle, Goal(1.3), digits=0),
        compared(f"resident memory after {chats} chats", "MB", after, Goal(1.15), digits=0),
    ]


async def histories(bench: Bench) -> list[Row]:
    """What a long history adds; the floor keeps none over a start."""
    sizes = bench.sizes
    count = sizes.history_chats
    await bench.ours.stop()
    places = {}
    for length in sizes.histories:
        places[length] = bench.fresh(count)
        await seed(bench.ours.home, range(places[length], places[length] + count), length)
    await bench.ours.start()

    async def measure(length: int, each: int) -> list[float]:
        talked = await bench.talk(bench.ours, Talk(places[length], count, count * each, 1))
        return [1000 * delay for delay in talked.delays]

    first = {length: statistics.median(await measure(length, 1)) for length in sizes.histories}
    found: dict[int, list[float]] = {length: [] for length in sizes.histories}
    for _ in range(2):
        for length in sizes.histories:
            found[length] += await measure(length, 1)
    short, long = (statistics.median(found[length]) for length in sizes.histories)
    less, more = sizes.histories
    return [
        Row(
            f"added delay with {more:,} messages of history; floor: ours with {less}",
            long,
            short,
            "ms",
            Goal(1.1),
            long / short,
            remark=f"the first message after the start: {first[more]:.1f} against "
            f"{first[less]:.1f} ms",
        )
    ]


async def kills(bench: Bench) -> list[Row]:
    """Kill it in the middle of turns, and see who is left without a word."""
    sizes = bench.sizes

    async def measure(contestant: Contestant) -> tuple[int, int]:
        asked, down = bench.fresh(sizes.killed), bench.fresh(sizes.down)
        await contestant.ask(Say(asked, sizes.killed, 100, 50))
        await asyncio.sleep(sizes.killed_after)
        await contestant.kill()
        await contestant.ask(Say(down, sizes.down))
        await contestant.start()
        told = await contestant.ask(Heard(asked, sizes.killed, sizes.patience), sizes.patience)
        later = await contestant.ask(Heard(down, sizes.down, sizes.patience), sizes.patience)
        assert isinstance(told, Told)
        assert isinstance(later, Told)
        return told.any.count(False), later.answered.count(False)

    ((ours, floor),) = await bench.in_turns(measure, 1)
    return [
        Row(
            f"kill -9 during {sizes.killed} turns: neither answered nor told",
            ours[0],
            floor[0],
            "",
            Goal(0, of="ours"),
            digits=0,
        ),
        Row(
            f"of {sizes.down} messages sent while it was down: not answered",
            ours[1],
            floor[1],
            "",
            Goal(0, of="ours"),
            digits=0,
        ),
    ]
