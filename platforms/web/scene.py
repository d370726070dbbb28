"""Sans-IO: live state of a chat beyond the archive, and the part seen by each page.

A `LiveChatState` is the current state of a chat; a `PageView` remembers what one page has received.
The page is sent the difference. So a slow page has no growing queue: the page receives the newest
state once, whatever happened in between.
"""

from collections.abc import Iterator, Sequence

import msgspec

from platforms.core.contract import Button, RowAuthor, TranscriptRow
from platforms.web.wire import button_data, encode_event, row_data

_RECHECKED_ROWS = 16  # newest rows that are checked again for changes
_MAX_REMEMBERED = 64  # rows whose sent form is remembered; also edits that are kept
_DRAFT_LIFETIME_SECONDS = 600.0  # age at which an untouched draft is dropped
_RUNNING_STATES = ("waiting", "running")
_OPEN_STATES = (*_RUNNING_STATES, "held")  # states of a user's message that can still change


class DraftPreview(msgspec.Struct, frozen=True):
    """An answer as written so far."""

    text: str
    status: str
    expires_at: float


class MessageChange(msgspec.Struct, frozen=True):
    """An edited message or, without text, a deleted one."""

    number: int
    text: str | None
    buttons: tuple[Button, ...] = ()


class LiveChatState:
    """The live state of one chat."""

    def __init__(self) -> None:
        self.rows_version = 0  # increases when the archive may have new rows
        self.typing_version = 0  # increases with every typing sign
        self.changes_version = 0  # increases with every edit and deletion
        self._changed: dict[str, MessageChange] = {}
        self._drafts: dict[str, DraftPreview] = {}

    def on_posted(self, item: str) -> None:
        """Handle an item that is now in the archive, and drop the draft."""
        self._drafts.pop(item, None)
        self.rows_version += 1

    def on_changed(self, item: str, text: str | None, buttons: tuple[Button, ...] = ()) -> None:
        """Handle an edited or (without text) deleted message."""
        self.changes_version += 1
        self.rows_version += 1
        self._changed.pop(item, None)  # keep the newest change last
        self._changed[item] = MessageChange(self.changes_version, text, buttons)
        if len(self._changed) > _MAX_REMEMBERED:
            del self._changed[next(iter(self._changed))]

    def on_draft(self, draft: str, text: str, status: str, now: float) -> None:
        """Handle an answer that has grown or, without text and status, was withdrawn."""
        if not text and not status:
            self._drafts.pop(draft, None)
            return
        if draft not in self._drafts:
            # A turn has started, so the state of the user's message has changed.
            self.rows_version += 1
        self._drafts[draft] = DraftPreview(text, status, now + _DRAFT_LIFETIME_SECONDS)

    def drafts(self, now: float) -> dict[str, DraftPreview]:
        """Return the answers being written."""
        for draft in [
            draft for draft, preview in self._drafts.items() if preview.expires_at <= now
        ]:
            del self._drafts[draft]
        return self._drafts

    def changes_after(self, number: int) -> Iterator[tuple[str, MessageChange]]:
        """Iterate over the changes after a number."""
        return ((item, change) for item, change in self._changed.items() if change.number > number)


class PageView:
    """The state that one open page has received."""

    def __init__(self, scene: LiveChatState, after: int) -> None:
        self.last_seq = after
        """Highest `seq` the page has."""
        self._rows_seen = -1  # nothing has been read yet
        self._typing = scene.typing_version
        self._changes = scene.changes_version
        self._drafts: dict[str, DraftPreview] = {}
        self._shown: dict[str, TranscriptRow] = {}  # without the delivery state of answers

    def needs_rows(self, scene: LiveChatState) -> bool:
        """Return True if the archive should be read again; assumes that the caller then does so."""
        wanted = self._rows_seen != scene.rows_version
        self._rows_seen = scene.rows_version
        return wanted

    def force_reread(self) -> None:
        """Make the next `needs_rows` return True."""
        self._rows_seen = -1

    @property
    def reread_after(self) -> int:
        """The `seq` after which to read the archive: new rows, and rows that may have changed.

        An item may become visible later than one stored after it, so some rows before the last one
        are always read again.
        """
        rows = list(self._shown.values())
        again = [row.seq for row in rows[-_RECHECKED_ROWS:]]
        again += [row.seq for row in rows if row.state in _OPEN_STATES]
        return min(again, default=1) - 1

    @property
    def newest_rows(self) -> dict[str, object]:
        """The ids of the newest rows, and the first `seq` from which there are no others."""
        first = min((row.seq for row in self._shown.values()), default=0)
        return {"first": first, "ids": list(self._shown)}

    @property
    def has_running_message(self) -> bool:
        """True while a message of the user waits or is being answered."""
        return any(row.state in _RUNNING_STATES for row in self._shown.values())

    def row_events(self, rows: Sequence[TranscriptRow]) -> Iterator[bytes]:
        """Yield events for rows that the page does not have in this form."""
        for read in rows:
            row = read if read.author is RowAuthor.USER else msgspec.structs.replace(read, state="")
            if self._shown.get(row.id) == row:
                continue
            self.last_seq = max(self.last_seq, row.seq)
            self._shown[row.id] = row
            yield encode_event("row", row_data(row), self.last_seq)
        self._trim_remembered()

    def live_events(self, scene: LiveChatState, now: float) -> Iterator[bytes]:
        """Yield events for changes outside the archive."""
        for item, change in scene.changes_after(self._changes):
            if change.text is None:
                yield encode_event("delete", {"id": item})
            else:
                buttons = button_data(change.buttons)
                yield encode_event("edit", {"id": item, "text": change.text, "buttons": buttons})
        self._changes = scene.changes_version
        if self._typing != scene.typing_version:
            self._typing = scene.typing_version
            yield encode_event("typing", {})
        yield from self._draft_events(scene.drafts(now))

    def _draft_events(self, drafts: dict[str, DraftPreview]) -> Iterator[bytes]:
        for draft in self._drafts.keys() - drafts.keys():
            yield encode_event("draft", {"id": draft, "gone": True})
        for draft, preview in drafts.items():
            before = self._drafts.get(draft)
            if preview is before:
                continue
            yield encode_event(
                "draft", {"id": draft, "status": preview.status, **_text_change(before, preview)}
            )
        self._drafts = dict(drafts)

    def _trim_remembered(self) -> None:
        newest = sorted(self._shown.values(), key=lambda row: row.seq)[-_MAX_REMEMBERED:]
        self._shown = {row.id: row for row in newest}


def _text_change(before: DraftPreview | None, preview: DraftPreview) -> dict[str, str]:
    """Return only the appended text if the text has only grown."""
    if before is not None and preview.text.startswith(before.text):
        return {"add": preview.text[len(before.text) :]}
    return {"text": preview.text}
