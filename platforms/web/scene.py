"""Sans-IO: what a chat shows beyond its archive, and what an open page has not been told yet.

A `LiveChatState` is the present state of a chat, a `PageView` remembers what one page was told. The page is
sent the difference. So a slow page holds no growing queue: whatever happened in between, it is told
the newest state once.
"""

from collections.abc import Iterator, Sequence

import msgspec

from platforms.core.contract import Button, TranscriptRow
from platforms.web.wire import button_data, encode_event, row_data

_RECHECKED_ROWS = 16  # rows that are looked at again for changes
_MAX_REMEMBERED = 64  # rows whose sent form is remembered, and edits that are kept
_DRAFT_LIFETIME_SECONDS = 600.0  # seconds after which a draft that nobody touched is given up
_RUNNING_STATES = ("waiting", "running")
_OPEN_STATES = (*_RUNNING_STATES, "held")  # states of a user's message that will change


class DraftPreview(msgspec.Struct, frozen=True):
    """An answer as far as it is written."""

    text: str
    status: str
    expires_at: float


class MessageChange(msgspec.Struct, frozen=True):
    """A message was edited, or (without text) taken away."""

    number: int
    text: str | None
    buttons: tuple[Button, ...] = ()


class LiveChatState:
    """What is going on in one chat right now."""

    def __init__(self) -> None:
        self.rows_version = 0  # grows whenever the archive may have something new
        self.typing_version = 0  # grows with every sign of life
        self.changes_version = 0  # grows with every edit and deletion
        self._changed: dict[str, MessageChange] = {}
        self._drafts: dict[str, DraftPreview] = {}

    def on_posted(self, item: str) -> None:
        """An item is in the archive; the draft of it has served its purpose."""
        self._drafts.pop(item, None)
        self.rows_version += 1

    def on_changed(self, item: str, text: str | None, buttons: tuple[Button, ...] = ()) -> None:
        """A message shows something else, or nothing any more."""
        self.changes_version += 1
        self.rows_version += 1
        self._changed.pop(item, None)  # the newest change stands last
        self._changed[item] = MessageChange(self.changes_version, text, buttons)
        if len(self._changed) > _MAX_REMEMBERED:
            del self._changed[next(iter(self._changed))]

    def on_draft(self, draft: str, text: str, status: str, now: float) -> None:
        """An answer has grown, or is gone."""
        if not text and not status:
            self._drafts.pop(draft, None)
            return
        if draft not in self._drafts:
            self.rows_version += 1  # a turn has begun: the state of the user's message has changed
        self._drafts[draft] = DraftPreview(text, status, now + _DRAFT_LIFETIME_SECONDS)

    def drafts(self, now: float) -> dict[str, DraftPreview]:
        """Give the answers being written."""
        for draft in [
            draft for draft, preview in self._drafts.items() if preview.expires_at <= now
        ]:
            del self._drafts[draft]
        return self._drafts

    def changes_after(self, number: int) -> Iterator[tuple[str, MessageChange]]:
        """Give the changes a page has not seen."""
        return ((item, change) for item, change in self._changed.items() if change.number > number)


class PageView:
    """What one open page was told."""

    def __init__(self, scene: LiveChatState, after: int) -> None:
        self.last_seq = after
        """Highest `seq` the page has."""
        self._rows_seen = -1  # nothing was read yet
        self._typing = scene.typing_version
        self._changes = scene.changes_version
        self._drafts: dict[str, DraftPreview] = {}
        self._shown: dict[str, TranscriptRow] = {}  # without the state of what is ours

    def needs_rows(self, scene: LiveChatState) -> bool:
        """Say whether the archive should be read again; takes note that it will be."""
        wanted = self._rows_seen != scene.rows_version
        self._rows_seen = scene.rows_version
        return wanted

    def force_reread(self) -> None:
        """Read the archive at the next chance, whatever the scene says."""
        self._rows_seen = -1

    @property
    def reread_after(self) -> int:
        """Read the archive after this `seq`: new rows, and those that may have changed.

        An item may become visible later than one that was stored after it, so some rows before
        the last one are always looked at again.
        """
        rows = list(self._shown.values())
        again = [row.seq for row in rows[-_RECHECKED_ROWS:]]
        again += [row.seq for row in rows if row.state in _OPEN_STATES]
        return min(again, default=1) - 1

    @property
    def has_running_message(self) -> bool:
        """Say whether a message of the user is being worked on."""
        return any(row.state in _RUNNING_STATES for row in self._shown.values())

    def row_events(self, rows: Sequence[TranscriptRow]) -> Iterator[bytes]:
        """Give the events for rows that the page does not have, or not in this form."""
        for read in rows:
            row = read if read.author == "user" else msgspec.structs.replace(read, state="")
            if self._shown.get(row.id) == row:
                continue
            self.last_seq = max(self.last_seq, row.seq)
            self._shown[row.id] = row
            yield encode_event("row", row_data(row), self.last_seq)
        self._trim_remembered()

    def live_events(self, scene: LiveChatState, now: float) -> Iterator[bytes]:
        """Give the events for what has happened beside the archive."""
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
    """Only what was appended, when the text has only grown."""
    if before is not None and preview.text.startswith(before.text):
        return {"add": preview.text[len(before.text) :]}
    return {"text": preview.text}
