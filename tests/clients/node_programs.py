"""Programs for Node, run beside the settings of their section of docs/clients.md."""

import json
import shutil
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.clients.kit import SCRIPTS, Ended, run
from tests.clients.settings_page import documented, exported, filled, guest_key, write_files
from tests.e2e.daemon import Daemon


class NodeFolder:
    """A folder with a program, the files that a section of the page names, and its packages."""

    def __init__(self, programs: Path, heading: str, folder: Path, daemon: Daemon) -> None:
        self._node = programs / "node"
        self._daemon = daemon
        self.folder = write_files(heading, folder, daemon)
        # Node looks for packages beside the real file of a program, so the program is copied.
        (folder / "node_modules").symlink_to(programs.parent)

    async def run(self, program: str, *words: str, env: Mapping[str, str] | None = None) -> Any:
        """Run a program, and return the JSON document that it prints."""
        shutil.copy(SCRIPTS / program, self.folder)
        variables = exported(self._daemon) | dict(env or {})
        ended = await run(self._node, program, *words, env=variables, cwd=self.folder)
        assert ended.code == 0, ended.all
        return json.loads(ended.out)


class CodingProject:
    """A project folder, and a coding program with a home folder and a guest's key of its own."""

    def __init__(self, program: Path, folder: Path, daemon: Daemon, key: str) -> None:
        self._program = program
        self._daemon = daemon
        self._key = key
        self.home = folder / "user"
        self.folder = folder / "project"
        self.folder.mkdir()
        self.home.mkdir()
        names = ("CACHE", "CONFIG", "DATA", "STATE")
        self.env = {
            "HOME": str(self.home),
            "PWD": str(self.folder),  # some programs trust it more than their real folder
            # The packages of npm start `node`; this is the one that was installed with them.
            "PATH": f"{program.parent}:/usr/local/bin:/usr/bin:/bin",
            **{f"XDG_{name}_HOME": str(self.home / name.lower()) for name in names},
            **exported(daemon, key),
        }

    def configure(self, heading: str, word: str, path: Path) -> None:
        """Write a settings file of the page."""
        path.parent.mkdir(exist_ok=True)
        path.write_text(filled(documented(heading, word), self._daemon, self._key))

    async def export(self, heading: str, word: str) -> None:
        """Set the variables that a block of the page exports."""
        block = filled(documented(heading, word), self._daemon, self._key)
        lines = [line for line in block.splitlines() if line.startswith("export ")]
        shown = await run("bash", "-c", "\n".join([*lines, "env -0"]), env=self.env)
        self.env |= dict(each.split("=", 1) for each in shown.out.split("\0") if "=" in each)

    async def run(self, *words: str) -> Ended:
        """Run the program in the project folder; it has to succeed."""
        ended = await run(self._program, *words, env=self.env, cwd=self.folder)
        assert ended.code == 0, ended.all
        return ended

    async def fail(self, *words: str) -> Ended:
        """Run the program in the project folder; it has to fail."""
        ended = await run(self._program, *words, env=self.env, cwd=self.folder)
        assert ended.code == 1, ended.all
        return ended


async def coding_project(program: Path, folder: Path, daemon: Daemon) -> CodingProject:
    """Return a project with the key that the page recommends for programs with tools of their own."""
    return CodingProject(program, folder, daemon, await guest_key(daemon))


TOO_LONG = (
    'S400"This model\'s maximum context length is 8192 tokens. However, you requested 9000 tokens."'
)
"""The answer of a model service to a conversation that is too long."""


def red_square() -> bytes:
    """Return a small picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        whole = kind + data
        return struct.pack(">I", len(data)) + whole + struct.pack(">I", zlib.crc32(whole))

    pixels = zlib.compress((b"\0" + b"\xff\0\0" * 8) * 8)
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
