"""What the owner of a conversation can do: read its messages, run its turns, tell its people."""

from collections.abc import Callable, Iterable

import msgspec

from gateway.delivery.outbox import Delivery
from gateway.inbound.reactions import Receipts
from gateway.inbound.reader import Reader
from gateway.notices.compose import Announcer
from gateway.turns.feeds import Feeds
from gateway.turns.host import Turns
from gateway.turns.run import Work
from sessions.changes import Change, PutItem
from sessions.conversation.events import Event, Pending, RunningTurn, Say, StartTask, Wrecked
from sessions.records import InboxEntry, Turn


class GatewayHands:
    """See `sessions.conversation.actor.Hands`; each method is explained there."""

    def __init__(
        self,
        reader: Reader,
        turns: Turns,
        announcer: Announcer,
        delivery: Delivery,
        receipts: Receipts,
        feeds: Feeds,
    ) -> None:
        self._reader = reader
        self._turns = turns
        self._announcer = announcer
        self._delivery = delivery
        self._receipts = receipts
        self._feeds = feeds

    def pending(self, entry: InboxEntry) -> Pending:
        """Read a stored message."""
        self._receipts.read_back(entry)
        return self._reader.pending(entry)

    def opening(self, key: str, start: StartTask) -> tuple[Change, ...]:
        """What becomes durable together with the start of a turn."""
        return self._turns.opening(key, start)

    def begin(self, key: str, start: StartTask, post: Callable[[Event], None]) -> Work:
        """Prepare a turn."""
        return self._turns.begin(key, start, post)

    async def wrecked(self, turn: Turn, running: RunningTurn) -> Wrecked:
        """Look at what a dead process left of a turn."""
        return await self._turns.wrecked(turn, running)

    def say(self, says: Iterable[Say]) -> tuple[Change, ...]:
        """Write notices; the one about a stopped turn also names the tool that was running."""
        return self._announcer.say(self._completed(say) for say in says)

    def _completed(self, say: Say) -> Say:
        if say.notice != "N10" or say.turn is None:
            return say
        return msgspec.structs.replace(say, fields=self._turns.tool_fields(say.turn) | say.fields)

    def committed(self, changes: tuple[Change, ...]) -> None:
        """Show what is to be shown from now on."""
        items = [change.item for change in changes if isinstance(change, PutItem)]
        if items:
            self._delivery.wake(items)
        self._receipts.committed(changes)
        self._feeds.committed(changes)
