"""Files that the agent sends into a chat: a copy of each is kept until the chat has it.

The agent may change or remove its file at any moment, and a link may be put in its place; what is
sent is what the file held when it was handed over.
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
from agent.request.pictures import BEGINNING, kind_of
from agent.tools.blocking import Stop, in_thread
from agent.tools.confine import Workspace, entered
from gateway.delivery.outbox import Delivery
from gateway.delivery.view import Body, read_address, write_body
from platforms.core.contract import Address, Capabilities
from sessions.changes import PutItem
from sessions.records import Item, ItemState
from sessions.store.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.size import in_words

log = logging.getLogger(__name__)

SENT_WITHIN = 20.0
"""Seconds that a call waits to hear whether the chat has the file; after that it goes on its way."""

_KEPT_SECONDS = 3600.0
_PIECE = 1 << 20
_LEAST_FREE = 100_000_000  # bytes of the disk that are left to others


class Parcel(msgspec.Struct, frozen=True):
    """A file on its way."""

    path: Path
    name: str
    media_type: str
    size: int


class Parcels:
    """Takes files out of workspaces and hands them to delivery."""

    def __init__(
        self,
        store: SessionStore,
        delivery: Delivery,
        clock: Clock,
        folder: Path,
        capabilities: Callable[[Address], Capabilities | None],
        *,
        keep: float,
    ) -> None:
        self._store = store
        self._delivery = delivery
        self._clock = clock
        self._sent = folder / "sent"  # copies are kept here until they are sent,
        self._shown = folder / "shown"  # and here as long as people may look at them
        self._capabilities = capabilities
        self._keep = keep  # seconds, for what people read from us; 0: for ever

    async def send(
        self,
        turn: str,
        address: str,
        reply_to: str,
        workspace: Path,
        path: str,
        caption: str,
        key: str,
    ) -> str:
        """See `agent.tools.contract.SendFile`. The same key is the same file, sent once."""
        can = self._capabilities(read_address(address))
        if can is None or can.files is None:
            msg = f"This chat takes no files. Tell the person where it is: {workspace / path}"
            raise ToolError(msg)
        item_id = f"f_{hashlib.sha256(key.encode()).hexdigest()[:24]}"
        most, folder = can.files, (self._shown if can.hosts_files else self._sent) / item_id
        parcel = await in_thread(lambda stop: _packed(workspace, path, folder, most, stop))
        body = Body(
            text=caption, path=str(parcel.path), name=parcel.name, media_type=parcel.media_type
        )
        item = Item(
            id=item_id,
            address=address,
            kind="upload",
            state=ItemState.PENDING,
            body=write_body(body),
            created_at=self._clock.now(),
            turn_id=turn,
            reply_to=reply_to or None,
        )
        await self._delivery.put(PutItem(item))
        return await self._outcome(item_id, f"{parcel.name} ({in_words(parcel.size)})")

    async def _outcome(self, item_id: str, what: str) -> str:
        try:
            async with asyncio.timeout(SENT_WITHIN):
                state = await self._delivery.wait_sent(item_id)
        except TimeoutError:
            return f"{what} is on its way; the chat does not have it yet."
        if state is not ItemState.SENT:
            msg = f"The chat did not take {what}."
            raise ToolError(msg)
        return f"{what} was sent to the chat."

    async def sweep(self) -> None:
        """Remove the copies of files that nobody waits for any more."""
        open_items = {item.id for item in await self._store.open_items()}
        before = self._clock.now() / 1000 - _KEPT_SECONDS
        await in_thread(lambda _: _swept(self._sent, open_items, before))
        if self._keep:
            old = self._clock.now() / 1000 - self._keep
            await in_thread(lambda _: _swept(self._shown, open_items, old))


# --- what blocks ----------------------------------------------------------------------------------


def _packed(root: Path, path: str, folder: Path, most: int, stop: Stop) -> Parcel:
    with entered(root) as workspace:
        name = PurePosixPath(workspace.name(path)).name
        source = _opened(workspace, path, most)
        with open(source, "rb") as file:  # noqa: PTH123 - a descriptor
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                if shutil.disk_usage(folder).free - most < _LEAST_FREE:
                    _complain("The disk is nearly full; nothing was sent.")
                copied = _copied(file.read, folder / name, most, stop)
            except OSError as error:
                msg = f"{name} could not be copied to be sent: {error.strerror}."
                raise ToolError(msg) from None
    media_type = kind_of(copied[1]) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Parcel(folder / name, name, media_type, copied[0])


def _opened(workspace: Workspace, path: str, most: int) -> int:
    source = workspace.open(path)
    state = os.fstat(source)
    wrong = ""
    if stat.S_ISDIR(state.st_mode):
        wrong = f"{path!r} is a folder; send its files one by one, or an archive of it."
    elif state.st_size == 0:
        wrong = f"{path!r} is empty; there is nothing to send."
    elif state.st_size > most:
        wrong = f"{path!r} has {in_words(state.st_size)}; this chat takes at most {in_words(most)}."
    if wrong:
        os.close(source)
        _complain(wrong)
    return source


def _copied(read: Callable[[int], bytes], target: Path, most: int, stop: Stop) -> tuple[int, bytes]:
    """Copy a file that may grow meanwhile; gives its size and how it begins."""
    written, beginning = 0, b""
    partial = target.with_name(".part")
    try:
        with partial.open("wb") as copy:
            for piece in iter(lambda: read(_PIECE), b""):
                beginning = beginning or piece[:BEGINNING]
                written += len(piece)
                if written > most or stop.is_set():
                    _complain("Nothing was sent: the file grew, or the call was stopped.")
                copy.write(piece)
            copy.flush()
            os.fsync(copy.fileno())
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)
    return written, beginning


def _swept(folder: Path, keep: Collection[str], before: float) -> None:
    for each in _old(folder, before):
        if each.name not in keep:
            shutil.rmtree(each, ignore_errors=True)


def _old(folder: Path, before: float) -> Iterator[Path]:
    for each in sorted(folder.iterdir()) if folder.is_dir() else ():
        if each.is_dir() and each.stat().st_mtime < before:
            yield each


def _complain(words: str) -> None:
    raise ToolError(words)
