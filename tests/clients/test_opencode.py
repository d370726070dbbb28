"""opencode as a client of the chat API: a task with its own tools, and a second message."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.clients.kit import Ended, node_program, run
from tests.clients.node_programs import guest_key, own_home
from tests.clients.scripted import offered, plausible, results, text_of
from tests.clients.settings_page import documented, filled
from tests.e2e.api_kit import daemon_for
from tests.e2e.daemon import Daemon
from tests.fakes.model_server import ModelServer

TASK = "Write the file hello.txt"
NO_NETWORK = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}


@pytest.fixture(scope="module")
def opencode() -> Path:
    return node_program("opencode", "opencode-ai@1.18.33") / "opencode"


class Project:
    """A folder with the settings of the page, and opencode in it."""

    def __init__(self, opencode: Path, folder: Path, daemon: Daemon, key: str) -> None:
        self._opencode = opencode
        self._home = folder / "user"
        self.folder = folder / "project"
        self.folder.mkdir()
        settings = filled(documented("opencode", "baseURL"), daemon, key)
        (self.folder / "opencode.json").write_text(settings)

    async def run(self, *words: str) -> Ended:
        command = (self._opencode, "run", "-m", "holdfast/scripted", *words)
        return await run(*command, env=own_home(self._home) | NO_NETWORK, cwd=self.folder)


def said(request: Any, role: str) -> list[str]:
    return [text_of(each) for each in request["messages"] if each["role"] == role]


async def test_opencode_runs_a_task_with_its_own_tools(opencode: Path, tmp_path: Path) -> None:
    target = tmp_path / "project/hello.txt"
    writing = {"filePath": str(target), "content": "good morning\n"}
    model = plausible(tools={"write": writing}, text="A title about greetings")
    async with ModelServer(model) as server:
        daemon = daemon_for(tmp_path / "home", server)
        async with daemon:
            project = Project(opencode, tmp_path, daemon, await guest_key(daemon))
            first = await project.run(TASK)
            second = await project.run("--continue", "Is it there?")
            stored = json.loads(await daemon.run("sessions", "list", "--json"))
    assert first.code == 0, first.all
    assert target.read_text() == "good morning\n"
    assert "The result is Wrote file successfully." in first.out
    assert second.code == 0, second.all

    bodies = [each.body for each in server.requests]
    working = [each for each in bodies if "write" in offered(each)]
    titles = [each for each in bodies if not offered(each)]
    assert len(titles) == 1
    assert "title" in said(titles[0], "system")[-1]
    # The title is no part of the conversation, and each message stands in the history once.
    assert all("A title about greetings" not in json.dumps(each) for each in working)
    assert [len(said(each, "user")) for each in working] == [1, 1, 2, 2]
    assert results(working[1])["write"].startswith("Wrote file")
    assert [TASK in text for text in said(working[2], "user")] == [True, False]
    assert sorted(each["messages"] for each in stored) == [3, 8]
