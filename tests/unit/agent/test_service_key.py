"""Rejected API keys and their rotation."""

import asyncio
import threading

import pytest

from agent.errors import ApiKeyRejected, BadRequest
from agent.providers.transport.connections import ServiceKey
from sessions.values.secret import Secret


class Service:
    """A service that accepts one key and records the keys it received."""

    def __init__(self, takes: str) -> None:
        self.takes = takes
        self.shown: list[str] = []

    async def send(self, key: str) -> str:
        self.shown.append(key)
        if key != self.takes:
            raise ApiKeyRejected
        return "taken"


@pytest.mark.parametrize(
    ("takes", "there", "shown"),
    [
        ("one", "two", ["one"]),
        ("two", "two", ["one", "two"]),
        ("three", "two", ["one", "two"]),
        ("two", "one", ["one"]),
        ("two", "", ["one"]),
    ],
    ids=["accepted", "rotated", "rotated to another", "unchanged", "file removed"],
)
async def test_a_rejected_key_is_read_again_once(takes: str, there: str, shown: list[str]) -> None:
    service = Service(takes)
    key = ServiceKey(Secret("one", lambda: there))
    if takes in shown:
        assert await key.send_with_key(service.send) == "taken"
    else:
        with pytest.raises(ApiKeyRejected):
            await key.send_with_key(service.send)
    assert service.shown == shown


async def test_other_errors_do_not_reread_the_key() -> None:
    async def send(_: str) -> None:
        raise BadRequest

    def source() -> str:
        pytest.fail("it was read again")

    with pytest.raises(BadRequest):
        await ServiceKey(Secret("one", source)).send_with_key(send)


async def test_without_a_key_a_placeholder_is_sent() -> None:
    service = Service("none")
    assert await ServiceKey(None).send_with_key(service.send) == "taken"


async def test_a_key_that_another_request_found_is_not_replaced_by_a_half_written_one() -> None:
    go_on = threading.Event()
    reading = threading.Event()

    def source() -> str:
        if reading.is_set():
            return "two"
        reading.set()
        go_on.wait(5)
        return "tw"

    service, key = Service("two"), ServiceKey(Secret("one", source))
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        slow = group.create_task(key.send_with_key(service.send))
        await asyncio.to_thread(reading.wait, 5)
        assert await key.send_with_key(service.send) == "taken"
        go_on.set()
        assert await slow == "taken"
    assert service.shown == ["one", "one", "two", "two"]
    assert await key.send_with_key(service.send) == "taken"
