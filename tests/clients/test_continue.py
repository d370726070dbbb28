"""Continue's command line as a client of the chat API: a task with its own tools."""

from pathlib import Path

import pytest

from tests.clients.kit import node_program
from tests.clients.node_programs import coding_project
from tests.clients.scripted import offered, plausible, results
from tests.e2e.api_kit import daemon_for
from tests.fakes.model_server import ModelServer


@pytest.fixture(scope="module")
def cn() -> Path:
    return node_program("continue", "@continuedev/cli@1.5.47") / "cn"


async def test_continue_runs_a_task_with_its_own_tools(cn: Path, tmp_path: Path) -> None:
    model = plausible(
        tools={
            "Write": {"filepath": "hello.txt", "content": "good morning\n"},
            "Bash": {"command": "wc -c hello.txt"},
        }
    )
    async with ModelServer(model) as server:
        daemon = daemon_for(tmp_path / "home", server)
        async with daemon:
            project = await coding_project(cn, tmp_path, daemon)
            project.configure("Continue", "apiBase", project.home / ".continue/config.yaml")
            project.env["CONTINUE_TELEMETRY_ENABLED"] = "0"
            config = str(project.home / ".continue/config.yaml")
            ended = await project.run("--config", config, "--auto", "-p", "Write hello.txt")
    assert (project.folder / "hello.txt").read_text() == "good morning\n"
    assert "13 hello.txt" in ended.out, ended.all

    bodies = [each.body for each in server.requests]
    assert {"Write", "Bash"} <= offered(bodies[0])
    assert set(results(bodies[-1])) == {"Write", "Bash"}
