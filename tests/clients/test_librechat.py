"""LibreChat's library for agents, which sends all requests of LibreChat, with its settings file."""

from pathlib import Path

import pytest

from tests.clients.kit import node_program
from tests.clients.node_programs import NodeFolder
from tests.clients.scripted import Request, offered, plausible, results, text_of
from tests.clients.settings_page import documented, filled
from tests.e2e.api_kit import daemon_for
from tests.fakes.model_script import Script, ok
from tests.fakes.model_server import ModelServer

AGENT = "People talk to you in a chat."
"""Words of the agent's own prompt."""


@pytest.fixture(scope="module")
def programs() -> Path:
    return node_program("librechat", "@librechat/agents@3.9.2", "yaml@2.9.1")


def chatting(request: Request) -> Script:
    """Give a title where one is asked for; else call the tool, and answer."""
    if "response_format" in request:
        return ok('{"language": "English", "title": "Weather as JSON"}')
    if "title for the conversation" in text_of(request["messages"][-1]):
        return ok("Weather in Berlin")
    return with_tool(request)


with_tool = plausible(tools={"weather": {"city": "Berlin"}})


async def test_librechat_answers_with_a_tool_and_makes_titles(
    programs: Path, tmp_path: Path
) -> None:
    async with ModelServer(chatting) as server:
        daemon = daemon_for(tmp_path / "home", server)
        async with daemon:
            node = NodeFolder(programs, "LibreChat", tmp_path / "program", daemon)
            settings = filled(documented("LibreChat", "endpoints"), daemon)
            (node.folder / "librechat.yaml").write_text(settings)
            found = await node.run("librechat.mjs")
    assert found["text"].strip() == "The result is Berlin: clear."
    assert (found["run"], found["called"]) == (["Berlin"], ["Berlin: clear"])
    assert found["titles"] == ["Weather in Berlin", "Weather as JSON"]
    assert found["tokens"] == [5, 5]

    bodies = [each.body for each in server.requests]
    assert [bool(offered(each)) for each in bodies] == [True, True, False, False]
    assert {"weather", "current_time"} <= offered(bodies[0])
    assert set(results(bodies[1])) == {"weather"}
    assert [AGENT in str(each["messages"]) for each in bodies] == [True, True, False, False]
