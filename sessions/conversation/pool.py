"""Actors of all conversations in use: lookup, eviction, recovery at start, drain at shutdown."""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator

from sessions.conversation.actor import (
    SHUTDOWN_TIMEOUT_SECONDS,
    Actor,
    ActorServices,
    EventNotHandled,
)
from sessions.conversation.events import (
    ConversationState,
    Drain,
    Event,
    InterruptTurn,
    RunningTurn,
    StartWaiting,
)
from sessions.values.text import count_of

log = logging.getLogger(__name__)

_MAX_ACTORS = 256
_RECOVERY_TIMEOUT_SECONDS = 10.0
_EVICTION_CHECKS = 16


class SessionPool:
    """One actor per conversation in use."""

    def __init__(
        self,
        shared: ActorServices,
        *,
        max_actors: int = _MAX_ACTORS,
        recheck: asyncio.Event | None = None,
    ) -> None:
        """Create the pool; a drain checks again which turns wait once `recheck` is set."""
        self._shared = shared
        self._max_actors = max_actors
        self._actors: OrderedDict[str, Actor] = OrderedDict()
        self._draining = False
        self._recheck = recheck or asyncio.Event()  # also set when an actor becomes idle

    def post(
        self, key: str, event: Event, handled: asyncio.Future[ConversationState] | None = None
    ) -> None:
        """Put an event into the mailbox of a conversation."""
        actor = self._actors.get(key)
        if actor is None:
            self._evict_idle_actors()
            actor = Actor(
                key, self._shared, draining=lambda: self._draining, on_idle=self._recheck.set
            )
            self._actors[key] = actor
        self._actors.move_to_end(key)
        actor.post(event, handled)

    async def ask(self, key: str, event: Event) -> ConversationState:
        """Post an event and return the state after it was handled.

        Raises `EventNotHandled` if the event could not be handled.
        """
        handled: asyncio.Future[ConversationState] = asyncio.get_running_loop().create_future()
        self.post(key, event, handled)
        return await handled

    def running_turns(self) -> tuple[tuple[str, RunningTurn], ...]:
        """Return the running turns, each with the conversation's key."""
        return tuple(
            (key, turn) for key, actor in self._actors.items() if (turn := actor.running_turn)
        )

    def busy_keys(self) -> tuple[str, ...]:
        """Return the keys of conversations with a running turn or unhandled events."""
        return tuple(key for key, actor in self._actors.items() if actor.is_busy)

    def _evict_idle_actors(self) -> None:
        """Evict the least recently used idle actors; there is no await between check and eviction.

        Only a few busy actors are checked per new conversation. They move to the end of the order,
        because they are in use.
        """
        for _ in range(_EVICTION_CHECKS):
            if len(self._actors) < self._max_actors:
                return
            key, actor = next(iter(self._actors.items()))
            if actor.is_busy:
                self._actors.move_to_end(key)
            else:
                del self._actors[key]

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """Abandon all actors on exit; the journal has every unfinished turn."""
        try:
            yield
        finally:
            for actor in self._actors.values():
                actor.abandon()

    async def recover(self, keys: Iterable[str]) -> None:
        """Resume waiting messages and unfinished turns after a start."""
        loop = asyncio.get_running_loop()
        handled = []
        for key in keys:
            handled.append(loop.create_future())
            self.post(key, StartWaiting(), handled[-1])
        try:
            async with asyncio.timeout(_RECOVERY_TIMEOUT_SECONDS):
                for future in handled:
                    with contextlib.suppress(EventNotHandled):  # do not hold up the others
                        await future
        except TimeoutError:
            log.warning(
                "recovery takes longer than %.0f s in some conversations; not waiting for them",
                _RECOVERY_TIMEOUT_SECONDS,
            )

    async def drain(
        self,
        grace_seconds: float,
        skip_grace: asyncio.Event,
        make_interrupt: Callable[[str, RunningTurn], InterruptTurn],
        is_waiting: Callable[[RunningTurn], bool] = lambda _: False,
    ) -> int:
        """Start no more turns, let the running ones finish, then interrupt the rest.

        A turn for which `is_waiting` is true waits for a person and is interrupted at once, because
        the answer may take hours. `skip_grace` ends the grace period early. Returns the number of
        interrupted turns.
        """
        self._draining = True
        for key in tuple(self._actors):
            self.post(key, Drain())
        interrupted: set[str] = set()

        def interrupt(wanted: Callable[[RunningTurn], bool]) -> None:
            for key, turn in self.running_turns():
                if turn.id not in interrupted and wanted(turn):
                    log.info("interrupting turn %s of %s", turn.id, key)
                    self.post(key, make_interrupt(key, turn))
                    interrupted.add(turn.id)

        interrupt(is_waiting)
        if waited_for := len(self.running_turns()) - len(interrupted):
            turns = count_of(waited_for, "running turn")
            log.info("waiting up to %.0f s for %s", grace_seconds, turns)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds), asyncio.TaskGroup() as watch:
                quiet = watch.create_task(self._wait_for_turns(lambda: interrupt(is_waiting)))
                rush = watch.create_task(skip_grace.wait())
                await asyncio.wait({quiet, rush}, return_when=asyncio.FIRST_COMPLETED)
                quiet.cancel()
                rush.cancel()
        interrupt(lambda _: True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SHUTDOWN_TIMEOUT_SECONDS):
                await self._wait_until_quiet()
        return len(interrupted)

    async def wait_until_idle(self) -> None:
        """Wait until no turn is running; new turns may still start."""
        await self._wait_for_turns(lambda: None)

    async def _wait_for_turns(self, on_change: Callable[[], None]) -> None:
        while self.running_turns():
            on_change()
            self._recheck.clear()
            await self._recheck.wait()

    async def _wait_until_quiet(self) -> None:
        """Wait until no turn runs and no event is being handled."""
        while any(actor.is_busy for actor in self._actors.values()):
            self._recheck.clear()
            await self._recheck.wait()
