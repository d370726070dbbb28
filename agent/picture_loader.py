"""Reads the pictures that a conversation shows, each once in a turn."""

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
    """The pictures of one workspace, as models are given them."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._loaded: dict[str, Picture | None] = {}  # None: there is no such picture any more

    async def load(self, rows: Sequence[Message]) -> Mapping[str, Picture]:
        """Give the pictures that are to be shown with these rows, by path."""
        paths = [file.path for file in select_pictures(rows)]
        missing = [path for path in paths if path not in self._loaded]
        if missing:
            self._loaded |= await run_in_thread(
                lambda _stop: _load_pictures(self._workspace, missing, _stop)
            )
        found = ((path, self._loaded[path]) for path in paths)
        return {path: picture for path, picture in found if picture is not None}


def _load_pictures(
    workspace: Path, paths: Sequence[str], stop: StopEvent
) -> dict[str, Picture | None]:
    opened: dict[str, Picture | None] = dict.fromkeys(paths)
    for path in paths:
        if stop.is_set():
            break
        opened[path] = _load_picture(workspace, path)
    return opened


def _load_picture(workspace: Path, path: str) -> Picture | None:
    try:
        with open_workspace(workspace) as folder:
            content, _ = folder.read(path, MAX_PICTURE_BYTES)
    except ToolError:  # taken away, or changed into something else, since it came
        return None
    kind = detect_media_type(content[:SIGNATURE_BYTES])
    return Picture(kind, base64.b64encode(content).decode()) if kind else None
