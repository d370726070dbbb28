import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ApiKeyRejected
from agent.model.contract import Chunk, ModelRequest
from agent.providers.registry import Target
from agent.settings import (
    AgentSettings,
    ModelSettings,
    PriceSettings,
    TargetSettings,
    ToolSettings,
)
from agent.tools.registry import BUILT_IN
from gateway.errors import CannotStart, ConfigError
from gateway.settings import RouteSettings, Settings
from gateway.turns.choices import ModelChoice
from gateway.turns.models import ExternalTools, Models, open_targets
from sessions.values.clock import SystemClock
from sessions.values.secret import Secret
from tests.fakes.model_server import ModelServer, always

DEMO = ModelSettings(provider="demo")
KEY = "web:abc"


async def opened(settings: Settings, home: Path) -> Models:
    return Models(settings, home, await open_targets(settings), clock=SystemClock(), tools=BUILT_IN)


class Service:
    """A provider that lists models, or fails to."""

    def __init__(self, name: str, *models: str, error: Exception | None = None) -> None:
        self.name = name
        self._models = models
        self._error = error
        self.closed = False

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[Chunk]]:
        raise AssertionError

    async def list_models(self) -> tuple[str, ...]:
        if self._error:
            raise self._error
        if not self._models:
            await asyncio.Event().wait()
        return self._models

    async def aclose(self) -> None:
        if self.name == "deaf":
            await asyncio.Event().wait()
        self.closed = True


@pytest.mark.quick
async def test_a_provider_that_does_not_close_delays_the_end_by_seconds_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deaf, good = Service("deaf"), Service("good")
    async with asyncio.timeout(10):
        await models(tmp_path, target("a", deaf), target("b", good)).aclose()
    assert good.closed
    assert "a model service was not disconnected" in caplog.text


def target(model: str, service: Any = None, **settings: Any) -> Target:
    return Target(service or Service("one"), model, TargetSettings(name=model, **settings))


def models(
    home: Path, *targets: Target, choice: ModelChoice | None = None, **settings: Any
) -> Models:
    return Models(
        Settings(model=DEMO, **settings),
        home,
        targets,
        clock=SystemClock(),
        tools=BUILT_IN,
        choice_for=lambda _: choice or ModelChoice(),
    )


def names(models: Models, key: str = KEY) -> list[str]:
    return [target.label for target in models.turn_setting(key, "p").targets]


# --- settings of turns -------------------------------------------------------------------------


async def test_every_person_has_a_workspace_of_their_own(tmp_path: Path) -> None:
    models = await opened(Settings(model=DEMO), tmp_path)
    one, other = (models.turn_setting(KEY, person) for person in ("a:1", "a:2/../3"))
    assert one.workspace != other.workspace
    assert other.workspace.parent == tmp_path / "workspace"
    await models.aclose()


async def test_every_person_sees_only_their_own_drafts(tmp_path: Path) -> None:
    models = await opened(Settings(model=DEMO), tmp_path)
    one, other = (models.turn_setting(KEY, person).drafts for person in ("a:1", "a:2"))
    kept = await one.begin("a.txt", "some text")
    assert [draft.id for draft in await one.list_drafts()] == [kept.id]
    assert await other.list_drafts() == []
    await models.aclose()


async def test_a_configured_workspace_is_shared(tmp_path: Path) -> None:
    settings = Settings(model=DEMO, agent=AgentSettings(workspace=tmp_path / "all"))
    models = await opened(settings, tmp_path)
    assert models.turn_setting(KEY, "a:1").workspace == tmp_path / "all"


async def test_a_route_changes_model_prompt_and_tools_of_its_chats_only(tmp_path: Path) -> None:
    route = RouteSettings(match="web:abc", model="other", system_prompt="Be a pirate.", tools=())
    models = await opened(Settings(model=DEMO, route=(route,)), tmp_path)
    routed, usual = models.turn_setting(KEY, "p"), models.turn_setting("web:xyz", "p")
    assert (routed.targets[0].model, routed.system) == ("other", "Be a pirate.")
    assert len(routed.tools) == 0
    assert usual.targets[0].model != "other"
    assert len(usual.tools) > 0


async def test_names_of_tools_that_a_turn_cannot_call_are_reserved(tmp_path: Path) -> None:
    settings = Settings(model=DEMO, tools=ToolSettings(enabled=()))
    models = Models(
        settings,
        tmp_path,
        await open_targets(settings),
        clock=SystemClock(),
        tools=BUILT_IN,
        external=ExternalTools(reserved_names=lambda _person: {"pay"}),
    )
    tools = models.turn_setting(KEY, "p").tools
    assert "read_file" not in tools.by_name
    assert {"read_file", "pay"} <= tools.reserved_names
    await models.aclose()


async def test_the_system_prompt_can_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("From a file.")
    agent = AgentSettings(system_prompt_file=file)
    models = await opened(Settings(model=DEMO, agent=agent), tmp_path)
    assert models.turn_setting(KEY, "p").system == "From a file."
    file.unlink()
    with pytest.raises(ConfigError, match=r"agent\.system_prompt_file: cannot read"):
        await opened(Settings(model=DEMO, agent=agent), tmp_path)


async def test_a_sweep_without_drafts_does_nothing_and_one_with_drafts_keeps_fresh_ones(
    tmp_path: Path,
) -> None:
    models = await opened(Settings(model=DEMO), tmp_path)
    await models.sweep_drafts()
    drafts = models.turn_setting(KEY, "p").drafts
    kept = await drafts.begin("a.txt", "some text")
    await models.sweep_drafts()
    assert [draft.id for draft in await drafts.list_drafts()] == [kept.id]


async def test_a_sweep_skips_an_unreadable_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    models = await opened(Settings(model=DEMO), tmp_path)
    kept = models.turn_setting(KEY, "p").drafts
    await kept.begin("a.txt", "some text")
    (tmp_path / "drafts" / "0 not a folder").touch()
    await models.sweep_drafts()
    assert "0 not a folder" in caplog.text
    assert await kept.list_drafts()


# --- models ------------------------------------------------------------------------------------


def test_the_fallbacks_take_over_in_their_order(tmp_path: Path) -> None:
    assert names(models(tmp_path, target("a"), target("b"), target("c"))) == [
        "one/a",
        "one/b",
        "one/c",
    ]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        pytest.param(ModelChoice("c", "two"), ["two/c", "one/a", "two/b"], id="a fallback"),
        pytest.param(
            ModelChoice("new", "one"),
            ["one/new", "two/b", "two/c"],
            id="another model of the first service",
        ),
        pytest.param(ModelChoice("new"), ["one/new", "two/b", "two/c"], id="without a provider"),
        pytest.param(
            ModelChoice("c", "gone"), ["one/a", "two/b", "two/c"], id="its provider is gone"
        ),
        pytest.param(
            ModelChoice("new", "two"),
            ["one/a", "two/b", "two/c"],
            id="not configured for that provider",
        ),
        pytest.param(
            ModelChoice("two/b", "two"), ["two/b", "one/a", "two/c"], id="by the full name"
        ),
    ],
)
def test_a_chosen_model_comes_first_while_its_provider_is_configured(
    tmp_path: Path, choice: ModelChoice, expected: list[str]
) -> None:
    two = Service("two")
    made = models(tmp_path, target("a"), target("b", two), target("c", two), choice=choice)
    assert names(made) == expected
    assert made.has_chosen_model(KEY) is (expected[0] != "one/a")
    assert [each.label for each in made.targets_of(KEY)] == expected


def test_a_choice_overrides_a_route_and_an_unavailable_choice_does_not(tmp_path: Path) -> None:
    route = (RouteSettings(match="web:*", model="routed"),)
    assert names(models(tmp_path, target("a"), route=route)) == ["one/routed"]
    chosen = models(tmp_path, target("a"), route=route, choice=ModelChoice("mine", "one"))
    assert names(chosen) == ["one/mine"]
    void = models(tmp_path, target("a"), route=route, choice=ModelChoice("mine", "gone"))
    assert names(void) == ["one/routed"]
    assert not void.has_chosen_model(KEY)


def test_price_and_context_window_do_not_apply_to_another_model(tmp_path: Path) -> None:
    price = PriceSettings(input=1, output=2)
    first = target("a", price=price, context_window=4096, max_output_tokens=99)
    made = models(tmp_path, first, choice=ModelChoice("b", "one"))
    settings = made.turn_setting(KEY, "p").targets[0].settings
    assert (settings.price, settings.context_window, settings.name) == (None, None, "b")
    assert settings.max_output_tokens == 99
    own = models(tmp_path, target("x"), first, choice=ModelChoice("a", "one"))
    assert own.turn_setting(KEY, "p").targets[0] is first


def test_the_chosen_effort_applies_to_the_first_model(tmp_path: Path) -> None:
    choice = ModelChoice("b", "one", "high")
    made = models(tmp_path, target("a", reasoning_effort="low"), target("b"), choice=choice)
    efforts = [each.settings.reasoning_effort for each in made.turn_setting(KEY, "p").targets]
    assert efforts == ["high", "low"]


def test_configured_names_are_listed_once_each(tmp_path: Path) -> None:
    routes = tuple(RouteSettings(match="web:*", model=name) for name in ("r", "a", None))
    twin = target("a", Service("two"))
    made = models(tmp_path, target("a"), target("b"), twin, route=routes)
    assert made.configured_names() == ("a", "b", "two/a", "r")
    assert made.provider_of("two/a") == "two"
    assert made.provider_of("b") == made.provider_of("unheard of") == "one"


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        pytest.param(Service("one", "a", "b"), ("a", "b"), id="a list"),
        pytest.param(Service("one"), None, id="an empty list"),
        pytest.param(Service("one", error=ApiKeyRejected()), None, id="an error"),
    ],
)
async def test_the_list_of_models_has_a_timeout(
    tmp_path: Path, service: Service, expected: tuple[str, ...] | None
) -> None:
    async with asyncio.timeout(2):
        assert (
            await models(tmp_path, target("a", service)).list_offered(timeout_seconds=0.05)
            == expected
        )


async def test_a_missing_or_empty_list_of_models_is_none(
    tmp_path: Path,
) -> None:
    demo = await opened(Settings(model=DEMO), tmp_path)
    assert await demo.list_offered() is None
    async with ModelServer(always("H D"), models=()) as server:
        named = at(server, name="a")
        empty = await opened(named, tmp_path)
        assert await empty.list_offered() is None
        await empty.aclose()


# --- start -------------------------------------------------------------------------------------


def at(server: ModelServer, **model: Any) -> Settings:
    return Settings(
        model=ModelSettings(
            provider="openai", base_url=server.url, api_key=Secret("sk-none"), **model
        )
    )


async def test_the_only_listed_model_is_used(tmp_path: Path) -> None:
    async with ModelServer(always("H D"), models=("llama",)) as server:
        models = await opened(at(server), tmp_path)
        assert models.turn_setting(KEY, "p").targets[0].model == "llama"
        await models.aclose()


async def test_an_unknown_provider_is_a_configuration_error(
    tmp_path: Path,
) -> None:
    unheard_of: Any = "unheard of"
    with pytest.raises(ConfigError, match="no model provider 'unheard of'"):
        await opened(Settings(model=ModelSettings(provider=unheard_of)), tmp_path)


async def test_the_first_of_several_models_is_used_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with ModelServer(always("H D"), models=("a", "b")) as server:
        models = await opened(at(server), tmp_path)
        assert models.targets[0].model == "a"
        await models.aclose()
    (record,) = (each for each in caplog.records if each.levelname == "WARNING")
    assert record.getMessage() == (
        f"model.name is not set: using a, the first of 2 models that {server.url} lists. "
        "To choose another: holdfast run --set model.name=NAME"
    )


async def test_a_server_without_models_requires_a_model_name(tmp_path: Path) -> None:
    async with ModelServer(always("H D"), models=()) as server:
        with pytest.raises(ConfigError, match="The model server lists no models"):
            await opened(at(server), tmp_path)


async def test_a_server_that_never_answers_prevents_the_start_in_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        settings = Settings(
            model=ModelSettings(provider="openai", base_url=url, api_key=Secret("sk-none"))
        )
        with pytest.raises(CannotStart, match=f"{url} did not list its models within 0.05 s"):
            await open_targets(settings, list_seconds=0.05)
    assert f"model.name is not set: asking {url} for its models" in caplog.text


async def test_an_unreachable_model_server_prevents_the_start(tmp_path: Path) -> None:
    async with ModelServer(always("H D")) as server:
        settings = at(server)
    with pytest.raises(CannotStart) as refused:
        await opened(settings, tmp_path)
    assert str(refused.value) == (
        "Holdfast cannot list the models of the model service: "
        f"no connection to {server.url}. "
        "Start that service, or correct its address in model.base_url."
    )


async def test_a_rejected_key_prevents_the_start_with_the_key_to_set(tmp_path: Path) -> None:
    async with ModelServer(always("H D")) as server:
        server.key = "sk-another"
        with pytest.raises(CannotStart, match=r"\. Set a valid key in model\.api_key\.$"):
            await opened(at(server), tmp_path)
