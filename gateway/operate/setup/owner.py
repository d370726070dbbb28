"""Waits for the first message, which makes its sender the owner."""

import asyncio
import contextlib
import select
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TextIO

from msgspec import Struct, convert

from gateway.access.claim import Claim, how_to_claim
from gateway.process.control_socket import Operation, ask

_PAUSE = 0.3  # seconds between two looks


class Owner(Struct, frozen=True):
    """Who may do everything."""

    name: str
    principal: str

    def __str__(self) -> str:
        return f"{self.name} ({self.principal})"


def owner_in(listed: Iterable[Mapping[str, str]]) -> Owner | None:
    """Find the newest admin among the people let in."""
    admins = [each for each in listed if each["state"].startswith("admin")]
    return Owner(admins[-1]["name"], admins[-1]["principal"]) if admins else None


def greeted(owner: Owner) -> str:
    """What is said when the first message has come."""
    return f"✓ You are the owner: {owner}."


async def until_owned(listed: Operation, stopping: asyncio.Event) -> Owner | None:
    """Wait in the gateway's own process; None when it stops first."""
    while not stopping.is_set():
        found = owner_in(convert(await listed(), list[dict[str, str]]))
        if found:
            return found
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PAUSE):
                await stopping.wait()
    return None


def wait_for_owner(
    socket: Path,
    platforms: tuple[str, ...],
    name: str,
    say: Callable[[str], None],
    source: TextIO | None,
) -> Owner | None:
    """Have the running daemon make a claim, tell how to use it, and wait for who does.

    Enter in `source` ends the wait; without one there is none. `name`: by which the person starts
    this program.
    """
    found = owner_in(ask(socket, "pair_list"))
    if found:
        say(f"The owner is {found}.")
        return found
    claim = convert(ask(socket, "pair_claim"), Claim)
    for line in how_to_claim(platforms, claim, name):
        say(line)
    if source is None:
        return None
    say("Waiting for that message; Enter ends the wait.")
    while found is None and not select.select([source], [], [], _PAUSE)[0]:
        found = owner_in(ask(socket, "pair_list"))
    say(greeted(found) if found else f"Not waiting any more; `{name} pair claim` makes a new code.")
    return found
