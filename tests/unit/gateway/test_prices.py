"""Prices of models, and the message for unknown ones."""

import builtins
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.settings import (
    ANTHROPIC_MODEL,
    OPENAI_MODEL,
    ModelSettings,
    PriceSettings,
    TargetSettings,
)
from gateway.config.loader import ConfigOptions, check
from gateway.errors import ConfigError
from gateway.settings import LimitSettings, RouteSettings, Settings
from gateway.spending import prices
from gateway.spending.prices import find_price
from gateway.turns.models import Models, open_targets
from platforms.core.registry import load_specs
from sessions.values.clock import SystemClock
from sessions.values.secret import Secret
from tests.fakes.model_server import ModelServer

FREE = PriceSettings(input=0.0, output=0.0)
OWN = PriceSettings(input=1.0, output=2.0)
KEYS = {"HOME": "/nowhere", "OPENAI_API_KEY": "sk-1", "ANTHROPIC_API_KEY": "sk-2"}


def target(provider: Any = "openai", **more: Any) -> TargetSettings:
    return TargetSettings(provider=provider, **more)


def test_a_configured_price_takes_precedence() -> None:
    assert find_price(target(price=OWN, base_url="http://127.0.0.1:1/v1"), "m") == OWN


@pytest.mark.parametrize(
    "settings",
    [
        target("demo"),
        target(base_url="http://127.0.0.1:11434/v1"),
        target(base_url="http://localhost:11434/v1"),
        target(base_url="http://[::1]:8000/v1"),
    ],
    ids=["demo", "this machine", "by its name", "IPv6"],
)
def test_a_server_on_this_machine_is_free(settings: TargetSettings) -> None:
    assert find_price(settings, "gpt-5.5") == FREE


@pytest.mark.parametrize(
    ("settings", "model"),
    [
        (target("openai"), OPENAI_MODEL),
        (target("openai-responses"), OPENAI_MODEL),
        (target("anthropic"), ANTHROPIC_MODEL),
        (target("openai", base_url="https://api.openai.com/v1"), OPENAI_MODEL),
        (target("openai", base_url="https://openrouter.ai/api/v1"), f"openai/{OPENAI_MODEL}"),
    ],
    ids=["openai", "responses", "anthropic", "by its address", "a service of services"],
)
def test_common_models_are_in_the_price_list(settings: TargetSettings, model: str) -> None:
    found = find_price(settings, model)
    assert found
    assert found.cached is not None
    assert 0 < found.cached < found.input < found.output < 1000


@pytest.mark.parametrize(
    ("settings", "model"),
    [
        (target("openai"), "own-7b"),
        (target("openai", base_url="http://10.0.0.5:8000/v1"), OPENAI_MODEL),
        (target("openai", base_url="http://models.example.org/v1"), OPENAI_MODEL),
    ],
    ids=["no such model", "a server nearby", "another service"],
)
def test_prices_of_unknown_services_are_unknown(settings: TargetSettings, model: str) -> None:
    assert find_price(settings, model) is None


@pytest.fixture
def without_list(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide the extra, as if it were not installed."""
    real = builtins.__import__

    def importing(name: str, *more: Any) -> Any:
        if name == "genai_prices":
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.delitem(sys.modules, "genai_prices", raising=False)
    monkeypatch.setattr(builtins, "__import__", importing)
    prices._look_up_price.cache_clear()
    yield
    prices._look_up_price.cache_clear()


def problems(*settings: str) -> tuple[str, ...]:
    return check(ConfigOptions(None, settings), KEYS, load_specs()).problems


MONEY = "limits.usd_per_day=5"


def test_a_limit_in_dollars_needs_the_price_of_every_model() -> None:
    assert problems(MONEY) == ()
    assert problems("model.name=own-7b") == ()
    assert problems("model.name=own-7b", "limits.tokens_per_day=5") == ()
    assert problems("model.name=own-7b", MONEY, "model.price={input=1, output=2}") == ()
    (problem,) = problems("model.name=own-7b", MONEY)
    assert problem.endswith(
        "model.price: the price of own-7b is unknown, so limits.usd_per_day cannot be enforced; set "
        "model.price, or use tokens_per_day instead"
    )
    (problem,) = problems("model.name=own-7b", 'limits.chats={"telegram:-1"={usd_per_day=1}}')
    assert 'so limits.chats."telegram:-1".usd_per_day cannot be enforced' in problem
    (problem,) = problems("model.name=own-7b", "limits.all.usd_per_day=1")
    assert "so limits.all.usd_per_day cannot be enforced" in problem
    fallback = (
        "model.fallback=[{name='own-7b', api_key='x', base_url='https://models.example.org'}]"
    )
    (problem,) = problems(MONEY, fallback)
    assert "model.fallback[0].price: the price of own-7b is unknown" in problem
    assert "; set its price, or use tokens_per_day" in problem


def test_models_of_routes_are_checked_too() -> None:
    (problem,) = problems(MONEY, "route=[{match='telegram:*', model='own-7b'}]")
    assert "route[0].model: the price of own-7b is unknown" in problem
    assert "; set its price in a [[model.fallback]] of that name, or" in problem
    assert problems(MONEY, "route=[{match='telegram:*', model='gpt-5.5'}]") == ()
    priced = "model.fallback=[{name='own-7b', price={input=1, output=1}}]"
    assert problems(MONEY, priced, "route=[{match='telegram:*', model='own-7b'}]") == ()


@pytest.mark.usefixtures("without_list")
def test_without_the_price_list_the_message_names_the_extra() -> None:
    (problem,) = problems(MONEY)
    assert f"the price of {OPENAI_MODEL} is unknown" in problem
    assert problem.endswith("(the extra holdfast[prices] knows the usual models)")
    assert problems(MONEY, "model.provider=demo") == ()


def settings(server: ModelServer, limit: float | None, **model: Any) -> Settings:
    url = model.pop("base_url", server.url)
    return Settings(
        model=ModelSettings(provider="openai", base_url=url, api_key=Secret("k"), **model),
        limits=LimitSettings(usd_per_day=limit),
        route=(RouteSettings(match="telegram:*", model="other"),),
    )


async def test_with_a_limit_in_dollars_every_requested_model_has_a_price(tmp_path: Path) -> None:
    async with ModelServer(models=("scripted",)) as server:
        for limit, own, other in ((None, OWN, None), (1.0, OWN, FREE)):
            used = settings(server, limit, price=OWN)
            models = Models(used, tmp_path, await open_targets(used), clock=SystemClock())
            try:
                for key, expected in (("console:a", own), ("telegram:1", other)):
                    (first, *_) = models.turn_setting(key, "p").targets
                    assert first.settings.price == expected
            finally:
                await models.aclose()


async def test_a_servers_only_model_is_checked_once_it_has_a_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prices, "_is_local_service", lambda _: False)
    async with ModelServer(models=("own-7b",)) as server:
        with pytest.raises(ConfigError, match=r"he price of own-7b is unknown, so limits\.usd"):
            await open_targets(settings(server, 1.0))
        (target,) = await open_targets(settings(server, None))
        await target.provider.aclose()
