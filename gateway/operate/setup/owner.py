"""Waits until a claim makes a person the owner."""

import asyncio
import contextlib
import select
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

from msgspec import Struct, convert

from gateway.access.claim import OwnerClaim, claim_instructions
from gateway.process.control_socket import Operation, send_request

_POLL_SECONDS = 0.3


class Owner(Struct, frozen=True):
    """The newest admin."""

    name: str
    principal: str

    def __str__(self) -> str:
        return f"{self.name} ({self.principal})"


def find_owner(people: Iterable[Mapping[str, Any]]) -> Owner | None:
    """Return the newest admin among the people with access."""
    admins = [person for person in people if person["role"] == "admin"]
    if not admins:
        return None
    newest = admins[-1]
    return Owner(newest["name"] or newest["principal"], newest["principal"])


def owner_greeting(owner: Owner) -> str:
    """Return the line that names the new owner."""
    return f"✓ You are the owner: {owner}."


async def watch_for_owner(list_people: Operation, stopping: asyncio.Event) -> Owner | None:
    """Wait for an owner inside the gateway's own process; None if the gateway stops first."""
    while not stopping.is_set():
        found = find_owner(convert(await list_people(), list[dict[str, Any]]))
        if found:
            return found
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_POLL_SECONDS):
                await stopping.wait()
    return None


def wait_for_owner(
    socket: Path,
    platforms: tuple[str, ...],
    command: str,
    say: Callable[[str], None],
    source: TextIO | None,
) -> Owner | None:
    """Create a claim in the running daemon, print how to use it, and wait for the owner.

    Enter on `source` ends the wait; without a source there is no wait. `command` is the name the
    person types to run this program.
    """
    found = find_owner(send_request(socket, "pair_list"))
    if found:
        say(f"The owner is {found}.")
        return found
    claim = convert(send_request(socket, "pair_claim"), OwnerClaim)
    for line in claim_instructions(platforms, claim, command):
        say(line)
    if source is None:
        return None
    say("Waiting for that message. Press Enter to stop waiting.")
    while found is None and not select.select([source], [], [], _POLL_SECONDS)[0]:
        found = find_owner(send_request(socket, "pair_list"))
    say(
        owner_greeting(found)
        if found
        else f"Stopped waiting. For a new code run `{command} pair claim`."
    )
    return found
