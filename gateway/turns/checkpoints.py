"""`TextCheckpoints`: stores the visible text of running turns, in case the process dies."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping

from sessions.errors import StoreCorrupt, StoreError
from sessions.store.store import SessionStore

log = logging.getLogger(__name__)

_CHECKPOINT_SECONDS = 0.75
"""Seconds from new text to the write; with the commit, text is stored a second after it appeared."""


class TextCheckpoints:
    """Writes the text of all turns that have grown, together, and of no other turn."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._grown: dict[str, Callable[[], str]] = {}  # by turn: reads the text at the write
        self._has_grown = asyncio.Event()
        self._is_urgent = asyncio.Event()
        self._is_failing = False  # the last write failed

    def mark(self, turn_id: str, read_text: Callable[[], str], *, urgent: bool = False) -> None:
        """Store the text of a turn soon, or at once if that is urgent; called for every token."""
        self._grown[turn_id] = read_text
        self._has_grown.set()
        if urgent:
            self._is_urgent.set()

    def discard(self, turn_id: str) -> None:
        """Store nothing of a turn, because its text is committed in another way."""
        self._grown.pop(turn_id, None)

    async def run(self) -> None:
        """Write checkpoints until cancelled; a failed write is repeated with the next one."""
        while True:
            await self._has_grown.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECKPOINT_SECONDS):
                    await self._is_urgent.wait()
            self._has_grown.clear()
            self._is_urgent.clear()
            await self._write()

    async def _write(self) -> None:
        grown, self._grown = self._grown, {}
        if not grown:
            return
        texts = {turn: read_text() for turn, read_text in grown.items()}
        try:
            await self._store.save_texts(texts)
        except StoreCorrupt:
            await self._write_separately(texts)
        except StoreError as error:
            level = logging.DEBUG if self._is_failing else logging.WARNING
            log.log(
                level, "the texts of %d running turns are not stored yet: %s", len(texts), error
            )
            self._is_failing = True
            for turn, read_text in grown.items():
                self._grown.setdefault(turn, read_text)
            self._has_grown.set()
        else:
            self._is_failing = False

    async def _write_separately(self, texts: Mapping[str, str]) -> None:
        """Write each text by itself, so that a damaged row does not prevent the others."""
        for turn, text in texts.items():
            try:
                await self._store.save_texts({turn: text})
            except StoreError as error:
                log.warning("%s: the text is not stored: %s", turn, error)
