"""What an adapter is given, in memory: an archive that behaves like the store's, and a shelf."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from platforms.core.contract import Address, Button, ChatSummary, File, RowAuthor, TranscriptRow


class MemoryShelf:
    """Keeps values; `broken` makes it fail like a full disk."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.broken = False

    async def get(self, name: str) -> str | None:
        return self.values.get(name)

    async def put(self, name: str, value: str) -> None:
        if self.broken:
            msg = "no space left"
            raise OSError(msg)
        self.values[name] = value

    async def delete(self, name: str) -> None:
        self.values.pop(name, None)

    async def read_all(self) -> Mapping[str, str]:
        return dict(self.values)


class EmptyArchive:
    """An archive without rows and chats."""

    async def transcript(self, *_: object) -> Sequence[TranscriptRow]:
        return ()

    async def chats(self, *_: object) -> Sequence[ChatSummary]:
        return ()


class MemoryArchive:
    """Rows of all chats by one growing `seq`, as the store numbers inbox and outbox together."""

    def __init__(self) -> None:
        self._rows: dict[str, list[TranscriptRow]] = {}
        self._seq = 0
        self.reads = 0

    def say(
        self,
        chat: str,
        message: str,
        text: str,
        at: int = 0,
        state: str = "waiting",
        files: tuple[File, ...] = (),
    ) -> bool:
        """Store a user's message; False when it is there already."""
        if any(row.id == message for row in self._rows.get(chat, ())):
            return False
        self._add(chat, message, "user", text, at, state=state, files=files)
        return True

    def put(
        self,
        chat: str,
        item: str,
        text: str,
        at: int = 0,
        author: str = "answer",
        buttons: tuple[Button, ...] = (),
        seq: int | None = None,
        files: tuple[File, ...] = (),
    ) -> None:
        """Store an item; with a `seq` of its own it stands in front of what was stored since."""
        self._add(chat, item, author, text, at, buttons=buttons, seq=seq, files=files)

    def number(self) -> int:
        """Give out a number now, for something that becomes visible later."""
        self._seq += 1
        return self._seq

    def change(self, chat: str, row: str, **fields: Any) -> None:
        """Change a row in place, as a new state of a message does."""
        rows = self._rows[chat]
        index = next(index for index, known in enumerate(rows) if known.id == row)
        rows[index] = msgspec.structs.replace(rows[index], **fields)

    def remove(self, chat: str, row: str) -> None:
        """Remove a row, as an item that was withdrawn."""
        self._rows[chat] = [known for known in self._rows[chat] if known.id != row]

    def of(self, chat: str) -> list[TranscriptRow]:
        return list(self._rows.get(chat, ()))

    async def transcript(self, address: Address, after: int, limit: int) -> Sequence[TranscriptRow]:
        self.reads += 1
        rows = self._rows.get(address.chat, [])
        if not after:
            return rows[-limit:]
        return [row for row in rows if row.seq > after][:limit]

    async def chats(self, platform: str, limit: int) -> Sequence[ChatSummary]:
        newest = sorted(self._rows.items(), key=lambda entry: -entry[1][-1].seq)
        return [
            ChatSummary(chat=chat, title=_title(rows), updated_at=rows[-1].at)
            for chat, rows in newest[:limit]
        ]

    def _add(
        self,
        chat: str,
        name: str,
        author: str,
        text: str,
        at: int,
        state: str = "",
        buttons: tuple[Button, ...] = (),
        seq: int | None = None,
        files: tuple[File, ...] = (),
    ) -> None:
        rows = self._rows.setdefault(chat, [])
        rows.append(
            TranscriptRow(
                seq=seq or self.number(),
                id=name,
                at=at,
                author=RowAuthor(author),
                text=text,
                buttons=buttons,
                state=state,
                files=files,
            )
        )
        rows.sort(key=lambda row: row.seq)


def _title(rows: Sequence[TranscriptRow]) -> str:
    return next((row.text[:60] for row in rows if row.author == "user"), "")
