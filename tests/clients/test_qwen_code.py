"""Qwen Code as a client of the chat API: a task with its own tools."""

from pathlib import Path

import pytest

from tests.clients.kit import node_program
from tests.clients.node_programs import CodingProject, coding_project
from tests.clients.scripted import Request, offered, plausible, results, text_of
from tests.e2e.api_kit import KEY, daemon_for
from tests.fakes.model_script import Script, ok
from tests.fakes.model_server import ModelServer

TASK = "Write the file hello.txt"


@pytest.fixture(scope="module")
def qwen() -> Path:
    return node_program("qwen-code", "@qwen-code/qwen-code@0.24.4") / "qwen"


async def test_qwen_code_runs_a_task_with_its_own_tools(qwen: Path, tmp_path: Path) -> None:
    target = tmp_path / "project/hello.txt"
    writing = plausible(
        tools={"write_file": {"file_path": str(target), "content": "good morning\n"}}
    )

    def model(request: Request) -> Script:
        asked = [text_of(each) for each in request["messages"] if each["role"] == "user"][-1]
        return writing(request) if TASK in asked else ok("There is nothing to remember.")

    async with ModelServer(model) as server:
        daemon = daemon_for(tmp_path / "home", server)
        async with daemon:
            project = await coding_project(qwen, tmp_path, daemon)
            await project.export("Qwen Code", "OPENAI_BASE_URL")
            ended = await project.run("--approval-mode", "auto-edit", TASK)
    assert target.read_text() == "good morning\n"
    assert "The result is" in ended.out, ended.all

    bodies = [each.body for each in server.requests]
    told = [results(each)["write_file"] for each in bodies if results(each)]
    assert "hello.txt" in told[0]
    assert {"write_file", "read_file"} <= offered(bodies[0])


async def test_tools_of_the_same_name_are_those_of_qwen_code(qwen: Path, tmp_path: Path) -> None:
    notes = tmp_path / "project/notes.txt"
    reading = plausible(
        tools={"current_time": {"timezone": "UTC"}, "read_file": {"file_path": str(notes)}}
    )

    def model(request: Request) -> Script:
        asked = [text_of(each) for each in request["messages"] if each["role"] == "user"][-1]
        return reading(request) if "notes" in asked else ok("There is nothing to remember.")

    async with ModelServer(model) as server:
        daemon = daemon_for(tmp_path / "home", server)
        async with daemon:
            project = CodingProject(qwen, tmp_path, daemon, KEY)  # not of a guest
            await project.export("Qwen Code", "OPENAI_BASE_URL")
            notes.write_text("The cat is called Ada.\n")
            ended = await project.run("--approval-mode", "auto-edit", "Read notes.txt")
    assert "Ada" in ended.out, ended.all

    bodies = [each.body for each in server.requests]
    assert [each["function"]["name"] for each in bodies[0]["tools"]].count("read_file") == 1
    (working,) = [results(each) for each in bodies if len(results(each)) == 2]
    assert "UTC" in working["current_time"]
    assert "Ada" in working["read_file"]
