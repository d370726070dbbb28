"""Rows of the attack suite, and the table of what was tried, held and passed.

A row is one trick at one door. Its attempt returns a judge, which is asked after the gateway has
come to rest and names what got through. A row without a verdict counts as passed, too.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

import msgspec

PATIENCE = 20.0  # seconds for the attempt of one row

Judge = Callable[[], str]
"""Returns what got through; empty if the attack was held."""


class Row(msgspec.Struct, frozen=True):
    """One trick at one door."""

    door: str
    trick: str
    case: str
    attempt: Callable[[Any], Awaitable[Judge]]
    lane: str = ""
    """Rows of one lane follow each other; by default the first word of the door."""

    @property
    def name(self) -> str:
        """Name in messages."""
        return f"{self.door} | {self.trick} | {self.case}"


class Stage(Protocol):
    """A gateway under attack."""

    async def settle(self) -> None:
        """Wait until the gateway has nothing left to do."""
        ...

    def leaks(self) -> Iterable[tuple[str, str]]:
        """Yield (surface, problem) for every surface that canaries must not reach."""
        ...


class Ledger:
    """Verdicts of all rows that were tried."""

    def __init__(self) -> None:
        self.tried: Counter[str] = Counter()
        self.tricks: Counter[str] = Counter()
        self.passed: dict[str, list[str]] = {}

    def add(self, row: Row, problem: str) -> None:
        """Record the verdict of a row."""
        self.tried[row.door] += 1
        self.tricks[row.trick] += 1
        if problem:
            self.passed.setdefault(row.door, []).append(f"{row.name}: {problem}")

    def table(self) -> str:
        """Return the table of tried, held and passed attacks for each door."""
        lines = [f"{'door':32}{'tried':>7}{'held':>7}{'passed':>8}"]
        for door, tried in sorted(self.tried.items()):
            passed = len(self.passed.get(door, ()))
            lines.append(f"{door:32}{tried:7}{tried - passed:7}{passed:8}")
        total, passed = self.tried.total(), sum(map(len, self.passed.values()))
        lines.append(f"{'total':32}{total:7}{total - passed:7}{passed:8}")
        lines.append(f"{len(self.tried)} doors, {len(self.tricks)} tricks")
        return "\n".join(lines)


async def attack(stage: Stage, rows: Iterable[Row], ledger: Ledger) -> list[str]:
    """Try all rows, wait until the gateway rests, and return everything that got through.

    The rows of one lane follow each other; all lanes are attacked at the same time.
    """
    lanes: dict[str, list[Row]] = {}
    for row in rows:
        lanes.setdefault(row.lane or row.door.partition(" ")[0], []).append(row)
    judged: list[tuple[Row, Judge]] = []
    async with asyncio.TaskGroup() as group:
        for lane in lanes.values():
            group.create_task(_attack_in_order(stage, lane, judged))
    await stage.settle()
    canaries = [(Row("canaries", name, "", _nothing), problem) for name, problem in stage.leaks()]
    found = []
    for row, problem in [*((row, judge()) for row, judge in judged), *canaries]:
        ledger.add(row, problem)
        if problem:
            found.append(f"{row.name}: {problem}")
    return found


async def _attack_in_order(
    stage: Stage, rows: Iterable[Row], judged: list[tuple[Row, Judge]]
) -> None:
    for row in rows:
        try:
            async with asyncio.timeout(PATIENCE):
                judged.append((row, await row.attempt(stage)))
        except Exception as error:  # noqa: BLE001 - no verdict is a bad verdict
            judged.append((row, passed(f"no verdict: {error!r}")))


def held() -> str:
    """Judge of an attack that was refused at once."""
    return ""


def passed(problem: str) -> Judge:
    """Return the judge of an attack that got through at once."""
    return lambda: problem


def verdict(problem: str) -> Judge:
    """Return the judge of a verdict that is already known; empty means held."""
    return passed(problem) if problem else held


async def _nothing(_: object) -> Judge:
    return held
