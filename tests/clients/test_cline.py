"""Cline's command line as a client of the chat API: a task with its own tools."""

import shlex
from pathlib import Path

import pytest

from tests.clients.kit import node_program
from tests.clients.node_programs import coding_project
from tests.clients.scripted import offered, plausible, results
from tests.clients.settings_page import MODEL, documented
from tests.e2e.api_kit import daemon_for
from tests.fakes.model_server import ModelServer


@pytest.fixture(scope="module")
def cline() -> Path:
    return node_program("cline", "cline@3.0.65") / "cline"


async def test_cline_runs_a_task_with_its_own_tools(cline: Path, tmp_path: Path) -> None:
    target = tmp_path / "project/hello.txt"
    model = plausible(
        tools={
            "editor": {"path": str(target), "new_text": "good morning\n"},
            "run_commands": {"commands": ["wc -c hello.txt"]},
        }
    )
    async with ModelServer(model) as server:
        daemon = daemon_for(tmp_path / "home", server)
        async with daemon:
            project = await coding_project(cline, tmp_path, daemon)
            project.env["CLINE_NO_AUTO_UPDATE"] = "1"
            connect, task = documented("Cline", "cline auth").splitlines()
            words = [project.env.get(each[1:], each) for each in shlex.split(connect)]
            await project.run(*words[1:])
            ended = await project.run(*shlex.split(task.replace("your-model", MODEL))[1:])
    assert target.read_text() == "good morning\n"
    assert "13 hello.txt" in ended.out, ended.all

    bodies = [each.body for each in server.requests]
    assert {"editor", "run_commands"} <= offered(bodies[0])
    assert set(results(bodies[-1])) == {"editor", "run_commands"}
