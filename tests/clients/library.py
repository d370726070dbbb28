"""A daemon, its scripted model, and a library whose tasks run as a process of their own."""

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from tests.clients.kit import SCRIPTS, Ended, run
from tests.clients.scripted import Request
from tests.clients.settings_page import exported, write_files
from tests.e2e.api_kit import daemon_for
from tests.e2e.daemon import Daemon
from tests.fakes.model_script import Script
from tests.fakes.model_server import ModelServer, Received


class Library:
    """Tasks of one library against one daemon, with the settings of its section in docs/clients.md."""

    def __init__(
        self, python: Path, tasks: str, section: str, daemon: Daemon, model: ModelServer
    ) -> None:
        self._command = (python, SCRIPTS / tasks)
        self._section = section
        self._seen = 0
        self.daemon = daemon
        self.model = model

    async def run(self, *task: str) -> Ended:
        """Run one task to its end."""
        self._seen = len(self.model.requests)
        settings = write_files(self._section, self.daemon.home.parent / "settings", self.daemon)
        env = exported(self.daemon) | {"PYTHONPATH": str(settings), "HOME": str(settings)}
        return await run(*self._command, *task, env=env, cwd=settings)

    async def answer(self, *task: str) -> str:
        """Run one task, which must succeed, and return the last line of its output."""
        ended = await self.run(*task)
        assert ended.code == 0, ended.all
        return ended.out.strip().rpartition("\n")[2]

    @property
    def asked(self) -> list[Received]:
        """Requests to the model since the last task began."""
        return self.model.requests[self._seen :]


@contextlib.asynccontextmanager
async def library(
    folder: Path, python: Path, tasks: str, section: str, handler: Callable[[Request], Script]
) -> AsyncIterator[Library]:
    """Start a daemon with this model for the tasks of one library."""
    async with ModelServer(handler) as model, daemon_for(folder / "home", model) as daemon:
        yield Library(python, tasks, section, daemon, model)
