from pathlib import Path

import pytest

from agent.providers.registry import Target
from agent.settings import AgentSettings, ModelSettings
from gateway.errors import CannotStart, ConfigError
from gateway.models import open_models
from gateway.settings import RouteSettings, Settings
from sessions.values.secret import Secret
from tests.fakes.model_server import ModelServer, always

DEMO = ModelSettings(provider="demo")


async def test_every_person_has_a_workspace_of_their_own(tmp_path: Path) -> None:
    models = await open_models(Settings(model=DEMO), tmp_path)
    one, other = (models.setting("web:abc", person) for person in ("a:1", "a:2/../3"))
    assert one.workspace != other.workspace
    assert other.workspace.parent == tmp_path / "workspace"
    await models.aclose()


async def test_a_configured_workspace_is_shared(tmp_path: Path) -> None:
    settings = Settings(model=DEMO, agent=AgentSettings(workspace=tmp_path / "all"))
    models = await open_models(settings, tmp_path)
    assert models.setting("web:abc", "a:1").workspace == tmp_path / "all"


async def test_a_route_changes_model_words_and_tools_of_its_chats_only(tmp_path: Path) -> None:
    route = RouteSettings(match="web:abc", model="other", system_prompt="Be a pirate.", tools=())
    models = await open_models(Settings(model=DEMO, route=(route,)), tmp_path)
    routed, usual = models.setting("web:abc", "p"), models.setting("web:xyz", "p")
    assert (routed.target.model, routed.system, len(routed.tools)) == ("other", "Be a pirate.", 0)
    assert usual.target.model != "other"
    assert len(usual.tools) > 0


async def test_the_system_prompt_can_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("From a file.")
    agent = AgentSettings(system_prompt_file=file)
    models = await open_models(Settings(model=DEMO, agent=agent), tmp_path)
    assert models.setting("web:abc", "p").system == "From a file."
    file.unlink()
    with pytest.raises(ConfigError, match=r"agent\.system_prompt_file: cannot read"):
        await open_models(Settings(model=DEMO, agent=agent), tmp_path)


def at(server: ModelServer) -> Settings:
    return Settings(
        model=ModelSettings(provider="openai", base_url=server.url, api_key=Secret("sk-none"))
    )


async def test_the_only_model_a_server_lists_is_taken(tmp_path: Path) -> None:
    async with ModelServer(always("H D"), models=("llama",)) as server:
        models = await open_models(at(server), tmp_path)
        target: Target = models.setting("web:abc", "p").target
        assert target.model == "llama"
        await models.aclose()


async def test_a_server_with_several_models_needs_one_to_be_named(tmp_path: Path) -> None:
    async with ModelServer(always("H D"), models=("a", "b")) as server:
        with pytest.raises(ConfigError, match="offers: a, b"):
            await open_models(at(server), tmp_path)


async def test_a_server_that_does_not_answer_is_the_machines_fault(tmp_path: Path) -> None:
    async with ModelServer(always("H D")) as server:
        settings = at(server)
    with pytest.raises(CannotStart, match="Cannot ask the model service which models it has"):
        await open_models(settings, tmp_path)
