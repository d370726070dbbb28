"""Prepares the turns of all conversations, and looks at what a dead process left of one."""

from collections.abc import Callable
from weakref import WeakValueDictionary

import msgspec

from gateway.turns.answer import answer_origin
from gateway.turns.crash_recovery import PREVIEW_CHARS, salvage
from gateway.turns.feeds import Feeds
from gateway.turns.run import TurnRun, TurnServices
from gateway.turns.setting import TurnSetting
from sessions.changes import Change, StartAttempt
from sessions.conversation.events import Event, RunningTurn, StartTask, TurnCrashed
from sessions.records import Turn


class TurnFactory:
    """Prepares turns; one of it serves all conversations."""

    def __init__(
        self,
        services: TurnServices,
        read_setting: Callable[[str, str, bytes], TurnSetting],
        feeds: Feeds,
        *,
        resumes_turns: Callable[[], bool],
    ) -> None:
        self._services = services
        self._store = services.store
        self._clock = services.clock
        self._read_setting = read_setting  # by key, person and wishes
        self._feeds = feeds
        self._resumes_turns = resumes_turns
        self._runs: WeakValueDictionary[str, TurnRun] = WeakValueDictionary()  # kept by its owner

    def start_changes(self, key: str, start: StartTask) -> tuple[Change, ...]:
        """The first request of a turn goes on record with its start: one commit less."""
        if start.resumed:
            return ()  # its requests are counted on, which takes a look into the store
        if self._services.budgets.turn_budget(key, start.turn.person):
            return ()  # it may be refused before it is begun
        label = self._setting_for(key, start.turn).first_label(self._clock.monotonic())
        return (StartAttempt(start.turn.id, 1, label, self._clock.now()),)

    def create_turn(
        self, key: str, start: StartTask, post_event: Callable[[Event], None]
    ) -> TurnRun:
        """See `sessions.conversation.actor.ActorHost`."""
        feed = None
        if start.turn.request_options:
            feed = self._feeds.start_turn(start.turn.id, start.turn.origin)
        work = TurnRun(
            self._services, self._setting_for(key, start.turn), key, start, post_event, feed
        )
        self._runs[start.turn.id] = work
        return work

    def _setting_for(self, key: str, turn: RunningTurn) -> TurnSetting:
        return self._read_setting(key, turn.person, turn.request_options)

    def is_waiting(self, turn: RunningTurn) -> bool:
        """Whether a turn can only go on when somebody has answered a question."""
        work = self._runs.get(turn.id)
        return work is not None and work.is_waiting

    def notice_fields(self, turn: RunningTurn) -> dict[str, str | int]:
        """What the notices about an interrupted turn say: how far it came, which tool ran."""
        fields: dict[str, str | int] = {
            "request": turn.request,
            "min": (self._clock.now() - turn.started_at) // 60_000,
            "k": 0,
        }
        if work := self._runs.get(turn.id):
            fields["k"] = work.steps
        return fields | self.running_tool_fields(turn.id)

    def running_tool_fields(self, turn_id: str) -> dict[str, str | int]:
        """Which tool of a turn may be taking effect at this moment."""
        work = self._runs.get(turn_id)
        running = work.running_tool if work else None
        if running is None:
            return {}
        return {"tool": running.name, "preview": running.arguments[:PREVIEW_CHARS]}

    async def recover_turn(self, turn: Turn, running: RunningTurn) -> TurnCrashed:
        """See `sessions.conversation.actor.ActorHost`."""
        shown = await self._store.turn_items(turn.id)
        running = msgspec.structs.replace(running, origin=answer_origin(shown))
        history = await self._store.history(turn.session_id)
        runs = await self._store.tool_runs(turn.id)
        # What was for one request alone is not gone on with: whoever asked has seen it break off.
        take_up = self._resumes_turns() and not running.single_turn
        return salvage(turn, running, history, runs, self._clock.now(), may_resume=take_up)
