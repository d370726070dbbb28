"""Prepares the turns of all conversations, and looks at what a dead process left of one."""

from collections.abc import Callable, Iterable
from weakref import WeakValueDictionary

import msgspec

from gateway.delivery.outbox import Delivery
from gateway.inbound.reactions import MessageReactions
from gateway.inbound.reader import InboxReader
from gateway.notices.compose import NoticeComposer
from gateway.turns.answer import answer_origin
from gateway.turns.crash_recovery import PREVIEW_CHARS, salvage
from gateway.turns.feeds import Feeds
from gateway.turns.run import TurnRun, TurnServices
from gateway.turns.setting import TurnSetting
from sessions.changes import Change, PutItem, StartAttempt
from sessions.conversation.events import (
    Event,
    PendingMessage,
    RunningTurn,
    SendNotice,
    StartTask,
    TurnCrashed,
)
from sessions.records import InboxEntry, Turn
from sessions.values.notices import NoticeId


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
        shown = await self._store.outbox.of_turn(turn.id)
        running = msgspec.structs.replace(running, origin=answer_origin(shown))
        history = await self._store.sessions.history(turn.session_id)
        runs = await self._store.turns.tool_runs(turn.id)
        # What was for one request alone is not gone on with: whoever asked has seen it break off.
        take_up = self._resumes_turns() and not running.single_turn
        return salvage(turn, running, history, runs, self._clock.now(), may_resume=take_up)


class ConversationHost:
    """See `sessions.conversation.actor.ActorHost`; each method is explained there."""

    def __init__(
        self,
        reader: InboxReader,
        turns: TurnFactory,
        announcer: NoticeComposer,
        delivery: Delivery,
        reactions: MessageReactions,
        feeds: Feeds,
    ) -> None:
        self._reader = reader
        self._turns = turns
        self._announcer = announcer
        self._delivery = delivery
        self._reactions = reactions
        self._feeds = feeds

    def read_pending(self, entry: InboxEntry) -> PendingMessage:
        """Read a stored message."""
        self._reactions.on_recovered(entry)
        return self._reader.read_pending(entry)

    def start_changes(self, key: str, start: StartTask) -> tuple[Change, ...]:
        """What becomes durable together with the start of a turn."""
        return self._turns.start_changes(key, start)

    def create_turn(self, key: str, start: StartTask, post: Callable[[Event], None]) -> TurnRun:
        """Prepare a turn."""
        return self._turns.create_turn(key, start, post)

    async def recover_turn(self, turn: Turn, running: RunningTurn) -> TurnCrashed:
        """Look at what a dead process left of a turn."""
        return await self._turns.recover_turn(turn, running)

    def notice_changes(self, says: Iterable[SendNotice]) -> tuple[Change, ...]:
        """Write notices; the one about a stopped turn also names the tool that was running."""
        return self._announcer.notice_changes(self._add_tool_fields(say) for say in says)

    def _add_tool_fields(self, say: SendNotice) -> SendNotice:
        if say.notice != NoticeId.STOPPED or say.turn is None:
            return say
        return msgspec.structs.replace(
            say, fields=self._turns.running_tool_fields(say.turn) | say.fields
        )

    def on_committed(self, changes: tuple[Change, ...]) -> None:
        """Show what is to be shown from now on."""
        items = [change.item for change in changes if isinstance(change, PutItem)]
        if items:
            self._delivery.enqueue(items)
        self._reactions.on_committed(changes)
        self._feeds.on_committed(changes)
