"""Opens a connection to a host: of several addresses the first that answers.

asyncio can do that, too, but forgets a connection that opens in the moment in which it is called
off, as `/stop` does: its socket then stays open until the collector finds it. It knows nothing of
what is said over the connection.
"""

import asyncio
import contextlib
import itertools
import socket
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

NEXT_ADDRESS_SECONDS = 0.25
"""Seconds until the next address is tried as well."""

Protocol = TypeVar("Protocol", bound=asyncio.BaseProtocol)
AddressInfo = tuple[int, int, int, str, Any]
"""What `getaddrinfo` says of an address."""


async def connect_to_host(
    host: str, port: int, make_protocol: Callable[[], Protocol], local_address: str | None = None
) -> tuple[asyncio.Transport, Protocol]:
    """Look for the host's addresses and connect."""
    try:  # a number needs no looking for, which takes a thread
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return await connect_to_first(found, make_protocol, local_address)


async def connect_to_first(
    addresses: Iterable[AddressInfo],
    make_protocol: Callable[[], Protocol],
    local_address: str | None = None,
) -> tuple[asyncio.Transport, Protocol]:
    """Connect to the first that answers; each has a little start over the next."""
    opened: list[tuple[asyncio.Transport, Protocol]] = []
    failed: list[OSError] = []

    async def attempt(address: AddressInfo) -> None:
        try:
            opened.append(await _connect_to_address(address, make_protocol, local_address))
        except OSError as error:
            failed.append(error)

    with contextlib.ExitStack() as otherwise:
        otherwise.callback(_abort_all, opened)
        async with asyncio.TaskGroup() as attempts:
            running: set[asyncio.Task[None]] = set()
            for address in _interleave_families(addresses):
                running.add(attempts.create_task(attempt(address)))
                running = await _wait_for_one(running, NEXT_ADDRESS_SECONDS)
                if opened:
                    break
            while running and not opened:
                running = await _wait_for_one(running, None)
            for late in running:
                late.cancel()
        if not opened:
            said = dict.fromkeys(error.strerror or str(error) for error in failed)
            raise OSError(failed[0].errno, "; ".join(said))
        return opened.pop(0)  # the others are given up


async def _connect_to_address(
    address: AddressInfo, make_protocol: Callable[[], Protocol], local_address: str | None
) -> tuple[asyncio.Transport, Protocol]:
    loop = asyncio.get_running_loop()
    family, kind, number, _, where = address
    with contextlib.ExitStack() as otherwise:
        made = otherwise.enter_context(socket.socket(family, kind, number))
        made.setblocking(False)  # noqa: FBT003 - the standard library's
        if local_address:
            made.bind((local_address, 0))
        await loop.sock_connect(made, where)
        opened = await loop.create_connection(make_protocol, sock=made)
        otherwise.pop_all()
    return opened


def _abort_all(opened: list[tuple[asyncio.Transport, Protocol]]) -> None:
    for transport, _ in opened:
        transport.abort()


async def _wait_for_one(
    running: set[asyncio.Task[None]], seconds: float | None
) -> set[asyncio.Task[None]]:
    _, still = await asyncio.wait(running, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    return still


def _interleave_families(addresses: Iterable[AddressInfo]) -> list[AddressInfo]:
    """Put the families by turns: where one leads nowhere, it does so with all its addresses."""
    families: dict[int, list[AddressInfo]] = {}
    for address in addresses:
        families.setdefault(address[0], []).append(address)
    rounds = itertools.zip_longest(*families.values())
    return [address for one in rounds for address in one if address]
