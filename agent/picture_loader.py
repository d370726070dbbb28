"""Reads the pictures that a conversation shows, each once in a turn."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent.errors import ToolError
from agent.model.contract import Picture
from agent.request.pictures import BEGINNING, LARGEST, in_view, kind_of
from agent.tools.blocking import Stop, in_thread
from agent.tools.confine import entered
from sessions.records import Message


class Album:
    """The pictures of one workspace, as models are given them."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._read: dict[str, Picture | None] = {}  # None: there is no such picture any more

    async def look(self, rows: Sequence[Message]) -> Mapping[str, Picture]:
        """Give the pictures that are to be shown with these rows, by path."""
        paths = [file.path for file in in_view(rows)]
        missing = [path for path in paths if path not in self._read]
        if missing:
            self._read |= await in_thread(lambda _stop: _open(self._workspace, missing, _stop))
        found = ((path, self._read[path]) for path in paths)
        return {path: picture for path, picture in found if picture is not None}


def _open(workspace: Path, paths: Sequence[str], stop: Stop) -> dict[str, Picture | None]:
    opened: dict[str, Picture | None] = dict.fromkeys(paths)
    for path in paths:
        if stop.is_set():
            break
        opened[path] = _picture(workspace, path)
    return opened


def _picture(workspace: Path, path: str) -> Picture | None:
    try:
        with entered(workspace) as folder:
            content, _ = folder.read(path, LARGEST)
    except ToolError:  # taken away, or changed into something else, since it came
        return None
    kind = kind_of(content[:BEGINNING])
    return Picture(kind, base64.b64encode(content).decode()) if kind else None
