"""`ConversationHost`: the gateway's side of every conversation actor."""

from collections.abc import Callable, Iterable
from functools import partial
from weakref import WeakValueDictionary

import msgspec

from gateway.inbound.reactions import MessageReactions
from gateway.inbound.reader import InboxReader, origin_of
from gateway.turns.answer import answer_origin
from gateway.turns.crash_recovery import PREVIEW_CHARS, salvage
from gateway.turns.feeds import Feeds
from gateway.turns.run import TurnRun
from gateway.turns.services import TurnServices
from gateway.turns.setting import TurnSetting
from sessions.changes import Change, PutItem, StartAttempt
from sessions.conversation.actor import PreparedTurn
from sessions.conversation.events import (
    Event,
    Interruption,
    PendingMessage,
    RunningTurn,
    SendNotice,
    StartTask,
    TurnCrashed,
)
from sessions.records import InboxEntry, ToolCall, Turn
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
        resumes_turn: Callable[[RunningTurn], bool],
    ) -> None:
        self._services = services
        self._store = services.store
        self._clock = services.clock
        self._read_setting = read_setting  # by key, person and request options
        self._reader = reader
        self._reactions = reactions
        self._feeds = feeds
        self._resumes_turn = resumes_turn
        self._runs: WeakValueDictionary[str, TurnRun] = WeakValueDictionary()  # owned by the actors

    # --- turns ------------------------------------------------------------------------------------

    def prepare_turn(self, key: str, start: StartTask) -> PreparedTurn:
        """Prepare a turn; its first request is recorded with its start, which saves a commit."""
        turn = start.turn
        setting = self._read_setting(key, turn.person, turn.request_options)
        changes: tuple[Change, ...] = ()
        # A budget may refuse the request; the number of a resumed one depends on the stored turn.
        budget = self._services.budgets.turn_budget(key, turn.person, setting.requester)
        if not (start.resumed or budget):
            label = setting.first_label(self._clock.monotonic())
            number = setting.sent_requests + 1 if start.continued else 1
            changes = (StartAttempt(turn.id, number, label, self._clock.now()),)
        return PreparedTurn(changes, partial(self._create_turn, key, start, setting))

    def _create_turn(
        self,
        key: str,
        start: StartTask,
        setting: TurnSetting,
        post_event: Callable[[Event], None],
    ) -> TurnRun:
        feed = None
        if start.turn.request_options:
            feed = self._feeds.start_turn(start.turn.id, start.turn.origin)
        run = TurnRun(self._services, setting, key, start, post_event=post_event, feed=feed)
        self._runs[start.turn.id] = run
        return run

    async def recover_turn(
        self, turn: Turn, running: RunningTurn, *, repeatable: bool
    ) -> TurnCrashed:
        """Return the event that closes or resumes a turn that an earlier process left running."""
        origin = ""
        if running.request_options:  # its client finds the answer by the origin of its request
            entries = await self._store.inbox.of_turn(turn.id)
            origin = origin_of(entries[-1]) if entries else ""
        origin = origin or answer_origin(await self._store.outbox.of_turn(turn.id))
        running = msgspec.structs.replace(running, origin=origin)
        history = await self._store.sessions.history(turn.session_id)
        tool_runs = await self._store.turns.tool_runs(turn.id)
        may_resume = self._resumes_turn(running) and repeatable
        return salvage(turn, running, history, tool_runs, self._clock.now(), may_resume=may_resume)

    def is_waiting(self, turn: RunningTurn) -> bool:
        """Return True if a turn can only go on once a person has answered an approval request."""
        run = self._runs.get(turn.id)
        return run is not None and run.is_waiting

    def describe_interruption(self, turn: RunningTurn) -> Interruption:
        """Return the work of a running turn, for notices about its interruption."""
        call = self._running_tool(turn.id)
        return Interruption(
            request=turn.request,
            minutes=(self._clock.now() - turn.started_at) // 60_000,
            tool=call.name if call else "",
            preview=call.arguments[:PREVIEW_CHARS] if call else "",
        )

    def _running_tool(self, turn_id: str) -> ToolCall | None:
        run = self._runs.get(turn_id)
        return run.journal.running_tool if run else None

    # --- messages, notices and commits ------------------------------------------------------------

    def read_pending(self, entry: InboxEntry) -> PendingMessage:
        """Decode a stored message that waits for a turn."""
        self._reactions.on_recovered(entry)
        return self._reader.read_pending(entry)

    def notice_changes(self, says: Iterable[SendNotice]) -> tuple[Change, ...]:
        """Return the changes that store notices; a stop notice names the tool that was running."""
        return self._services.announcer.notice_changes(map(self._add_running_tool, says))

    def _add_running_tool(self, say: SendNotice) -> SendNotice:
        if say.notice != NoticeId.STOPPED or say.turn is None:
            return say
        call = self._running_tool(say.turn)
        return msgspec.structs.replace(
            say, fields={**say.fields, "tool": call.name if call else ""}
        )

    def on_committed(self, changes: tuple[Change, ...]) -> None:
        """Deliver committed items, and update reactions and feeds."""
        items = [change.item for change in changes if isinstance(change, PutItem)]
        if items:
            self._services.delivery.enqueue(items)
        self._reactions.on_committed(changes)
        self._feeds.on_committed(changes)
