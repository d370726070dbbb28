"""Qwen Code as a client of the chat API: a task with its own tools."""

import re
from pathlib import Path

import pytest

from tests.clients.kit import node_program, run
from tests.clients.node_programs import guest_key, own_home
from tests.clients.scripted import Request, offered, plausible, results, text_of
from tests.clients.settings_page import documented, exported
from tests.e2e.api_kit import daemon_for
from tests.fakes.model_script import Script, ok
from tests.fakes.model_server import ModelServer

TASK = "Write the file hello.txt"


@pytest.fixture(scope="module")
def qwen() -> Path:
    return node_program("qwen-code", "@qwen-code/qwen-code@0.24.4") / "qwen"


async def test_qwen_code_runs_a_task_with_its_own_tools(qwen: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    target = project / "hello.txt"
    writing = plausible(
        tools={"write_file": {"file_path": str(target), "content": "good morning\n"}}
    )

    def model(request: Request) -> Script:
        asked = [text_of(each) for each in request["messages"] if each["role"] == "user"][-1]
        return writing(request) if TASK in asked else ok("There is nothing to remember.")

    page = documented("Qwen Code", "OPENAI_BASE_URL")
    async with ModelServer(model) as server:
        daemon = daemon_for(tmp_path / "home", server)
        async with daemon:
            known = exported(daemon, await guest_key(daemon))
            env = own_home(tmp_path / "user")
            env |= {name: known[each] for name, each in re.findall(r"\b([A-Z_]+)=\$(\w+)", page)}
            env["PATH"] = f"{qwen.parent}:/usr/local/bin:/usr/bin:/bin"
            command = (qwen, "--approval-mode", "auto-edit", TASK)
            ended = await run(*command, env=env, cwd=project)
    assert ended.code == 0, ended.all
    assert target.read_text() == "good morning\n"
    assert "The result is" in ended.out, ended.all

    bodies = [each.body for each in server.requests]
    told = [results(each)["write_file"] for each in bodies if results(each)]
    assert "hello.txt" in told[0]
    assert {"write_file", "read_file"} <= offered(bodies[0])
