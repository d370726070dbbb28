"""A context in a task of its own, whose exit no cancellation interrupts."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from agent.tools.mcp import held


def never() -> None:
    pytest.fail("it has not ended by itself")


class Place:
    """A context with scripted durations of its entry and exit."""

    def __init__(self) -> None:
        self.may_enter, self.may_leave = asyncio.Event(), asyncio.Event()
        self.entered, self.leaving = asyncio.Event(), asyncio.Event()
        self.left = self.interrupted = False
        self.may_enter.set()
        self.may_leave.set()

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["Place"]:
        await self.may_enter.wait()
        self.entered.set()
        try:
            yield self
        finally:
            self.leaving.set()
            try:
                await self.may_leave.wait()
                self.left = True
            except asyncio.CancelledError:
                self.interrupted = True
                raise


async def stay(place: Place) -> None:
    async with held.hold_context(place.open(), never) as found:
        assert found is place
        await asyncio.Event().wait()


async def fail(place: Place, error: Exception) -> None:
    async with held.hold_context(place.open(), never):
        raise error


async def test_the_context_exits_with_the_block_and_exceptions_pass_through() -> None:
    place = Place()
    async with held.hold_context(place.open(), never):
        assert not place.leaving.is_set()
    assert place.left
    place, ours = Place(), KeyError("ours")
    with pytest.raises(KeyError, match="ours"):
        await fail(place, ours)
    assert place.left


async def test_repeated_cancellation_still_waits_for_the_exit() -> None:
    place = Place()
    place.may_leave.clear()
    async with asyncio.timeout(5), asyncio.TaskGroup() as own:
        staying = own.create_task(stay(place))
        await place.entered.wait()
        staying.cancel()
        await place.leaving.wait()
        for _ in range(5):
            staying.cancel()
            await asyncio.sleep(0)
        assert not staying.done()
        place.may_leave.set()
        await asyncio.wait({staying})
    assert staying.cancelled()
    assert (place.left, place.interrupted) == (True, False)


async def test_an_exit_that_takes_too_long_is_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held, "LEAVE_SECONDS", 0.01)
    place = Place()
    place.may_leave.clear()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            async with held.hold_context(place.open(), never):
                pass
    assert place.interrupted


async def test_cancellation_during_the_entry_prevents_it() -> None:
    place = Place()
    place.may_enter.clear()
    async with asyncio.timeout(5), asyncio.TaskGroup() as own:
        staying = own.create_task(stay(place))
        await asyncio.sleep(0.01)
        staying.cancel()
    assert staying.cancelled()
    assert not place.entered.is_set()


@pytest.mark.parametrize("when", ["entering", "leaving"])
async def test_errors_of_the_context_are_raised(when: str) -> None:
    error = OSError("no such program")

    @contextlib.asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        if when == "entering":
            raise error
        yield
        raise error

    with pytest.raises(OSError, match="no such program"):
        async with held.hold_context(broken(), never):
            assert when == "leaving"


async def test_on_lost_is_called_when_the_context_ends_by_itself() -> None:
    lost = asyncio.Event()

    async def fail_inside() -> None:
        raise OSError

    @contextlib.asynccontextmanager
    async def breaking() -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as inside:
            inside.create_task(fail_inside())
            yield

    async with asyncio.timeout(5):
        with pytest.raises(ExceptionGroup):
            async with held.hold_context(breaking(), lost.set):
                await lost.wait()
