"""Connections to hosts with several addresses ("happy eyeballs", RFC 8305).

asyncio's own version leaks the socket of a connection that is established at the very moment of a
cancellation, for instance by `/stop`: the socket then stays open until garbage collection.
"""

import asyncio
import contextlib
import itertools
import socket
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

NEXT_ADDRESS_SECONDS = 0.25
"""Seconds until the next address is tried in parallel."""

Protocol = TypeVar("Protocol", bound=asyncio.BaseProtocol)
AddressInfo = tuple[int, int, int, str, Any]
"""An address as returned by `getaddrinfo`."""


async def connect_to_host(
    host: str, port: int, make_protocol: Callable[[], Protocol], local_address: str | None = None
) -> tuple[asyncio.Transport, Protocol]:
    """Resolve a host and connect to the first address that answers; raises `OSError`."""
    try:  # a numeric address needs no lookup in a thread
        addresses = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )
    except socket.gaierror:
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return await connect_to_first(addresses, make_protocol, local_address)


async def connect_to_first(
    addresses: Iterable[AddressInfo],
    make_protocol: Callable[[], Protocol],
    local_address: str | None = None,
) -> tuple[asyncio.Transport, Protocol]:
    """Connect to the first address that answers, starting the attempts one after the other.

    Losing and cancelled attempts close their sockets. Raises `OSError` if all attempts fail.
    """
    opened: list[tuple[asyncio.Transport, Protocol]] = []
    failed: list[OSError] = []

    async def attempt(address: AddressInfo) -> None:
        try:
            opened.append(await _connect_to_address(address, make_protocol, local_address))
        except OSError as error:
            failed.append(error)

    with contextlib.ExitStack() as at_exit:
        at_exit.callback(_abort_all, opened)
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
            messages = dict.fromkeys(error.strerror or str(error) for error in failed)
            raise OSError(failed[0].errno, "; ".join(messages))
        return opened.pop(0)  # the others are aborted


async def _connect_to_address(
    address: AddressInfo, make_protocol: Callable[[], Protocol], local_address: str | None
) -> tuple[asyncio.Transport, Protocol]:
    loop = asyncio.get_running_loop()
    family, kind, number, _, peer = address
    with contextlib.ExitStack() as on_failure:
        sock = on_failure.enter_context(socket.socket(family, kind, number))
        sock.setblocking(False)  # noqa: FBT003 - the standard library's signature
        if local_address:
            sock.bind((local_address, 0))
        await loop.sock_connect(sock, peer)
        opened = await loop.create_connection(make_protocol, sock=sock)
        on_failure.pop_all()
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
    """Alternate between IPv4 and IPv6, because all addresses of a broken family fail."""
    families: dict[int, list[AddressInfo]] = {}
    for address in addresses:
        families.setdefault(address[0], []).append(address)
    rounds = itertools.zip_longest(*families.values())
    return [address for one in rounds for address in one if address]
