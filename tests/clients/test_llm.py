"""The `llm` command as a client of the chat API, also with a tool of its own."""

from pathlib import Path

import pytest

from tests.clients.kit import python_program, run
from tests.e2e.api_kit import KEY, daemon_for
from tests.fakes.model_script import Script, calls, ok
from tests.fakes.model_server import ModelServer

_MODELS = """
- model_id: holdfast
  model_name: scripted
  api_base: "{base}"
  api_key_name: holdfast
  supports_tools: true
"""
_TOOL = 'def double(number: int) -> int:\n    "Double a number."\n    return number * 2\n'


@pytest.fixture(scope="module")
def llm() -> Path:
    return python_program("llm", "llm==0.36") / "llm"


def configure(folder: Path, base: str) -> dict[str, str]:
    """Write the settings as docs/api.md shows them."""
    folder.mkdir()
    (folder / "extra-openai-models.yaml").write_text(_MODELS.format(base=base))
    (folder / "keys.json").write_text(f'{{"holdfast": "{KEY}"}}')
    return {"LLM_USER_PATH": str(folder)}


def doubling(request: dict[str, object]) -> Script:
    """Call the client's tool, then answer with its result."""
    messages = request["messages"]
    assert isinstance(messages, list)
    if messages[-1]["role"] == "tool":
        return ok(f"The result is {messages[-1]['content']}.")
    return calls(("c1", "double", '{"number": 21}'))


async def test_llm_answers_a_prompt(llm: Path, tmp_path: Path) -> None:
    async with ModelServer(ok("Hello from afar.")) as model:
        daemon = daemon_for(tmp_path / "home", model)
        async with daemon:
            env = configure(tmp_path / "llm", f"{daemon.url}/v1")
            ended = await run(llm, "-m", "holdfast", "Say hello", env=env)
    assert ended.out.strip() == "Hello from afar.", ended.all


async def test_llm_runs_its_own_tool(llm: Path, tmp_path: Path) -> None:
    async with ModelServer(doubling) as model:
        daemon = daemon_for(tmp_path / "home", model)
        async with daemon:
            env = configure(tmp_path / "llm", f"{daemon.url}/v1")
            ended = await run(
                *(llm, "-m", "holdfast", "--functions", _TOOL, "--td", "Double 21"), env=env
            )
    assert "The result is 42." in ended.out, ended.all
    assert "double" in ended.all
