"""opencode as a client of the chat API: a task with its own tools, and a second message."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.clients.kit import node_program
from tests.clients.node_programs import TOO_LONG, coding_project
from tests.clients.scripted import Request, offered, plausible, results, text_of
from tests.e2e.api_kit import daemon_for
from tests.fakes.model_script import Script, ok
from tests.fakes.model_server import ModelServer

TASK = "Write the file hello.txt"
MODEL = ("-m", "holdfast/scripted")
NO_NETWORK = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}


@pytest.fixture(scope="module")
def opencode() -> Path:
    return node_program("opencode", "opencode-ai@1.18.33") / "opencode"


def said(request: Any, role: str) -> list[str]:
    return [text_of(each) for each in request["messages"] if each["role"] == role]


async def test_opencode_runs_a_task_with_its_own_tools(opencode: Path, tmp_path: Path) -> None:
    target = tmp_path / "project/hello.txt"
    writing = {"filePath": str(target), "content": "good morning\n"}
    model = plausible(tools={"write": writing}, text="A title about greetings")
    async with ModelServer(model) as server:
        daemon = daemon_for(tmp_path / "home", server)
        async with daemon:
            project = await coding_project(opencode, tmp_path, daemon)
            project.configure("opencode", "baseURL", project.folder / "opencode.json")
            project.env |= NO_NETWORK
            first = await project.run("run", *MODEL, TASK)
            await project.run("run", *MODEL, "--continue", "Is it there?")
            stored = json.loads(await daemon.run("sessions", "list", "--json"))
    assert target.read_text() == "good morning\n"
    assert "The result is Wrote file successfully." in first.out

    bodies = [each.body for each in server.requests]
    working = [each for each in bodies if "write" in offered(each)]
    titles = [each for each in bodies if not offered(each)]
    assert len(titles) == 1
    assert "title" in said(titles[0], "system")[-1]
    assert "People talk to you in a chat." not in str(titles[0])  # the agent's own prompt
    # The title is no part of the conversation, and each message stands in the history once.
    assert all("A title about greetings" not in json.dumps(each) for each in working)
    assert [len(said(each, "user")) for each in working] == [1, 1, 2, 2]
    assert results(working[1])["write"].startswith("Wrote file")
    assert [TASK in text for text in said(working[2], "user")] == [True, False]
    assert sorted(each["messages"] for each in stored) == [3, 8]


async def test_opencode_shortens_a_conversation_that_is_too_long(
    opencode: Path, tmp_path: Path
) -> None:
    asked: list[str] = []

    def model(request: Request) -> Script:
        if not offered(request):
            summing_up = "compacted" in said(request, "user")[-1]
            return ok("A summary of all." if summing_up else "A title")
        asked.append(str(request["messages"]))
        return TOO_LONG if len(asked) == 1 else ok("That was shorter.")

    async with ModelServer(model) as server:
        daemon = daemon_for(tmp_path / "home", server)
        async with daemon:
            project = await coding_project(opencode, tmp_path, daemon)
            project.configure("opencode", "baseURL", project.folder / "opencode.json")
            project.env |= NO_NETWORK
            ended = await project.fail("run", *MODEL, TASK)  # also if it recovered
    assert "That was shorter." in ended.out
    assert len(asked) == 2
    assert "A summary of all." in asked[1]
