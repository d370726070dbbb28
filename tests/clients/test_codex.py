"""Codex as a client of the Responses API: a task with its own tools, and a second message."""

import base64
import json
import re
from pathlib import Path

import pytest

from tests.clients.kit import node_program, run
from tests.clients.node_programs import TOO_LONG, coding_project, red_square
from tests.clients.scripted import Request, offered, plausible, text_of
from tests.e2e.api_kit import daemon_for
from tests.fakes.model_script import Script, calls, ok
from tests.fakes.model_server import ModelServer, always

TASK = "Write the file hello.txt"
WRITE = "printf 'good day\\n' >hello.txt && cat hello.txt"
PATCH = """apply_patch <<'END'
*** Begin Patch
*** Update File: hello.txt
@@
-good day
+good morning
*** End Patch
END
"""
MADRID = {"city": "Madrid", "people": 3_300_000}
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["city", "people"],
    "additionalProperties": False,
}
FREELY = "--dangerously-bypass-approvals-and-sandbox"
ANYWHERE = (FREELY, "--skip-git-repo-check")


@pytest.fixture(scope="module")
def codex() -> Path:
    return node_program("codex", "@openai/codex@0.169.0") / "codex"


def last_results(request: Request) -> list[str]:
    """Return the results of tools since the task of the user."""
    found: list[str] = []
    for each in request["messages"]:
        if each["role"] == "user":
            found = []
        elif each["role"] == "tool":
            found.append(text_of(each))
    return found


def working(request: Request) -> Script:
    """Write a file with a command, change it with a patch, and tell the results."""
    assert "exec_command" in offered(request)
    if "hello.txt" not in text_of([m for m in request["messages"] if m["role"] == "user"][-1]):
        return ok("Yes, it is.")
    match len(last_results(request)):
        case 0:
            return calls(("c1", "exec_command", json.dumps({"cmd": WRITE})))
        case 1:
            return calls(("c2", "exec_command", json.dumps({"cmd": PATCH})))
        case _:
            return ok("It says good morning.")


def looking(request: Request) -> Script:
    """Look at a picture and run a command in the same answer, then tell the colour."""
    if any(each["role"] == "tool" for each in request["messages"]):
        return ok("It is red.")
    path = re.findall(r"<cwd>(.*?)</cwd>", str(request["messages"]))[-1]
    return calls(
        ("c1", "view_image", json.dumps({"path": f"{path}/red.png"})),
        ("c2", "exec_command", json.dumps({"cmd": "echo looked"})),
    )


async def test_codex_shows_a_picture_that_its_tool_has_read(codex: Path, tmp_path: Path) -> None:
    async with ModelServer(looking) as server:
        daemon = daemon_for(tmp_path / "home", server)
        async with daemon:
            project = await coding_project(codex, tmp_path, daemon)
            project.configure("Codex", "wire_api", project.home / ".codex/config.toml")
            (project.folder / "red.png").write_bytes(red_square())
            ended = await project.run("exec", *ANYWHERE, "Which colour is red.png?")
    assert ended.out.strip() == "It is red."
    told = server.requests[-1].body["messages"]
    assert [each["role"] for each in told[-3:]] == ["tool", "tool", "user"]
    assert "looked" in told[-2]["content"]
    assert base64.b64encode(red_square()).decode() in str(told[-1])


async def test_codex_gets_an_answer_that_fits_a_schema(codex: Path, tmp_path: Path) -> None:
    async with ModelServer(plausible(document=MADRID)) as server:
        daemon = daemon_for(tmp_path / "home", server)
        async with daemon:
            project = await coding_project(codex, tmp_path, daemon)
            project.configure("Codex", "wire_api", project.home / ".codex/config.toml")
            (project.folder / "city.json").write_text(json.dumps(CITY))
            words = ("--output-schema", "city.json", "Which is the largest city of Spain?")
            ended = await project.run("exec", *ANYWHERE, *words)
    assert json.loads(ended.out) == MADRID
    assert server.requests[0].body["response_format"]["json_schema"]["schema"] == CITY


async def test_codex_recognizes_a_conversation_that_is_too_long(
    codex: Path, tmp_path: Path
) -> None:
    async with ModelServer(always(TOO_LONG)) as server:
        daemon = daemon_for(tmp_path / "home", server)
        async with daemon:
            project = await coding_project(codex, tmp_path, daemon)
            project.configure("Codex", "wire_api", project.home / ".codex/config.toml")
            ended = await project.fail("exec", *ANYWHERE, "Go on.")
    assert "ran out of room in the model's context window" in ended.err
    assert len(server.requests) == 1


async def test_codex_runs_a_task_with_its_own_tools(codex: Path, tmp_path: Path) -> None:
    async with ModelServer(working) as server:
        daemon = daemon_for(tmp_path / "home", server)
        async with daemon:
            project = await coding_project(codex, tmp_path, daemon)
            project.configure("Codex", "wire_api", project.home / ".codex/config.toml")
            await run("git", "init", "-q", project.folder)
            first = await project.run("exec", FREELY, TASK)
            second = await project.run("exec", "resume", "--last", FREELY, "Is it there?")
    assert first.out.strip() == "It says good morning.", first.all
    assert (project.folder / "hello.txt").read_text() == "good morning\n"
    assert second.out.strip() == "Yes, it is.", second.all

    bodies = [each.body for each in server.requests]
    assert len(bodies) == 4
    one, two = last_results(bodies[2])
    assert "good day" in one
    assert "Success" in two
    tasks = [each["role"] for each in bodies[3]["messages"] if TASK in text_of(each)]
    assert tasks == ["user"]
