"""Claude Code as a client of Anthropic's protocol: a task with its own tools, and a second message."""

import base64
from pathlib import Path

import pytest

from tests.clients.kit import node_program
from tests.clients.node_programs import TOO_LONG, coding_project, red_square
from tests.clients.scripted import Request, offered, plausible, results, text_of
from tests.e2e.api_kit import daemon_for
from tests.fakes.model_script import Script, ok
from tests.fakes.model_server import ModelServer, always

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


async def test_claude_code_shows_a_picture_that_its_tool_has_read(
    claude: Path, tmp_path: Path
) -> None:
    picture = tmp_path / "project/red.png"
    reading = plausible(tools={"Read": {"file_path": str(picture)}}, text="It is red.")

    def model(request: Request) -> Script:
        # The picture arrives as a message after the result.
        read = any(each["role"] == "tool" for each in request["messages"])
        return ok("It is red.") if read else reading(request)

    async with ModelServer(model) as server:
        daemon = daemon_for(tmp_path / "home", server)
        async with daemon:
            project = await coding_project(claude, tmp_path, daemon)
            await project.export("Claude Code", "ANTHROPIC_BASE_URL")
            picture.write_bytes(red_square())
            ended = await project.run("-p", "Which colour is red.png?", "--allowedTools", "Read")
    assert ended.out.strip() == "It is red."
    told = server.requests[-1].body["messages"]
    assert [each["role"] for each in told[-2:]] == ["tool", "user"]
    assert base64.b64encode(red_square()).decode() in str(told[-1])


async def test_claude_code_recognizes_a_conversation_that_is_too_long(
    claude: Path, tmp_path: Path
) -> None:
    async with ModelServer(always(TOO_LONG)) as server:
        daemon = daemon_for(tmp_path / "home", server)
        async with daemon:
            project = await coding_project(claude, tmp_path, daemon)
            await project.export("Claude Code", "ANTHROPIC_BASE_URL")
            ended = await project.fail("-p", "Go on.")
    assert "Prompt is too long" in ended.out
    assert len(server.requests) == 1
