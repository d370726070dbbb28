"""Programs for Node, run beside the settings of their section of docs/clients.md."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.clients.kit import SCRIPTS, run
from tests.clients.settings_page import exported, write_files
from tests.e2e.api_kit import KEY
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
        ended = await run(
            *(self._node, program, *words),
            env=exported(self._daemon) | dict(env or {}),
            cwd=self.folder,
        )
        assert ended.code == 0, ended.all
        return json.loads(ended.out)


async def guest_key(daemon: Daemon, name: str = "coding") -> str:
    """Add the key that the page recommends for programs with tools of their own."""
    said = await daemon.run("keys", "add", name, "--role", "guest")
    found = [line for line in said.splitlines() if line.startswith("hf-")]
    assert found, said
    assert found[0] != KEY
    return found[0].strip()


def own_home(folder: Path) -> dict[str, str]:
    """Return variables that give a program an empty home folder."""
    folder.mkdir(exist_ok=True)
    names = ("CACHE", "CONFIG", "DATA", "STATE")
    return {
        "HOME": str(folder),
        **{f"XDG_{name}_HOME": str(folder / name.lower()) for name in names},
    }
