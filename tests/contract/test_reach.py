"""The choice among the addresses of a host, and the sockets of all attempts."""

import asyncio
import contextlib
import gc
import socket
import warnings
from collections.abc import AsyncIterator, Iterator

import pytest

from agent.providers.transport import reach
from agent.providers.transport.reach import AddressInfo
from tests.fakes.deaf import deaf


class Heard(asyncio.Protocol):
    """A protocol that ignores all data."""


def address(port: int, family: int = socket.AF_INET, host: str = "127.0.0.1") -> AddressInfo:
    return (family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))


@contextlib.asynccontextmanager
async def listening() -> AsyncIterator[int]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def refusing() -> int:
    """Return a port without a listener."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return int(place.getsockname()[1])


@contextlib.contextmanager
def nothing_stays_open() -> Iterator[None]:
    gc.collect()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield
        gc.collect()
    assert [str(each.message) for each in seen] == []


async def port_of(*found: AddressInfo) -> int:
    transport, heard = await reach.connect_to_first(found, Heard)
    assert isinstance(heard, Heard)
    transport.abort()
    await asyncio.sleep(0)
    return int(transport.get_extra_info("peername")[1])


async def test_a_refusing_address_is_skipped_at_once_and_a_silent_one_after_a_delay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reach, "NEXT_ADDRESS_SECONDS", 60)
    async with listening() as port, asyncio.timeout(10):
        with nothing_stays_open():
            assert await port_of(address(refusing()), address(port)) == port
        monkeypatch.setattr(reach, "NEXT_ADDRESS_SECONDS", 0.05)
        with deaf() as hole, nothing_stays_open():
            assert await port_of(address(hole), address(port)) == port


async def test_of_two_successful_attempts_one_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reach, "NEXT_ADDRESS_SECONDS", 0)
    async with listening() as first, listening() as second:
        with nothing_stays_open():
            assert await port_of(address(first), address(second)) in (first, second)
            await asyncio.sleep(0.01)


async def test_when_all_attempts_fail_each_reason_is_named_once() -> None:
    port = refusing()
    with nothing_stays_open(), pytest.raises(ConnectionRefusedError) as told:
        await reach.connect_to_first([address(port), address(port)], Heard)
    assert str(told.value).count(str(port)) == 1


async def test_an_unavailable_local_address_is_an_oserror() -> None:
    async with listening() as port:
        with nothing_stays_open(), pytest.raises(OSError, match="assign"):
            await reach.connect_to_host("127.0.0.1", port, Heard, local_address="203.0.113.1")


async def test_cancellation_at_any_moment_leaves_no_socket_open() -> None:
    async with listening() as port:
        steps, over = 0, False
        while not over:
            with nothing_stays_open():
                async with asyncio.TaskGroup() as own:
                    reached = own.create_task(reach.connect_to_host("127.0.0.1", port, Heard))
                    for _ in range(steps):
                        await asyncio.sleep(0)
                    over = not reached.cancel()
                if over:
                    reached.result()[0].abort()
                await asyncio.sleep(0.01)
                del reached, own
            steps += 1
        assert steps > 3


def test_address_families_alternate() -> None:
    six = [address(1, socket.AF_INET6, f"::{number}") for number in (1, 2, 3)]
    four = [address(1, host=f"127.0.0.{number}") for number in (1, 2)]
    tried = reach._interleave_families([*six, *four])
    assert tried == [six[0], four[0], six[1], four[1], six[2]]
