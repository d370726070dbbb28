"""Files with the whole of texts that are too long for messages."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from gateway.delivery.long_text import FILE_NAME, FILE_TYPE, encode_file
from platforms.core.contract import Capabilities, Upload
from sessions.values.item_ids import item_of_op


class TextFiles:
    """Writes the file of a long text before each attempt to send it.

    `gateway.media.outgoing.OutgoingFiles` removes the folder of an item that is no longer queued.
    """

    def __init__(self, folder: Path, redact: Callable[[str], str]) -> None:
        self.folder = folder
        self._redact = redact

    async def write(self, op: Upload, text: str, capabilities: Capabilities) -> Upload:
        """Write the file of an item and return the op that sends the file; raises `OSError`."""
        path = self.folder / item_of_op(op.op) / FILE_NAME
        await asyncio.to_thread(self._write, path, text, capabilities.files or 0)
        return msgspec.structs.replace(op, path=str(path), name=FILE_NAME, media_type=FILE_TYPE)

    def _write(self, path: Path, text: str, max_bytes: int) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = encode_file(self._redact(text), max_bytes)
        partial = path.with_suffix(".part")
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
