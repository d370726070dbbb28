"""Claude Code as a client of Anthropic's protocol: a task with its own tools, and a second message."""

from pathlib import Path

import pytest

from tests.clients.kit import node_program
from tests.clients.node_programs import coding_project
from tests.clients.scripted import offered, plausible, results, text_of
from tests.e2e.api_kit import daemon_for
from tests.fakes.model_server import ModelServer

TASK = "Write the file hello.txt"
EDITS = ("--permission-mode", "acceptEdits")


@pytest.fixture(scope="module")
def claude() -> Path:
    return node_program("claude-code", "@anthropic-ai/claude-code@2.1.328") / "claude"


async def test_claude_code_runs_a_task_with_its_own_tools(claude: Path, tmp_path: Path) -> None:
    target = tmp_path / "project/hello.txt"
    model = plausible(tools={"Write": {"file_path": str(target), "content": "good morning\n"}})
    async with ModelServer(model) as server:
        daemon = daemon_for(tmp_path / "home", server)
        async with daemon:
            project = await coding_project(claude, tmp_path, daemon)
            await project.export("Claude Code", "ANTHROPIC_BASE_URL")
            first = await project.run("-p", TASK, *EDITS)
            await project.run("-p", "--continue", "Is it there?", *EDITS)
    assert target.read_text() == "good morning\n"
    assert "The result is File created successfully" in first.out, first.all

    working = [each.body for each in server.requests if "Write" in offered(each.body)]
    assert "created successfully" in results(working[1])["Write"]
    tasks = [each["role"] for each in working[-1]["messages"] if TASK in text_of(each)]
    assert tasks == ["user"]
