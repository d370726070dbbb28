"""The folder `received` in a workspace: files from chats and from tools.

It has one subfolder per message or call. The gateway deletes old files there after `media.keep`.
"""

import base64
import binascii
import hashlib
from pathlib import Path

import msgspec

from agent.errors import ToolError
from agent.request.pictures import SIGNATURE_BYTES, detect_media_type
from agent.tools.blocking import StopEvent, run_in_thread
from agent.tools.confine import TEMPORARY_PREFIX, open_by_steps, open_workspace
from agent.tools.output import EncodedFile
from sessions.records import Attachment
from sessions.values.file_names import RECEIVED_FOLDER, clean_media_type, clean_name, unique_name
from sessions.values.size import format_size

MARKER_FILE = f"{TEMPORARY_PREFIX}received"
"""Name of the empty file that marks a folder of received files."""

_MAX_SAVED_FILES = 20  # per call
_MAX_BYTES = 20_000_000  # per file
_RESERVED_BYTES = 50_000_000  # disk space left free
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


async def save_result_files(
    workspace: Path, key: str, files: tuple[EncodedFile, ...]
) -> tuple[Attachment, ...]:
    """Save the files of a result; a file that cannot be saved is returned with its `trouble`.

    `key` is the idempotency key of the call, which names the folder.
    """
    return await run_in_thread(lambda stop: _save_all(workspace, key, files, stop))


def _save_all(
    workspace: Path, key: str, files: tuple[EncodedFile, ...], stop: StopEvent
) -> tuple[Attachment, ...]:
    digest = hashlib.sha256(key.encode(errors="surrogatepass")).digest()
    folder = f"{RECEIVED_FOLDER}/{''.join(_ALPHABET[byte % 32] for byte in digest[:10])}"
    taken: set[str] = set()
    saved = []
    for number, file in enumerate(files):
        media_type = clean_media_type(file.media_type)
        name = unique_name(clean_name(file.name, media_type), taken)
        planned = Attachment(name=name, media_type=media_type, path=f"{folder}/{name}")
        if number >= _MAX_SAVED_FILES:
            trouble = f"only the first {_MAX_SAVED_FILES} files of a result are kept"
            saved.append(msgspec.structs.replace(planned, trouble=trouble))
            continue
        try:
            saved.append(_save(workspace, planned, file.data, stop))
        except ToolError as error:
            saved.append(msgspec.structs.replace(planned, trouble=str(error)))
    return tuple(saved)


def _save(workspace: Path, planned: Attachment, data: str, stop: StopEvent) -> Attachment:
    if len(data) > _MAX_BYTES * 4 // 3 + 4:
        msg = f"too large (at most {format_size(_MAX_BYTES)})"
        raise ToolError(msg)
    try:
        content = base64.b64decode(data)
    except binascii.Error as error:
        msg = f"its content cannot be decoded: {error}"
        raise ToolError(msg) from None
    with open_workspace(workspace, create=True, opener=open_by_steps) as opened:
        if opened.free_bytes() < len(content) + _RESERVED_BYTES:
            msg = "the disk is full"
            raise ToolError(msg)
        opened.make_marked_folder(RECEIVED_FOLDER, MARKER_FILE)
        opened.write(planned.path, content, planned.path, is_cancelled=stop.is_set)
    detected = detect_media_type(content[:SIGNATURE_BYTES])
    claimed = planned.media_type
    if detected is None and claimed.startswith("image/"):  # not a picture that models accept
        detected = claimed if claimed == "image/svg+xml" else "application/octet-stream"
    return msgspec.structs.replace(
        planned, fetched=True, size=len(content), media_type=detected or claimed
    )
