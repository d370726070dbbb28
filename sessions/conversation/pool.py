"""All conversations in memory: finds the owner of each, lets go of quiet ones, drains at the end."""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator

from sessions.conversation.actor import GONE_WITHIN, Actor, Shared, Unhandled
from sessions.conversation.events import (
    Begin,
    Drain,
    Event,
    Interrupt,
    RunningTurn,
    State,
)

log = logging.getLogger(__name__)

KEPT = 256
BEGUN_WITHIN = 10.0
_LOOKS = 16


class SessionPool:
    """One actor per conversation that is in use."""

    def __init__(self, shared: Shared, *, kept: int = KEPT) -> None:
        self._shared = shared
        self._kept = kept
        self._actors: OrderedDict[str, Actor] = OrderedDict()
        self._draining = False
        self._rested = asyncio.Event()

    def post(self, key: str, event: Event, handled: asyncio.Future[State] | None = None) -> None:
        """Give an event to the owner of a conversation."""
        actor = self._actors.get(key)
        if actor is None:
            self._forget_quiet()
            actor = Actor(
                key, self._shared, draining=lambda: self._draining, rested=self._rested.set
            )
            self._actors[key] = actor
        self._actors.move_to_end(key)
        actor.post(event, handled)

    async def ask(self, key: str, event: Event) -> State:
        """Give an event and wait until it was carried out; answers with the state after it.

        Raises `Unhandled` when that was not possible.
        """
        handled: asyncio.Future[State] = asyncio.get_running_loop().create_future()
        self.post(key, event, handled)
        return await handled

    def running(self) -> tuple[tuple[str, RunningTurn], ...]:
        """The turns under way, with the keys of their conversations."""
        return tuple((key, turn) for key, actor in self._actors.items() if (turn := actor.running))

    def at_work(self) -> tuple[str, ...]:
        """Conversations in which a turn runs, or something is on its way to it."""
        return tuple(key for key, actor in self._actors.items() if actor.busy)

    def _forget_quiet(self) -> None:
        """Let go of the longest unused; the check and the letting go have no await between.

        Of many that are all at work only a few are looked at for each new one. They go to the end
        of the line: they are in use.
        """
        for _ in range(_LOOKS):
            if len(self._actors) < self._kept:
                return
            key, actor = next(iter(self._actors.items()))
            if actor.busy:
                self._actors.move_to_end(key)
            else:
                del self._actors[key]

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """At the end nothing keeps the process: what is still under way is in the journal."""
        try:
            yield
        finally:
            for actor in self._actors.values():
                actor.abandon()

    async def begin(self, keys: Iterable[str]) -> None:
        """After a start: take up what waits, and what a dead process left running."""
        loop = asyncio.get_running_loop()
        handled = []
        for key in keys:
            handled.append(loop.create_future())
            self.post(key, Begin(), handled[-1])
        try:
            async with asyncio.timeout(BEGUN_WITHIN):
                for each in handled:
                    with contextlib.suppress(Unhandled):  # a broken one holds up no other
                        await each
        except TimeoutError:
            log.warning("not all conversations are taken up yet; the others need not wait")

    async def drain(
        self,
        grace: float,
        hurry: asyncio.Event,
        farewell: Callable[[str, RunningTurn], Interrupt],
        waits: Callable[[RunningTurn], bool] = lambda _: False,
    ) -> int:
        """Begin no turn any more, let the running ones finish, then interrupt the rest.

        One that `waits` for somebody is interrupted at once: it may be hours until they answer.
        `hurry` ends the grace at once. Returns how many turns were interrupted.
        """
        self._draining = True
        for key in tuple(self._actors):
            self.post(key, Drain())
        interrupted: set[str] = set()

        def interrupt(wanted: Callable[[RunningTurn], bool]) -> None:
            for key, turn in self.running():
                if turn.id not in interrupted and wanted(turn):
                    log.info("interrupting turn %s of %s", turn.id, key)
                    self.post(key, farewell(key, turn))
                    interrupted.add(turn.id)

        interrupt(waits)
        if waited_for := len(self.running()) - len(interrupted):
            turns = "turn" if waited_for == 1 else "turns"
            log.info("waiting up to %.0f s for %d running %s", grace, waited_for, turns)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace), asyncio.TaskGroup() as watch:
                quiet = watch.create_task(self._turns_over(lambda: interrupt(waits)))
                rush = watch.create_task(hurry.wait())
                await asyncio.wait({quiet, rush}, return_when=asyncio.FIRST_COMPLETED)
                quiet.cancel()
                rush.cancel()
        interrupt(lambda _: True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GONE_WITHIN):
                await self._quiet()
        return len(interrupted)

    def look_again(self) -> None:
        """A turn waits for somebody now: while everything comes to its end, that counts."""
        self._rested.set()

    async def idle(self) -> None:
        """Wait for a moment in which no turn runs; others may begin as ever."""
        await self._turns_over(lambda: None)

    async def _turns_over(self, meanwhile: Callable[[], None]) -> None:
        while self.running():
            meanwhile()
            self._rested.clear()
            await self._rested.wait()

    async def _quiet(self) -> None:
        """Wait until no turn runs and no event is being handled."""
        while any(actor.busy for actor in self._actors.values()):
            self._rested.clear()
            await self._rested.wait()
