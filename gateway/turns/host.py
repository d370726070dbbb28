"""`ConversationHost`: the gateway's side of every conversation actor."""

from collections.abc import Callable, Iterable
from weakref import WeakValueDictionary

import msgspec

from gateway.inbound.reactions import MessageReactions
from gateway.inbound.reader import InboxReader
from gateway.turns.answer import answer_origin
from gateway.turns.crash_recovery import PREVIEW_CHARS, salvage
from gateway.turns.feeds import Feeds
from gateway.turns.run import TurnRun
from gateway.turns.services import TurnServices
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


class ConversationHost:
    """Prepares and recovers turns, and shows committed changes; one host serves all conversations.

    See `sessions.conversation.actor.ActorHost` for the contract.
    """

    def __init__(
        self,
        services: TurnServices,
        read_setting: Callable[[str, str, bytes], TurnSetting],
        reader: InboxReader,
        reactions: MessageReactions,
        feeds: Feeds,
        *,
        resumes_turns: Callable[[], bool],
    ) -> None:
        self._services = services
        self._store = services.store
        self._clock = services.clock
        self._read_setting = read_setting  # by key, person and request options
        self._reader = reader
        self._reactions = reactions
        self._feeds = feeds
        self._resumes_turns = resumes_turns
        self._runs: WeakValueDictionary[str, TurnRun] = WeakValueDictionary()  # owned by the actors
        self._settings: dict[str, tuple[StartTask, TurnSetting]] = {}
        """Settings read for turns whose start is being committed, by conversation."""

    # --- turns ------------------------------------------------------------------------------------

    def start_changes(self, key: str, start: StartTask) -> tuple[Change, ...]:
        """Return the changes to commit in the same transaction as the turn's start.

        The first request is recorded there, which saves a commit.
        """
        if start.resumed:
            return ()  # its request number depends on the stored turn
        if self._services.budgets.turn_budget(key, start.turn.person):
            return ()  # the budget may refuse the request
        setting = self._setting_for(key, start.turn)
        self._settings[key] = start, setting
        label = setting.first_label(self._clock.monotonic())
        return (StartAttempt(start.turn.id, 1, label, self._clock.now()),)

    def create_turn(
        self, key: str, start: StartTask, post_event: Callable[[Event], None]
    ) -> TurnRun:
        """Prepare a turn whose start is committed; `post_event` reaches the conversation's actor."""
        prepared, setting = self._settings.pop(key, (None, None))
        if setting is None or prepared is not start:
            setting = self._setting_for(key, start.turn)
        feed = None
        if start.turn.request_options:
            feed = self._feeds.start_turn(start.turn.id, start.turn.origin)
        run = TurnRun(self._services, setting, key, start, post_event=post_event, feed=feed)
        self._runs[start.turn.id] = run
        return run

    def _setting_for(self, key: str, turn: RunningTurn) -> TurnSetting:
        return self._read_setting(key, turn.person, turn.request_options)

    async def recover_turn(self, turn: Turn, running: RunningTurn) -> TurnCrashed:
        """Return the event that closes or resumes a turn that an earlier process left running."""
        shown = await self._store.outbox.of_turn(turn.id)
        running = msgspec.structs.replace(running, origin=answer_origin(shown))
        history = await self._store.sessions.history(turn.session_id)
        tool_runs = await self._store.turns.tool_runs(turn.id)
        # A client that sent a single request has seen its connection break; it does not come back.
        may_resume = self._resumes_turns() and not running.single_turn
        return salvage(turn, running, history, tool_runs, self._clock.now(), may_resume=may_resume)

    def is_waiting(self, turn: RunningTurn) -> bool:
        """Return True if a turn can only go on once a person has answered an approval request."""
        run = self._runs.get(turn.id)
        return run is not None and run.is_waiting

    def notice_fields(self, turn: RunningTurn) -> dict[str, str | int]:
        """Return the fields of notices about an interrupted turn: its progress and running tool."""
        run = self._runs.get(turn.id)
        fields: dict[str, str | int] = {
            "request": turn.request,
            "min": (self._clock.now() - turn.started_at) // 60_000,
            "k": run.journal.steps if run else 0,
        }
        return fields | self._running_tool_fields(turn.id)

    def _running_tool_fields(self, turn_id: str) -> dict[str, str | int]:
        run = self._runs.get(turn_id)
        call = run.journal.running_tool if run else None
        if call is None:
            return {}
        return {"tool": call.name, "preview": call.arguments[:PREVIEW_CHARS]}

    # --- messages, notices and commits ------------------------------------------------------------

    def read_pending(self, entry: InboxEntry) -> PendingMessage:
        """Decode a stored message that waits for a turn."""
        self._reactions.on_recovered(entry)
        return self._reader.read_pending(entry)

    def notice_changes(self, says: Iterable[SendNotice]) -> tuple[Change, ...]:
        """Return the changes that store notices; a stop notice names the tool that was running."""
        return self._services.announcer.notice_changes(self._add_tool_fields(say) for say in says)

    def _add_tool_fields(self, say: SendNotice) -> SendNotice:
        if say.notice != NoticeId.STOPPED or say.turn is None:
            return say
        return msgspec.structs.replace(say, fields=self._running_tool_fields(say.turn) | say.fields)

    def on_committed(self, changes: tuple[Change, ...]) -> None:
        """Deliver committed items, and update reactions and feeds."""
        items = [change.item for change in changes if isinstance(change, PutItem)]
        if items:
            self._services.delivery.enqueue(items)
        self._reactions.on_committed(changes)
        self._feeds.on_committed(changes)
