"""Prepares the turns of all conversations, and looks at what a dead process left of one."""

from collections.abc import Callable
from weakref import WeakValueDictionary

import msgspec

from gateway.turns.answer import origin_in
from gateway.turns.crash_recovery import PREVIEW, salvage
from gateway.turns.feeds import Feeds
from gateway.turns.run import Work, Workshop
from gateway.turns.setting import Setting
from sessions.changes import Change, StartAttempt
from sessions.conversation.events import Event, RunningTurn, StartTask, Wrecked
from sessions.records import Turn


class Turns:
    """Prepares turns; one of it serves all conversations."""

    def __init__(
        self,
        shop: Workshop,
        setting: Callable[[str, str, bytes], Setting],
        feeds: Feeds,
        *,
        take_up: Callable[[], bool],
    ) -> None:
        self._shop = shop
        self._store = shop.store
        self._clock = shop.clock
        self._setting_of = setting  # by key, person and wishes
        self._feeds = feeds
        self._take_up = take_up
        self._works: WeakValueDictionary[str, Work] = WeakValueDictionary()  # kept by its owner

    def opening(self, key: str, start: StartTask) -> tuple[Change, ...]:
        """The first request of a turn goes on record with its start: one commit less."""
        if start.taken_up:
            return ()  # its requests are counted on, which takes a look into the store
        if self._shop.budgets.purse(key, start.turn.person):
            return ()  # it may be refused before it is begun
        label = self._setting(key, start.turn).first_label(self._clock.monotonic())
        return (StartAttempt(start.turn.id, 1, label, self._clock.now()),)

    def begin(self, key: str, start: StartTask, post: Callable[[Event], None]) -> Work:
        """See `sessions.conversation.actor.Hands`."""
        feed = None
        if start.turn.wishes:
            feed = self._feeds.begun(start.turn.id, start.turn.origin)
        work = Work(self._shop, self._setting(key, start.turn), key, start, post, feed)
        self._works[start.turn.id] = work
        return work

    def _setting(self, key: str, turn: RunningTurn) -> Setting:
        return self._setting_of(key, turn.person, turn.wishes)

    def waits(self, turn: RunningTurn) -> bool:
        """Whether a turn can only go on when somebody has answered a question."""
        work = self._works.get(turn.id)
        return work is not None and work.waits

    def fields(self, turn: RunningTurn) -> dict[str, str | int]:
        """What the notices about an interrupted turn say: how far it came, which tool ran."""
        fields: dict[str, str | int] = {
            "request": turn.request,
            "min": (self._clock.now() - turn.started_at) // 60_000,
            "k": 0,
        }
        if work := self._works.get(turn.id):
            fields["k"] = work.steps
        return fields | self.tool_fields(turn.id)

    def tool_fields(self, turn_id: str) -> dict[str, str | int]:
        """Which tool of a turn may be taking effect at this moment."""
        work = self._works.get(turn_id)
        running = work.running_tool if work else None
        if running is None:
            return {}
        return {"tool": running.name, "preview": running.arguments[:PREVIEW]}

    async def wrecked(self, turn: Turn, running: RunningTurn) -> Wrecked:
        """See `sessions.conversation.actor.Hands`."""
        shown = await self._store.turn_items(turn.id)
        running = msgspec.structs.replace(running, origin=origin_in(shown))
        history = await self._store.history(turn.session_id)
        runs = await self._store.tool_runs(turn.id)
        # What was for one request alone is not gone on with: whoever asked has seen it break off.
        take_up = self._take_up() and not running.once
        return salvage(turn, running, history, runs, self._clock.now(), may_take_up=take_up)
