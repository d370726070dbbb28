"""The parts of the store an adapter may use: transcripts of its chats, and its own values."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from gateway.delivery.imitations import mark_imitations
from gateway.delivery.view import read_body
from gateway.inbound.reader import read_event
from platforms.core.contract import (
    Address,
    ChatSummary,
    File,
    InboundMessage,
    RowAuthor,
    TranscriptRow,
)
from sessions.records import InboxEntry, ItemKind, OutboxItem
from sessions.store.store import SessionStore
from sessions.values.visible_text import visible_line, visible_text

_LONG_BYTES = 32_000
"""Size of the items from which their texts are prepared in a thread."""


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

    async def delete(self, name: str) -> None:
        """See `platforms.core.contract.Shelf`."""
        await self._store.put_value(self._owner, name, None)

    async def read_all(self) -> Mapping[str, str]:
        """See `platforms.core.contract.Shelf`."""
        return await self._store.values(self._owner)


class StoreArchive:
    """Transcripts, assembled from inbox and outbox without storing anything twice."""

    def __init__(self, store: SessionStore, redact: Callable[[str], str]) -> None:
        self._store = store
        self._redact = redact  # applied to every text, as by delivery

    async def transcript(self, address: Address, after: int, limit: int) -> Sequence[TranscriptRow]:
        """See `platforms.core.contract.Archive`."""
        found = list[TranscriptRow]()
        while True:
            rows = await self._store.timeline(address, after, limit)
            size = sum(len(row.body) for row in rows if isinstance(row, OutboxItem))
            if size > _LONG_BYTES:
                found += await asyncio.to_thread(self._shown_rows, rows)
            else:
                found += self._shown_rows(rows)
            # Some rows are hidden, but a short page must mean that there are no more rows.
            if after == 0 or len(rows) < limit or len(found) >= limit:
                return found[:limit]
            after = rows[-1].seq

    def _shown_rows(self, rows: Iterable[InboxEntry | OutboxItem]) -> list[TranscriptRow]:
        shown = (
            _message_row(row) if isinstance(row, InboxEntry) else self._item_row(row)
            for row in rows
        )
        return [row for row in shown if row]

    async def chats(self, platform: str, limit: int) -> Sequence[ChatSummary]:
        """See `platforms.core.contract.Archive`."""
        return [
            ChatSummary(address.chat, self._redact(title or ""), updated_at)
            for address, title, updated_at in await self._store.sessions.chats(platform, limit)
        ]

    def _item_row(self, item: OutboxItem) -> TranscriptRow | None:
        body = read_body(item)
        if not body.text and not body.path:  # withdrawn
            return None
        name, author = visible_line(body.name), _author(item.kind)
        text = self._redact(body.text)
        return TranscriptRow(
            seq=item.seq,
            id=item.id,
            at=item.created_at,
            author=author,
            text=mark_imitations(text) if author is RowAuthor.ANSWER else text,
            buttons=body.buttons,
            state=item.state.value,
            files=(File(name, body.media_type, body.path),) if body.path else (),
            reply_to=item.reply_to or "",
        )


def _message_row(entry: InboxEntry) -> TranscriptRow | None:
    """Return a row for a person's message; button presses and edits have none."""
    event = read_event(entry)
    if not isinstance(event, InboundMessage):
        return None
    return TranscriptRow(
        seq=entry.seq,
        id=entry.event,
        at=entry.received_at,
        author=RowAuthor.USER,
        text=visible_text(event.text),
        sender=visible_line(event.sender.name),
        state=entry.state.value,
        files=tuple(part for part in event.parts if isinstance(part, File)),
    )


def _author(kind: ItemKind) -> RowAuthor:
    match kind:
        case ItemKind.ANSWER | ItemKind.UPLOAD:
            return RowAuthor.ANSWER
        case ItemKind.NOTICE | ItemKind.ASK:
            return RowAuthor.NOTICE
