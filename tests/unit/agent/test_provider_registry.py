import asyncio
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

from agent.providers.demo import DemoProvider
from agent.providers.openai.chat import OpenAIChat
from agent.providers.openai.sdk import defer_package
from agent.providers.registry import (
    ModelNotChosen,
    Target,
    UnknownProvider,
    available_providers,
    build_provider,
    choose_model,
)
from agent.settings import TargetSettings
from tests.fakes.agent_kit import openai_settings
from tests.fakes.distribution import write_distribution
from tests.fakes.model_server import ModelServer


def test_providers_are_built_by_name() -> None:
    assert isinstance(build_provider(TargetSettings()), DemoProvider)
    assert isinstance(build_provider(openai_settings("http://127.0.0.1:9/v1")), OpenAIChat)
    assert {"demo", "openai"} <= set(available_providers())


def test_a_label_names_service_and_model() -> None:
    assert Target(DemoProvider(), "demo", TargetSettings()).label == "demo/demo"


def test_the_error_for_an_unknown_provider_lists_the_installed_ones() -> None:
    with pytest.raises(
        UnknownProvider, match=r"no model provider 'guest'.*anthropic, demo, openai"
    ):
        build_provider(msgspec.structs.replace(TargetSettings(), provider="guest"))


def test_providers_of_other_distributions_are_loaded_from_entry_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_distribution(
        tmp_path, "guest", "[holdfast.providers]\nguest = agent.providers.demo:build\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "guest" in available_providers()
    assert isinstance(
        build_provider(msgspec.structs.replace(TargetSettings(), provider="guest")), DemoProvider
    )


async def choose(settings: TargetSettings) -> str:
    provider = build_provider(settings)
    try:
        async with asyncio.timeout(5):
            return (await choose_model(provider, settings)).name
    finally:
        await provider.aclose()


async def test_a_configured_model_is_used_unchanged() -> None:
    assert await choose(openai_settings("http://127.0.0.1:9/v1")) == "scripted"


async def test_the_default_model_is_used_only_at_the_official_service() -> None:
    assert await choose(TargetSettings()) == "demo"


def nameless(url: str) -> TargetSettings:
    return msgspec.structs.replace(openai_settings(url), name=None)


async def test_the_only_listed_model_is_used() -> None:
    async with ModelServer(models=["llama"]) as server:
        assert await choose(nameless(server.url)) == "llama"


async def test_the_first_of_several_listed_models_is_used() -> None:
    async with ModelServer(models=["a", "b"]) as server:
        assert await choose(nameless(server.url)) == "a"


async def test_a_server_that_lists_no_models_needs_a_configured_model() -> None:
    async with ModelServer(models=[]) as server:
        with pytest.raises(ModelNotChosen, match="lists no models"):
            await choose(nameless(server.url))


@pytest.mark.parametrize("path", ["/nothing/v1", "/nonsense/v1"])
async def test_a_server_without_a_model_list_needs_a_configured_model(path: str) -> None:
    async with ModelServer() as server:
        with pytest.raises(ModelNotChosen):
            await choose(nameless(server.url.removesuffix("/v1") + path))


async def test_a_provider_without_a_model_list_needs_a_configured_model() -> None:
    settings = TargetSettings(provider="anthropic", base_url="http://127.0.0.1:9")
    with pytest.raises(ModelNotChosen):
        await choose_model(DemoProvider(), settings)


@pytest.mark.process
def test_the_loop_and_the_demo_import_no_sdk() -> None:
    code = (
        "import sys, agent.loop, agent.providers.demo; "
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=20
    ).stdout.split()
    assert "msgspec" in loaded
    assert not {"openai", "httpx2", "pydantic", "aiohttp", "anyio"} & set(loaded)


@pytest.mark.process
def test_the_provider_loads_the_types_of_the_sdk_only_when_something_uses_them() -> None:
    code = (
        "import sys; from agent.providers.registry import build_provider; "
        "from agent.settings import TargetSettings; "
        "build_provider(TargetSettings(provider='openai', base_url='http://127.0.0.1:9')); "
        "loaded = 'openai.types.responses.response' in sys.modules; "
        "import openai.types; from openai.types.responses import Response; "
        "print(loaded, openai.types.Completion.__name__, Response.__name__, "
        "hasattr(openai.types, 'absent'))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=20
    ).stdout.split()
    assert shown == ["False", "Completion", "Response", "False"]


def test_a_deferred_package_runs_its_code_once_on_first_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "late"
    folder.mkdir()
    (folder / "__init__.py").write_text("import late.counter\nlate.counter.runs += 1\nNAME = 'x'\n")
    (folder / "counter.py").write_text("runs = 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with defer_package("late"):
        counter = import_module("late.counter")
    late = import_module("late")
    assert counter.runs == 0
    with pytest.raises(AttributeError, match="module 'late' has no attribute 'absent'"):
        late.absent  # noqa: B018 - reading is the use
    assert (late.NAME, counter.runs) == ("x", 1)
