import asyncio
import logging
from collections.abc import Callable

import pytest

from gateway.connections.supervision import (
    FIRST_PAUSE_SECONDS,
    MAX_PAUSE_SECONDS,
    ConnectionState,
    SupervisedAdapter,
)
from platforms.core.contract import Accepted, Adapter, Inbound, Inbox
from platforms.core.errors import Unauthorized, Unavailable
from tests.fakes.memory import MemoryAdapter


class Moody(MemoryAdapter):
    """An adapter that fails, or connects and then fails, as scripted."""

    def __init__(self, *moods: Exception | str) -> None:
        super().__init__("moody")
        self._moods = list(moods)
        self.over = asyncio.Event()

    async def run(self, inbox: Inbox, ready: Callable[[], None]) -> None:
        mood = self._moods.pop(0)
        if mood == "stay":
            ready()
            self.over.set()
            await asyncio.Event().wait()
        if mood == "connect, then break":
            ready()
            raise Unavailable
        if isinstance(mood, Exception):
            raise mood


async def inbox(_: Inbound) -> Accepted:
    return Accepted.STORED


async def supervise(
    adapter: Moody, chance: float = 0.5
) -> tuple[SupervisedAdapter, list[float], list[str]]:
    """Run until the adapter stays connected or gives up; return the recorded events."""
    pauses: list[float] = []
    seen: list[str] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    def connected(_: Adapter) -> None:
        seen.append("up")

    def disconnected(_: Adapter) -> None:
        seen.append("down")

    supervised = SupervisedAdapter(
        adapter,
        on_connected=connected,
        on_disconnected=disconnected,
        randomness=lambda: chance,
        sleep=sleep,
    )
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        task = group.create_task(supervised.run(inbox))
        over = group.create_task(adapter.over.wait())
        await asyncio.wait({task, over}, return_when=asyncio.FIRST_COMPLETED)
        standing, trouble = supervised.state, supervised.error
        task.cancel()
        over.cancel()
    supervised.state, supervised.error = standing, trouble
    return supervised, pauses, seen


async def test_a_failing_adapter_is_restarted_with_growing_pauses() -> None:
    found, pauses, seen = await supervise(Moody(*[Unavailable() for _ in range(9)], "stay"))
    assert pauses[:3] == [FIRST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2, FIRST_PAUSE_SECONDS * 4]
    assert max(pauses) == MAX_PAUSE_SECONDS
    assert (found.state, found.error) == (ConnectionState.CONNECTED, "")
    assert seen[-2:] == ["up", "down"]


@pytest.mark.parametrize("chance", [0.0, 1.0])
async def test_a_retry_after_of_the_platform_is_waited_out(chance: float) -> None:
    moods = (Unavailable("slower", 7.0), Unavailable(), "stay")
    _, pauses, _ = await supervise(Moody(*moods), chance)
    assert pauses == [7.0, 2.0 * (0.75 + chance / 2)]


async def test_a_successful_connection_resets_the_pause() -> None:
    moods = (Unavailable(), Unavailable(), "connect, then break", Unavailable(), "stay")
    _, pauses, _ = await supervise(Moody(*moods))
    assert pauses == [1.0, 2.0, 1.0, 2.0]


async def test_a_pause_requested_by_the_platform_is_used() -> None:
    _, pauses, _ = await supervise(Moody(Unavailable("slow down", retry_after=30), "stay"))
    assert pauses == [30.0]


async def test_refused_credentials_end_the_supervision_with_a_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found, pauses, _ = await supervise(Moody(Unauthorized("The token was revoked.")))
    assert found.state is ConnectionState.REFUSED
    assert found.first_attempt_done.is_set()
    assert pauses == []
    assert "The token was revoked." in caplog.text


class RefusedInDelivery(Moody):
    """An adapter whose next poll is refused after a delivery was."""

    async def run(self, inbox: Inbox, ready: Callable[[], None]) -> None:
        ready()
        await self.over.wait()
        raise Unauthorized("The token was revoked.")  # noqa: EM101, TRY003 - as the platform says it


async def test_a_token_refused_in_a_delivery_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    adapter, connected = RefusedInDelivery(), asyncio.Event()
    supervised = SupervisedAdapter(
        adapter, on_connected=lambda _: connected.set(), on_disconnected=lambda _: None
    )
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        task = group.create_task(supervised.run(inbox))
        await connected.wait()
        supervised.on_credentials_refused(Unauthorized("The token was revoked."))
        assert supervised.error == "The token was revoked."
        adapter.over.set()
        await task
    assert supervised.state is ConnectionState.REFUSED
    assert caplog.text.count("The token was revoked.") == 1


async def test_an_adapter_error_or_silent_end_is_survived(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    found, pauses, _ = await supervise(Moody(ZeroDivisionError("oh"), "just end", "stay"))
    assert len(pauses) == 2
    assert found.state is ConnectionState.CONNECTED
    assert "an error in its adapter (ZeroDivisionError)" in caplog.text
    assert "its connection ended" in caplog.text


class Silent(Moody):
    """An adapter that hangs at first without an error."""

    async def run(self, inbox: Inbox, ready: Callable[[], None]) -> None:
        if self._moods[0] == "hang":
            self._moods.pop(0)
            await asyncio.Event().wait()
        await super().run(inbox, ready)


async def test_a_platform_that_does_not_answer_is_reported_and_retried() -> None:
    adapter = Silent("hang", TimeoutError("its own"), "stay")
    told: list[str] = []
    supervised = SupervisedAdapter(
        adapter,
        on_connected=lambda _: None,
        on_disconnected=lambda _: told.append(supervised.status_text),
        sleep=lambda _: asyncio.sleep(0),
        connect_seconds=0.02,
    )
    assert supervised.status_text == "connecting, no answer so far"
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        task = group.create_task(supervised.run(inbox))
        await adapter.over.wait()
        await asyncio.sleep(0.05)  # longer than the time limit for connecting
        assert supervised.status_text == "connected"
        task.cancel()
    assert told[:2] == ["no answer within 0.02 s", "an error in its adapter (TimeoutError)"]


class Stubborn(MemoryAdapter):
    """An adapter that raises its own error when cancelled, as a task group may do."""

    def __init__(self) -> None:
        super().__init__("stubborn")
        self.starts = 0
        self.up = asyncio.Event()

    async def run(self, inbox: Inbox, ready: Callable[[], None]) -> None:
        self.starts += 1
        self.up.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise Unavailable from None


async def test_a_platform_that_fails_during_the_stop_is_not_restarted() -> None:
    adapter = Stubborn()
    supervised = SupervisedAdapter(
        adapter, on_connected=lambda _: None, on_disconnected=lambda _: None
    )
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        task = group.create_task(supervised.run(inbox))
        await adapter.up.wait()
        task.cancel()
    assert adapter.starts == 1


async def test_a_warning_is_logged_once_and_cleared_by_a_disconnect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    changes: list[str] = []
    adapter = Moody("stay", "stay")
    supervised = SupervisedAdapter(
        adapter,
        on_connected=lambda _: None,
        on_disconnected=lambda _: None,
        on_change=lambda: changes.append(supervised.problem),
    )
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        task = group.create_task(supervised.run(inbox))
        await adapter.over.wait()
        assert supervised.problem == ""
        for text in ("two of us", "two of us", "", "three of us"):
            supervised.set_warning(text)
        assert changes == ["", "two of us", "", "three of us"]
        assert caplog.messages.count("moody: two of us") == 1
        assert "moody: resolved: two of us" in caplog.messages
        task.cancel()
    assert supervised.state is ConnectionState.CONNECTING
    assert supervised.problem == "connecting, no answer so far"
    supervised.state = ConnectionState.CONNECTED
    assert supervised.problem == ""
