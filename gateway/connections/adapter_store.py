"""The parts of the store an adapter may use: transcripts of its chats, and its own values."""

from collections.abc import Sequence

from gateway.delivery.view import read_address, read_body, write_address
from gateway.inbound.reader import read_event
from platforms.core.contract import Address, ChatSummary, File, InboundMessage, TranscriptRow
from sessions.records import InboxEntry, OutboxItem
from sessions.store.store import SessionStore


class StoreShelf:
    """Durable values of one adapter."""

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
    """Transcripts, assembled from inbox and outbox without storing anything twice."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def transcript(self, address: Address, after: int, limit: int) -> Sequence[TranscriptRow]:
        """See `platforms.core.contract.Archive`."""
        address_text, found = write_address(address), list[TranscriptRow]()
        while True:
            rows = await self._store.timeline(address_text, after, limit)
            shown = (
                _message_row(row) if isinstance(row, InboxEntry) else _item_row(row) for row in rows
            )
            found += [row for row in shown if row]
            # Some rows are hidden, but a short page must mean that there are no more rows.
            if after == 0 or len(rows) < limit or len(found) >= limit:
                return found[:limit]
            after = rows[-1].seq

    async def chats(self, platform: str, limit: int) -> Sequence[ChatSummary]:
        """See `platforms.core.contract.Archive`."""
        return [
            ChatSummary(read_address(address).chat, title or "", updated_at)
            for address, title, updated_at in await self._store.sessions.chats(platform, limit)
        ]


def _message_row(entry: InboxEntry) -> TranscriptRow | None:
    """Return a row for a person's message; button presses and edits have none."""
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
    if not body.text and not body.path:  # withdrawn
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
