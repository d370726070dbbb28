"""The pool of a service's clients."""

import asyncio

import pytest

from agent.providers.transport import connections
from agent.providers.transport.connections import STREAMS_PER_CLIENT, ClientPool


class Client:
    """A client that closes at once, or never."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.hangs = hangs
        self.closed = False

    async def close(self) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        self.closed = True


async def test_a_client_that_does_not_close_delays_neither_the_others_nor_the_shutdown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "_CLOSE_SECONDS", 0.05)
    clients = [Client(hangs=True), Client()]
    unused = iter(clients)
    pool = ClientPool(lambda: next(unused))
    leases = [pool.lease() for _ in range(STREAMS_PER_CLIENT + 1)]
    for lease in leases:
        lease.__enter__()
    for lease in leases:
        lease.__exit__(None, None, None)
    async with asyncio.timeout(5):
        await pool.aclose()
    assert [client.closed for client in clients] == [False, True]
    assert pool.stream_counts == []
