"""Requests that the model answers without the agent, over a whole gateway."""

from pathlib import Path

from agent.settings import AgentSettings
from tests.e2e.api_kit import served, user
from tests.fakes.agent_kit import Workshop
from tests.fakes.model_script import ok
from tests.fakes.model_server import ModelServer

TITLE = "### Task:\nGenerate a concise, 3-5 word title."


async def test_a_title_request_has_no_tools_and_no_prompt_and_is_stored(tmp_path: Path) -> None:
    agent = AgentSettings(system_prompt="You are a pirate.")
    keyed = {"Idempotency-Key": "k"}
    async with (
        ModelServer(ok("A title"), ok("Hello.")) as model,
        served(tmp_path, model, agent=agent, tools=Workshop().tools()) as api,
    ):
        for _ in range(2):
            _, _, found = await api.wire.ask(TITLE, headers=keyed)
            assert found["choices"][0]["message"]["content"] == "A title"
        body = model.requests[0].body
        assert "tools" not in body
        assert body["messages"] == user(TITLE)
        assert await api.sessions() == [("closed", "answered")]
        await api.wire.ask("hi")
        assert model.requests[1].tools
        assert "pirate" in api.kit.system(2)
        assert len(model.requests) == 2


async def test_a_plain_request_keeps_its_own_prompt(tmp_path: Path) -> None:
    said = [{"role": "system", "content": "Be brief."}, *user("hi")]
    async with ModelServer(ok("Hello.")) as model, served(tmp_path, model) as api:
        await api.wire.ask("", messages=said, tool_choice="none")
        assert model.requests[0].body["messages"] == said


async def test_a_request_in_a_session_is_answered_by_the_agent(tmp_path: Path) -> None:
    session = {"X-Holdfast-Session": "notes"}
    async with (
        ModelServer(ok("A title")) as model,
        served(tmp_path, model, tools=Workshop().tools()) as api,
    ):
        await api.wire.ask(TITLE, headers=session)
        assert model.requests[0].tools
        assert api.kit.system(1)
