"""Claude Code as a client of Anthropic's protocol: a task with its own tools, and a second message."""

import re
from pathlib import Path

import pytest

from tests.clients.kit import Ended, node_program, run
from tests.clients.node_programs import guest_key, own_home
from tests.clients.scripted import offered, plausible, results, text_of
from tests.clients.settings_page import documented, filled
from tests.e2e.api_kit import daemon_for
from tests.e2e.daemon import Daemon
from tests.fakes.model_server import ModelServer

TASK = "Write the file hello.txt"
EDITS = ("--permission-mode", "acceptEdits")


@pytest.fixture(scope="module")
def claude() -> Path:
    return node_program("claude-code", "@anthropic-ai/claude-code@2.1.328") / "claude"


class Project:
    """A folder, and Claude Code with the settings of the page."""

    def __init__(self, claude: Path, folder: Path, daemon: Daemon, key: str) -> None:
        self._claude = claude
        page = filled(documented("Claude Code", "ANTHROPIC_BASE_URL"), daemon, key)
        self._env = own_home(folder / "user") | dict(re.findall(r"\b([A-Z_]+)=(\S+)", page))
        self.folder = folder / "project"
        self.folder.mkdir()

    async def run(self, *words: str) -> Ended:
        return await run(self._claude, *words, env=self._env, cwd=self.folder)


async def test_claude_code_runs_a_task_with_its_own_tools(claude: Path, tmp_path: Path) -> None:
    target = tmp_path / "project/hello.txt"
    model = plausible(tools={"Write": {"file_path": str(target), "content": "good morning\n"}})
    async with ModelServer(model) as server:
        daemon = daemon_for(tmp_path / "home", server)
        async with daemon:
            project = Project(claude, tmp_path, daemon, await guest_key(daemon))
            first = await project.run("-p", TASK, *EDITS)
            second = await project.run("-p", "--continue", "Is it there?", *EDITS)
    assert first.code == 0, first.all
    assert target.read_text() == "good morning\n"
    assert "The result is File created successfully" in first.out, first.all
    assert second.code == 0, second.all

    working = [each.body for each in server.requests if "Write" in offered(each.body)]
    assert "created successfully" in results(working[1])["Write"]
    tasks = [each["role"] for each in working[-1]["messages"] if TASK in text_of(each)]
    assert tasks == ["user"]
