"""What adapters may read and keep in the store: transcripts of their chats, a few values."""

from collections.abc import Sequence

from gateway.delivery.view import read_address, read_body, write_address
from gateway.inbound.reader import read_event
from platforms.core.contract import Address, ChatSummary, File, InboundMessage, TranscriptRow
from sessions.records import InboxEntry, OutboxItem
from sessions.store.store import SessionStore


class StoreShelf:
    """An adapter's own durable values."""

    def __init__(self, store: SessionStore, owner: str) -> None:
        self._store = store
        self._owner = owner

    async def get(self, name: str) -> str | None:
        """See `platforms.core.contract.Shelf`."""
        return await self._store.get_value(self._owner, name)

    async def put(self, name: str, value: str) -> None:
        """See `platforms.core.contract.Shelf`."""
        await self._store.put_value(self._owner, name, value)


class StoreArchive:
    """What chats show, out of inbox and outbox: nothing is stored twice for it."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def transcript(self, address: Address, after: int, limit: int) -> Sequence[TranscriptRow]:
        """See `platforms.core.contract.Archive`."""
        where, found = write_address(address), list[TranscriptRow]()
        while True:
            rows = await self._store.timeline(where, after, limit)
            shown = (
                _message_row(row) if isinstance(row, InboxEntry) else _item_row(row) for row in rows
            )
            found += [row for row in shown if row]
            # Not every row is shown; a page that is not full must mean that there is no more.
            if after == 0 or len(rows) < limit or len(found) >= limit:
                return found[:limit]
            after = rows[-1].seq

    async def chats(self, platform: str, limit: int) -> Sequence[ChatSummary]:
        """See `platforms.core.contract.Archive`."""
        return [
            ChatSummary(read_address(address).chat, title or "", updated_at)
            for address, title, updated_at in await self._store.chats(platform, limit)
        ]


def _message_row(entry: InboxEntry) -> TranscriptRow | None:
    """A row for what a person wrote; a pressed button or an edit is not a row of its own."""
    event = read_event(entry)
    if not isinstance(event, InboundMessage):
        return None
    return TranscriptRow(
        seq=entry.seq,
        id=entry.event,
        at=entry.received_at,
        author="user",
        text=event.text,
        sender=event.sender.name,
        state=entry.state.value,
        files=tuple(part for part in event.parts if isinstance(part, File)),
    )


def _item_row(item: OutboxItem) -> TranscriptRow | None:
    body = read_body(item)
    if not body.text and not body.path:  # taken away again
        return None
    return TranscriptRow(
        seq=item.seq,
        id=item.id,
        at=item.created_at,
        author="answer" if item.kind in {"answer", "upload"} else "notice",
        text=body.text,
        buttons=body.buttons,
        state=item.state.value,
        files=(File(body.name, body.media_type, body.path),) if body.path else (),
    )
