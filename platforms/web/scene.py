"""Sans-IO: what a chat shows beyond its archive, and what an open page has not been told yet.

A `Scene` is the present state of a chat, a `Viewer` remembers what one page was told. The page is
sent the difference. So a slow page holds no growing queue: whatever happened in between, it is told
the newest state once.
"""

from collections.abc import Iterator, Sequence

import msgspec

from platforms.core.contract import Button, TranscriptRow
from platforms.web.wire import button_data, event, row_data

_RECENT = 16  # rows that are looked at again for changes
_REMEMBERED = 64  # rows whose sent form is remembered, and edits that are kept
_DRAFT_LIFE = 600.0  # seconds after which a draft that nobody touched is given up
_AT_WORK = ("waiting", "running")
_OPEN = (*_AT_WORK, "held")  # states of a user's message that will change


class Preview(msgspec.Struct, frozen=True):
    """An answer as far as it is written."""

    text: str
    status: str
    until: float


class Change(msgspec.Struct, frozen=True):
    """A message was edited, or (without text) taken away."""

    number: int
    text: str | None
    buttons: tuple[Button, ...] = ()


class Scene:
    """What is going on in one chat right now."""

    def __init__(self) -> None:
        self.rows = 0  # grows whenever the archive may have something new
        self.typing = 0  # grows with every sign of life
        self.changes = 0  # grows with every edit and deletion
        self._changed: dict[str, Change] = {}
        self._drafts: dict[str, Preview] = {}

    def posted(self, item: str) -> None:
        """An item is in the archive; the draft of it has served its purpose."""
        self._drafts.pop(item, None)
        self.rows += 1

    def changed(self, item: str, text: str | None, buttons: tuple[Button, ...] = ()) -> None:
        """A message shows something else, or nothing any more."""
        self.changes += 1
        self.rows += 1
        self._changed.pop(item, None)  # the newest change stands last
        self._changed[item] = Change(self.changes, text, buttons)
        if len(self._changed) > _REMEMBERED:
            del self._changed[next(iter(self._changed))]

    def drafted(self, draft: str, text: str, status: str, now: float) -> None:
        """An answer has grown, or is gone."""
        if not text and not status:
            self._drafts.pop(draft, None)
            return
        if draft not in self._drafts:
            self.rows += 1  # a turn has begun: the state of the user's message has changed
        self._drafts[draft] = Preview(text, status, now + _DRAFT_LIFE)

    def drafts(self, now: float) -> dict[str, Preview]:
        """Give the answers being written."""
        for draft in [draft for draft, preview in self._drafts.items() if preview.until <= now]:
            del self._drafts[draft]
        return self._drafts

    def changes_after(self, number: int) -> Iterator[tuple[str, Change]]:
        """Give the changes a page has not seen."""
        return ((item, change) for item, change in self._changed.items() if change.number > number)


class Viewer:
    """What one open page was told."""

    def __init__(self, scene: Scene, after: int) -> None:
        self.last = after
        """Highest `seq` the page has."""
        self._rows_seen = -1  # nothing was read yet
        self._typing = scene.typing
        self._changes = scene.changes
        self._drafts: dict[str, Preview] = {}
        self._shown: dict[str, TranscriptRow] = {}  # without the state of what is ours

    def wants_rows(self, scene: Scene) -> bool:
        """Say whether the archive should be read again; takes note that it will be."""
        wanted = self._rows_seen != scene.rows
        self._rows_seen = scene.rows
        return wanted

    def look_again(self) -> None:
        """Read the archive at the next chance, whatever the scene says."""
        self._rows_seen = -1

    @property
    def floor(self) -> int:
        """Read the archive after this `seq`: new rows, and those that may have changed.

        An item may become visible later than one that was stored after it, so some rows before
        the last one are always looked at again.
        """
        rows = list(self._shown.values())
        again = [row.seq for row in rows[-_RECENT:]]
        again += [row.seq for row in rows if row.state in _OPEN]
        return min(again, default=1) - 1

    @property
    def unsettled(self) -> bool:
        """Say whether a message of the user is being worked on."""
        return any(row.state in _AT_WORK for row in self._shown.values())

    def rows(self, rows: Sequence[TranscriptRow]) -> Iterator[bytes]:
        """Give the events for rows that the page does not have, or not in this form."""
        for read in rows:
            row = read if read.author == "user" else msgspec.structs.replace(read, state="")
            if self._shown.get(row.id) == row:
                continue
            self.last = max(self.last, row.seq)
            self._shown[row.id] = row
            yield event("row", row_data(row), self.last)
        self._forget()

    def news(self, scene: Scene, now: float) -> Iterator[bytes]:
        """Give the events for what has happened beside the archive."""
        for item, change in scene.changes_after(self._changes):
            if change.text is None:
                yield event("delete", {"id": item})
            else:
                buttons = button_data(change.buttons)
                yield event("edit", {"id": item, "text": change.text, "buttons": buttons})
        self._changes = scene.changes
        if self._typing != scene.typing:
            self._typing = scene.typing
            yield event("typing", {})
        yield from self._draft_news(scene.drafts(now))

    def _draft_news(self, drafts: dict[str, Preview]) -> Iterator[bytes]:
        for draft in self._drafts.keys() - drafts.keys():
            yield event("draft", {"id": draft, "gone": True})
        for draft, preview in drafts.items():
            before = self._drafts.get(draft)
            if preview is before:
                continue
            yield event(
                "draft", {"id": draft, "status": preview.status, **_growth(before, preview)}
            )
        self._drafts = dict(drafts)

    def _forget(self) -> None:
        newest = sorted(self._shown.values(), key=lambda row: row.seq)[-_REMEMBERED:]
        self._shown = {row.id: row for row in newest}


def _growth(before: Preview | None, preview: Preview) -> dict[str, str]:
    """Only what was appended, when the text has only grown."""
    if before is not None and preview.text.startswith(before.text):
        return {"add": preview.text[len(before.text) :]}
    return {"text": preview.text}
