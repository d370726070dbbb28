"""Loader for the pictures of a conversation; each is read once per turn."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent.errors import ToolError
from agent.model.contract import Picture
from agent.request.pictures import (
    MAX_PICTURE_BYTES,
    SIGNATURE_BYTES,
    detect_media_type,
    select_pictures,
)
from agent.tools.blocking import StopEvent, run_in_thread
from agent.tools.confine import open_workspace
from sessions.records import Message


class PictureLoader:
    """Cache of the pictures in one workspace."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._loaded: dict[str, Picture | None] = {}  # None: no longer readable as a picture

    async def load(self, rows: Sequence[Message]) -> Mapping[str, Picture]:
        """Return the pictures to send with these rows, by path; unreadable ones are left out."""
        paths = [file.path for file in select_pictures(rows)]
        missing = [path for path in paths if path not in self._loaded]
        if missing:
            self._loaded |= await run_in_thread(
                lambda _stop: _load_pictures(self._workspace, missing, _stop)
            )
        loaded = ((path, self._loaded[path]) for path in paths)
        return {path: picture for path, picture in loaded if picture is not None}


def _load_pictures(
    workspace: Path, paths: Sequence[str], stop: StopEvent
) -> dict[str, Picture | None]:
    pictures: dict[str, Picture | None] = dict.fromkeys(paths)
    for path in paths:
        if stop.is_set():
            break
        pictures[path] = _load_picture(workspace, path)
    return pictures


def _load_picture(workspace: Path, path: str) -> Picture | None:
    try:
        with open_workspace(workspace) as folder:
            content, _ = folder.read(path, MAX_PICTURE_BYTES)
    except ToolError:  # deleted, or replaced by something that is not a file
        return None
    kind = detect_media_type(content[:SIGNATURE_BYTES])
    return Picture(kind, base64.b64encode(content).decode()) if kind else None
