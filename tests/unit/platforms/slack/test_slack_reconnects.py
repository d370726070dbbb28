"""A Socket Mode server that accepts every connection and ends it at once."""

from typing import Any, cast

import pytest

from platforms.core.errors import Unavailable
from platforms.slack.calls import SlackClient
from platforms.slack.socket_mode import SocketModeConnection
from sessions.values.secret import Secret
from tests.fakes.set_clock import SetClock


class _Calls:
    def __init__(self) -> None:
        self.clock = SetClock()


async def test_a_server_that_ends_every_connection_gets_a_pause_after_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = _Calls()
    connection = SocketModeConnection(
        cast(SlackClient, calls), Secret("xapp-1"), trouble=lambda _: None
    )
    opened = 0

    async def fetch_url(_session: object) -> str:
        return "wss://slack"

    async def listen(*_given: object) -> None:
        nonlocal opened
        opened += 1

    monkeypatch.setattr(connection, "_fetch_url", fetch_url)
    monkeypatch.setattr(connection, "_listen", listen)
    none = cast(Any, None)
    counts = []
    for _ in range(4):  # as the supervision runs it again, after a pause
        before = opened
        with pytest.raises(Unavailable, match="keeps closing"):
            await connection.run(none, none, lambda: None)
        counts.append(opened - before)
    assert counts == [6, 1, 1, 1]
    calls.clock.time += 61_000
    before = opened
    with pytest.raises(Unavailable, match="keeps closing"):
        await connection.run(none, none, lambda: None)
    assert opened - before == 6
