"""Files the agent sends to a chat; a copy of each is kept until the delivery.

The agent may change, remove or replace its file at any time, so the content at the time of the call
is copied and sent.
"""

import asyncio
import hashlib
import logging
import mimetypes
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterator
from pathlib import Path, PurePosixPath

import msgspec

from agent.errors import ToolError
from agent.request.pictures import SIGNATURE_BYTES, detect_media_type
from agent.tools.blocking import StopEvent, run_in_thread
from agent.tools.confine import Workspace, open_workspace
from gateway.delivery.outbox import Delivery
from gateway.delivery.view import ItemBody, write_body
from gateway.media.sent_secrets import find_secret
from platforms.core.contract import Address, Capabilities
from sessions.changes import PutItem
from sessions.records import ItemKind, ItemState, OutboxItem
from sessions.store.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.item_ids import file_id
from sessions.values.size import format_size

log = logging.getLogger(__name__)

_SEND_WAIT_SECONDS = 20.0
"""Seconds a tool call waits for the file to be sent; after that, sending continues alone."""

_REDACTED = "Passwords and keys in the file were replaced by ***."
_KEPT_SECONDS = 3600.0
_CHUNK_BYTES = 1 << 20
_PACKED = (b"PK\x03\x04", b"\x1f\x8b", b"%PDF")  # may contain no NUL
_MIN_FREE_BYTES = 100_000_000  # disk space left free
_PARTIAL, _OTHER_PARTIAL = ".part", ".other-part"  # the file to send may have one of these names


class OutgoingFile(msgspec.Struct, frozen=True):
    """A copied file."""

    path: Path
    name: str
    media_type: str
    size: int


class OutgoingFiles:
    """Copies files out of workspaces and queues them for delivery."""

    def __init__(
        self,
        store: SessionStore,
        delivery: Delivery,
        clock: Clock,
        folder: Path,
        capabilities: Callable[[Address], Capabilities | None],
        *,
        keep_seconds: float,
        redact: Callable[[str], str],
    ) -> None:
        self._store = store
        self._delivery = delivery
        self._clock = clock
        self._sending_folder = delivery.text_files.folder  # copies until they are sent
        self._hosted_folder = folder / "shown"  # copies that people download from this gateway
        self._capabilities = capabilities
        self._redact = redact  # masks secrets in text files
        self._keep_seconds = keep_seconds  # for hosted copies; 0: forever

    async def send(
        self,
        turn_id: str,
        address: Address,
        reply_to: str,
        workspace: Path,
        path: str,
        caption: str,
        key: str,
    ) -> str:
        """See `agent.tools.contract.SendFile`; one key sends one file once."""
        can = self._capabilities(address)
        if can is None or can.files is None:
            msg = (
                f"This chat does not accept files. Tell the person where it is: {workspace / path}"
            )
            raise ToolError(msg)
        item_id = file_id(hashlib.sha256(key.encode()).hexdigest()[:24])
        max_bytes, folder = (
            can.files,
            (self._hosted_folder if can.hosts_files else self._sending_folder) / item_id,
        )
        copy = await run_in_thread(
            lambda stop: _prepare_copy(workspace, path, folder, max_bytes, stop)
        )
        redacted = await run_in_thread(lambda _: _redact_copy(copy, path, self._redact))
        body = ItemBody(
            text=caption, path=str(copy.path), name=copy.name, media_type=copy.media_type
        )
        item = OutboxItem(
            id=item_id,
            address=address,
            kind=ItemKind.UPLOAD,
            state=ItemState.PENDING,
            body=write_body(body),
            created_at=self._clock.now(),
            turn_id=turn_id,
            reply_to=reply_to or None,
        )
        await self._delivery.put(PutItem(item))
        outcome = await self._wait_outcome(item_id, f"{copy.name} ({format_size(copy.size)})")
        return f"{outcome} {_REDACTED}" if redacted else outcome

    async def attach_text(self, below: OutboxItem, name: str, text: str) -> OutboxItem:
        """Store a text as a file and return the item that shows the file below another item."""
        can = self._capabilities(below.address)
        hosted = can is not None and can.hosts_files
        item_id = file_id(hashlib.sha256(below.id.encode()).hexdigest()[:24])
        folder = (self._hosted_folder if hosted else self._sending_folder) / item_id
        await run_in_thread(lambda _: _write_text(folder, name, text))
        body = ItemBody(path=str(folder / name), name=name, media_type="text/plain")
        return OutboxItem(
            id=item_id,
            address=below.address,
            kind=ItemKind.UPLOAD,
            state=ItemState.PENDING,
            body=write_body(body),
            created_at=self._clock.now(),
            turn_id=below.turn_id,
        )

    async def _wait_outcome(self, item_id: str, description: str) -> str:
        try:
            async with asyncio.timeout(_SEND_WAIT_SECONDS):
                state = await self._delivery.wait_sent(item_id)
        except TimeoutError:
            return f"{description} is queued; the chat does not have it yet."
        if state is not ItemState.SENT:
            msg = f"The chat did not accept {description}."
            raise ToolError(msg)
        return f"{description} was sent to the chat."

    async def remove_old_copies(self) -> None:
        """Remove copies that are no longer needed."""
        open_items = {item.id for item in await self._store.outbox.undelivered()}
        before = self._clock.now() / 1000 - _KEPT_SECONDS
        await run_in_thread(lambda _: _remove_folders(self._sending_folder, open_items, before))
        if self._keep_seconds:
            old = self._clock.now() / 1000 - self._keep_seconds
            await run_in_thread(lambda _: _remove_folders(self._hosted_folder, open_items, old))


# --- blocking functions ---------------------------------------------------------------------------


def _prepare_copy(
    root: Path, path: str, folder: Path, max_bytes: int, stop: StopEvent
) -> OutgoingFile:
    with open_workspace(root) as workspace:
        name = PurePosixPath(workspace.relative_name(path)).name
        source = _open_source(workspace, path, max_bytes)
        with open(source, "rb") as file:  # noqa: PTH123 - a descriptor
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                if shutil.disk_usage(folder).free - max_bytes < _MIN_FREE_BYTES:
                    _raise_tool_error("The disk is nearly full; nothing was sent.")
                copied = _copy_file(file.read, folder / name, max_bytes, stop)
            except OSError as error:
                msg = f"{name} could not be copied for sending: {error.strerror}."
                raise ToolError(msg) from None
    media_type = (
        detect_media_type(copied[1]) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    )
    return OutgoingFile(folder / name, name, media_type, copied[0])


def _write_text(folder: Path, name: str, text: str) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8", errors="replace")


def _redact_copy(copy: OutgoingFile, path: str, redact: Callable[[str], str]) -> bool:
    """Mask the secrets in the copy of a text file; return True if there were any.

    Raises `ToolError`, and removes the copy, if another kind of file contains a secret.
    """
    content = copy.path.read_bytes()
    if _is_text(content):
        text = content.decode(errors="surrogateescape")
        clean = redact(text)
        if clean == text:
            return False
        copy.path.write_bytes(clean.encode(errors="surrogateescape"))
        return True
    if (place := find_secret(copy.path, redact)) is not None:
        shutil.rmtree(copy.path.parent, ignore_errors=True)
        where = "" if place == copy.name else f" in {place}"
        msg = (
            f"Nothing was sent: {path} contains a password or key{where}, which can be masked only "
            "in a text file. Make the file without it, or tell the person where the file is."
        )
        raise ToolError(msg)
    return False


def _is_text(content: bytes) -> bool:
    return b"\0" not in content and not content.startswith(_PACKED)


def _open_source(workspace: Workspace, path: str, max_bytes: int) -> int:
    source = workspace.open(path)
    state = os.fstat(source)
    problem = ""
    if stat.S_ISDIR(state.st_mode):
        problem = f"{path!r} is a folder; send its files one by one, or an archive of it."
    elif state.st_size == 0:
        problem = f"{path!r} is empty; there is nothing to send."
    elif state.st_size > max_bytes:
        problem = f"{path!r} has {format_size(state.st_size)}; this chat accepts at most {format_size(max_bytes)}."
    if problem:
        os.close(source)
        _raise_tool_error(problem)
    return source


def _copy_file(
    read: Callable[[int], bytes], target: Path, max_bytes: int, stop: StopEvent
) -> tuple[int, bytes]:
    """Copy a file that may grow meanwhile; return size and first bytes."""
    written, beginning = 0, b""
    partial = target.with_name(_PARTIAL if target.name != _PARTIAL else _OTHER_PARTIAL)
    try:
        with partial.open("wb") as copy:
            for piece in iter(lambda: read(_CHUNK_BYTES), b""):
                beginning = beginning or piece[:SIGNATURE_BYTES]
                written += len(piece)
                if written > max_bytes or stop.is_set():
                    _raise_tool_error("Nothing was sent: the file grew, or the call was stopped.")
                copy.write(piece)
            copy.flush()
            os.fsync(copy.fileno())
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)
    return written, beginning


def _remove_folders(folder: Path, keep: Collection[str], before: float) -> None:
    for path in _folders_older_than(folder, before):
        if path.name not in keep:
            shutil.rmtree(path, ignore_errors=True)


def _folders_older_than(folder: Path, before: float) -> Iterator[Path]:
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_dir() and path.stat().st_mtime < before:
            yield path


def _raise_tool_error(words: str) -> None:
    raise ToolError(words)
