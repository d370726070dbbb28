"""Drafts: the received beginnings of files whose writing was cut off, until the model finishes them.

A draft consists of two files: the text, and a record with the valid length of that text. The record
is updated only after the text is durable, so bytes beyond the valid length are leftovers of a crash
and are overwritten. Before a draft is shortened, the record is updated first. All access happens
under the lock of the folder.
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from agent.answer.partial_json import PartialString, read_string_members
from agent.errors import ToolError
from agent.tools.blocking import StopEvent, run_in_thread
from agent.tools.text import count_lines, encode_utf8, pluralize, quote
from sessions.values.clock import Clock

MAX_DRAFT_BYTES = 20_000_000
MAX_DRAFTS = 20  # per folder
LIFETIME_MS = 24 * 60 * 60 * 1000  # since the draft last grew
_TAIL_CHARACTERS = 200  # quoted from the end of a draft
_SEAM_CHARACTERS = 4000  # at the end of a draft, in which a continuation may start

_DRAFT_ID = re.compile(r"d[0-9a-f]{6}")
_DRAFT_FILE = re.compile(r"d[0-9a-f]{6}\.(text|json|new)")

T = TypeVar("T")

_log = logging.getLogger(__name__)


class FileDraft(msgspec.Struct, frozen=True, kw_only=True):
    """An unfinished file that is written in parts; nothing is at the target path yet."""

    id: str
    path: str  # target path, as given by the model
    size: int  # in characters
    lines: int
    tail: str  # the last 200 characters
    added_characters: int = 0  # by the last part


class _DraftRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The stored data of a draft, without the text."""

    path: str
    moment: int  # of the last growth
    length: int  # valid bytes of the text
    size: int
    lines: int
    tail: str
    key: str = ""  # idempotency key of the call with the last part
    owner: str = ""  # requester of the turn; empty in records of older versions

    def to_draft(self, draft_id: str, added_characters: int = 0) -> FileDraft:
        return FileDraft(
            id=draft_id,
            path=self.path,
            size=self.size,
            lines=self.lines,
            tail=self.tail,
            added_characters=added_characters,
        )


class DraftStore:
    """The drafts of one conversation, stored in a folder of their own.

    In a shared conversation the drafts of another `owner` do not exist for the turns of a person,
    because they may quote files of the other workspace. An empty owner sees all drafts.
    """

    def __init__(self, folder: Path, clock: Clock, owner: str = "") -> None:
        self._folder = folder
        self._clock = clock
        self._owner = owner

    async def keep_cut_call(self, tool: str, arguments: str) -> FileDraft | None:
        """Keep the received part of a cut call of `write_file` or `write_file_continue`.

        `arguments` is the beginning of the call's JSON, cut anywhere. Returns None if nothing can
        be kept: another tool, no path or content yet, or an unknown draft. An existing draft that
        could not be extended is returned unchanged, so that the model can learn about the draft.
        """
        keeping = {
            "write_file": _DraftFolder.keep_write,
            "write_file_continue": _DraftFolder.keep_continuation,
        }
        if tool not in keeping:
            return None
        folder = self._open_folder()

        def work(_stop: StopEvent) -> FileDraft | None:
            members = read_string_members(arguments)
            return keeping[tool](folder, members)

        try:
            return await run_in_thread(work)
        except OSError as error:
            _log.warning("cannot keep the cut call of %s as a draft: %s", tool, error)
            return None

    async def begin(self, path: str, content: str, key: str = "") -> FileDraft:
        """Create a draft from the first part of a file; a repeat of the same `key` does nothing."""
        folder = self._open_folder()
        return await _run_in_folder(lambda: folder.begin(path, content, key))

    async def extend(
        self, draft_id: str, content: str, after: str = "", key: str = ""
    ) -> FileDraft:
        """Append a part to a draft; a repeat of the same `key` does nothing.

        `after` is the text that precedes the part, normally the end of the draft. Text of the draft
        behind `after` is dropped. Raises `ToolError`, and changes nothing, if `after` is not found
        near the end or the draft is unknown.
        """
        folder = self._open_folder()
        return await _run_in_folder(lambda: folder.extend(draft_id, content, after, key))

    async def read_text(self, draft_id: str) -> str:
        """Return the full text of a draft."""
        folder = self._open_folder()
        return await _run_in_folder(lambda: folder.read_text(draft_id))

    async def list_drafts(self) -> list[FileDraft]:
        """Return all drafts, the most recently extended last."""
        folder = self._open_folder()
        return await _run_in_folder(folder.list_drafts)

    async def discard(self, draft_id: str) -> None:
        """Remove a draft; do nothing for an unknown id."""
        folder = self._open_folder()
        await _run_in_folder(lambda: folder.discard(draft_id))

    async def remove_expired(self) -> int:
        """Remove drafts that have not grown for a day; return their number."""
        folder = self._open_folder()
        return await _run_in_folder(folder.remove_expired)

    def _open_folder(self) -> "_DraftFolder":
        return _DraftFolder(self._folder, self._clock.now(), self._owner)


async def _run_in_folder(work: Callable[[], T]) -> T:
    try:
        return await run_in_thread(lambda _stop: work())
    except OSError as error:
        msg = f"Drafts cannot be read or written: {error.strerror}."
        raise ToolError(msg) from error


class _DraftFolder:
    """One operation on the folder, in a thread."""

    def __init__(self, folder: Path, now: int, owner: str) -> None:
        self._folder = folder
        self._now = now
        self._owner = owner
        self._has_lock = False  # without a folder there is no lock and there are no drafts

    def keep_write(self, members: dict[str, PartialString]) -> FileDraft | None:
        path, content = members.get("path"), members.get("content")
        if (
            path is None
            or not path.complete
            or not path.text
            or content is None
            or not content.text
        ):
            return None
        with self._locked(create=True):
            return self._start_draft(path.text, content.text, "")

    def keep_continuation(self, members: dict[str, PartialString]) -> FileDraft | None:
        draft_id, content = (
            members.get("draft_id"),
            members.get("content", PartialString("", complete=False)),
        )
        after = members.get("after", PartialString("", complete=True))
        if draft_id is None or not draft_id.complete:
            return None
        with self._locked():
            record = self._read_record(draft_id.text)
            if record is None:
                return None
            if not content.text or not after.complete:
                return record.to_draft(draft_id.text)
            try:
                return self._append(draft_id.text, record, content.text, after.text, "")
            except ToolError:
                return record.to_draft(draft_id.text)

    def begin(self, path: str, content: str, key: str) -> FileDraft:
        with self._locked(create=True):
            for draft_id, record in self._read_records().items():
                if key and record.key == key:
                    return record.to_draft(draft_id)
            draft = self._start_draft(path, content, key)
        if draft is None:
            raise ToolError(_TOO_LARGE)
        return draft

    def extend(self, draft_id: str, content: str, after: str, key: str) -> FileDraft:
        with self._locked():
            record = self._require_record(draft_id)
            if key and record.key == key:
                return record.to_draft(draft_id)
            return self._append(draft_id, record, content, after, key)

    def read_text(self, draft_id: str) -> str:
        with self._locked():
            return self._read_content(draft_id, self._require_record(draft_id)).decode()

    def list_drafts(self) -> list[FileDraft]:
        with self._locked():
            return [record.to_draft(draft_id) for draft_id, record in self._read_records().items()]

    def discard(self, draft_id: str) -> None:
        with self._locked():
            if self._read_record(draft_id) is not None:
                self._remove(draft_id)

    def remove_expired(self) -> int:
        with self._locked():
            records = self._read_records()
            old = {
                draft_id
                for draft_id, record in records.items()
                if record.moment < self._now - LIFETIME_MS
            }
            alive = {f"{kept}.{end}" for kept in records.keys() - old for end in ("json", "text")}
            for file in self._draft_files():
                if file.name not in alive:
                    file.unlink()
            if self._has_lock:
                with contextlib.suppress(OSError):  # not empty
                    self._folder.rmdir()
            return len(old)

    def _start_draft(self, path: str, content: str, key: str) -> FileDraft | None:
        if len(encode_utf8(content)) > MAX_DRAFT_BYTES:
            return None
        records = self._read_records()
        for oldest in list(records)[: max(0, len(records) - MAX_DRAFTS + 1)]:
            self._remove(oldest)
        record = _DraftRecord(
            path=path, moment=self._now, length=0, size=0, lines=0, tail="", owner=self._owner
        )
        return self._append(self._unused_id(path), record, content, "", key)

    def _append(
        self, draft_id: str, record: _DraftRecord, content: str, after: str, key: str
    ) -> FileDraft:
        text = self._read_content(draft_id, record).decode()
        kept = text[: _find_seam(draft_id, text, after)]
        added = encode_utf8(content)
        whole = kept + added.decode()
        length = len(encode_utf8(kept))
        if length + len(added) > MAX_DRAFT_BYTES:
            raise ToolError(_TOO_LARGE)
        if len(kept) < len(text):
            self._write_record(draft_id, _measure(record, kept, length))
        with self._open(draft_id) as file:
            file.seek(length)
            file.truncate()
            file.write(added)
            file.flush()
            os.fsync(file.fileno())
        grown = _measure(record, whole, length + len(added))
        self._write_record(draft_id, msgspec.structs.replace(grown, moment=self._now, key=key))
        return grown.to_draft(draft_id, len(whole) - len(kept))

    def _open(self, draft_id: str) -> BinaryIO:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.fdopen(os.open(self._file_path(draft_id, "text"), flags, 0o600), "r+b")

    def _read_content(self, draft_id: str, record: _DraftRecord) -> bytes:
        if not record.length:
            return b""
        return self._file_path(draft_id, "text").read_bytes()[: record.length]

    def _require_record(self, draft_id: str) -> _DraftRecord:
        record = self._read_record(draft_id)
        if record is not None:
            return record
        drafts = "; ".join(
            f"{known_id} of {known.path} ({pluralize(known.lines, 'line')})"
            for known_id, known in self._read_records().items()
        )
        hint = f"Existing drafts: {drafts}." if drafts else "There are no drafts."
        msg = f"There is no draft {draft_id[:40]!r}. {hint}"
        raise ToolError(msg)

    def _read_records(self) -> dict[str, _DraftRecord]:
        records = {
            file.stem: record
            for file in self._draft_files()
            if file.suffix == ".json" and (record := self._read_record(file.stem)) is not None
        }
        return dict(sorted(records.items(), key=lambda item: (item[1].moment, item[0])))

    def _read_record(self, draft_id: str) -> _DraftRecord | None:
        """Read a record; return None for another owner, or if the record or text is damaged."""
        if not self._has_lock or not _DRAFT_ID.fullmatch(draft_id):
            return None
        try:
            encoded = self._file_path(draft_id, "json").read_bytes()
            record = msgspec.json.decode(encoded, type=_DraftRecord)
            text_bytes = self._file_path(draft_id, "text").stat().st_size
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        visible = not self._owner or record.owner in {"", self._owner}
        return record if visible and text_bytes >= record.length else None

    def _write_record(self, draft_id: str, record: _DraftRecord) -> None:
        new = self._file_path(draft_id, "new")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.json.encode(record))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._file_path(draft_id, "json"))
        self._sync_folder()

    def _remove(self, draft_id: str) -> None:
        for end in ("json", "text"):
            self._file_path(draft_id, end).unlink(missing_ok=True)
        self._sync_folder()

    def _sync_folder(self) -> None:
        """Make created, renamed and removed files durable."""
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _unused_id(self, path: str) -> str:
        number = 0
        while True:
            mark = hashlib.sha256(f"{path}\0{self._now}\0{number}".encode()).hexdigest()
            draft_id = f"d{mark[:6]}"
            if not self._file_path(draft_id, "json").exists():
                return draft_id
            number += 1

    def _draft_files(self) -> list[Path]:
        if not self._has_lock:
            return []
        return [file for file in self._folder.iterdir() if _DRAFT_FILE.fullmatch(file.name)]

    def _file_path(self, draft_id: str, end: str) -> Path:
        return self._folder / f"{draft_id}.{end}"

    @contextmanager
    def _locked(self, *, create: bool = False) -> Iterator[None]:
        """Hold the lock of the folder; without a folder there is nothing to lock."""
        while True:
            if create:
                with contextlib.suppress(FileExistsError):
                    self._folder.mkdir(mode=0o700, parents=True)
            try:
                folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:
                if create:
                    continue
                yield
                return
            try:
                fcntl.flock(folder, fcntl.LOCK_EX)
                if self._is_same_folder(folder):
                    self._has_lock = True
                    yield
                    return
            finally:
                os.close(folder)

    def _is_same_folder(self, folder: int) -> bool:
        """False if `remove_expired` has removed the folder while this thread waited for the lock."""
        try:
            return os.path.samestat(self._folder.stat(), os.fstat(folder))
        except FileNotFoundError:
            return False


_TOO_LARGE = f"Nothing was kept: a draft may have at most {MAX_DRAFT_BYTES:,} bytes."


def _find_seam(draft_id: str, text: str, after: str) -> int:
    """Return the length of the text up to and including `after`; raises `ToolError`."""
    if text.endswith(after):
        return len(text)
    start = max(0, len(text) - _SEAM_CHARACTERS)
    first = text.find(after, start)
    if first >= 0 and first == text.rfind(after, start):
        return first + len(after)
    reason = "does not occur near its end" if first < 0 else "occurs there more than once"
    msg = (
        f"Nothing was added to draft {draft_id}: the draft does not end with `after`, and `after` "
        f"{reason}. The draft ends with {quote(text[-_TAIL_CHARACTERS:])}."
    )
    raise ToolError(msg)


def _measure(record: _DraftRecord, text: str, length: int) -> _DraftRecord:
    return msgspec.structs.replace(
        record,
        length=length,
        size=len(text),
        lines=count_lines(text),
        tail=text[-_TAIL_CHARACTERS:],
    )
