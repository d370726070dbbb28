"""The `llm` command as a client of the chat API, also with a tool of its own and a schema."""

import json
from pathlib import Path

import pytest

from tests.clients.kit import Ended, python_program, run
from tests.clients.scripted import plausible
from tests.clients.settings_page import documented, exported, write_files
from tests.e2e.api_kit import daemon_for
from tests.e2e.daemon import Daemon
from tests.fakes.model_server import ModelServer

_TOOL = 'def double(number: int) -> int:\n    "Double a number."\n    return number * 2\n'


@pytest.fixture(scope="module")
def llm() -> Path:
    return python_program("llm", "llm==0.36")


async def ask(llm: Path, daemon: Daemon, *more: str) -> Ended:
    """Configure `llm` as the page says, and run it."""
    folder = write_files("llm", daemon.home.parent / "llm", daemon)
    set_key, _ = documented("llm", "llm keys set").splitlines()
    env = exported(daemon) | {"LLM_USER_PATH": str(folder), "PATH": f"{llm}:/usr/bin:/bin"}
    ended = await run("bash", "-c", set_key, env=env)
    assert ended.code == 0, ended.all
    return await run(llm / "llm", "-m", "holdfast", *more, env=env)


async def test_llm_answers_a_prompt(llm: Path, tmp_path: Path) -> None:
    async with ModelServer(plausible()) as model, daemon_for(tmp_path / "home", model) as daemon:
        ended = await ask(llm, daemon, "Say hello")
    assert ended.out.strip() == "Hello from afar.", ended.all


async def test_llm_runs_its_own_tool(llm: Path, tmp_path: Path) -> None:
    handler = plausible(tools={"double": {"number": 21}})
    async with ModelServer(handler) as model, daemon_for(tmp_path / "home", model) as daemon:
        ended = await ask(llm, daemon, "--functions", _TOOL, "--td", "Double 21")
    assert "The result is 42." in ended.out, ended.all
    assert "double" in ended.all


async def test_llm_gets_a_document_for_its_schema(llm: Path, tmp_path: Path) -> None:
    handler = plausible(document={"city": "Madrid", "people": 3400000})
    async with ModelServer(handler) as model, daemon_for(tmp_path / "home", model) as daemon:
        ended = await ask(llm, daemon, "--schema", "city, people int", "The largest city of Spain?")
    assert ended.code == 0, ended.all
    assert json.loads(ended.out) == {"city": "Madrid", "people": 3400000}, ended.all
    assert model.requests[0].body["response_format"]["type"] == "json_schema"
