"""What the owner of a conversation can do: read its messages, run its turns, tell its people."""

from collections.abc import Callable, Iterable

import msgspec

from gateway.delivery.outbox import Delivery
from gateway.inbound.reactions import MessageReactions
from gateway.inbound.reader import InboxReader
from gateway.notices.compose import NoticeComposer
from gateway.turns.feeds import Feeds
from gateway.turns.host import TurnFactory
from gateway.turns.run import TurnRun
from sessions.changes import Change, PutItem
from sessions.conversation.events import (
    Event,
    PendingMessage,
    RunningTurn,
    SendNotice,
    StartTask,
    TurnCrashed,
)
from sessions.records import InboxEntry, Turn


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
        if say.notice != "N10" or say.turn is None:
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
