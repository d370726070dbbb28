"""The list of models that API clients get."""

from pathlib import Path

from agent.errors import Overloaded
from agent.providers.registry import Target
from agent.settings import ModelSettings, TargetSettings
from gateway.http.api.models import ModelResolver
from gateway.settings import Settings
from gateway.turns.models import Models
from tests.unit.gateway.clocks import TwoClocks
from tests.unit.gateway.test_models import Service


class CountingService(Service):
    """A service that counts how often its models are listed."""

    asked = 0

    async def list_models(self) -> tuple[str, ...]:
        self.asked += 1
        return await super().list_models()


def resolver(home: Path, service: Service, clock: TwoClocks, *, everything: bool) -> ModelResolver:
    settings = Settings(model=ModelSettings(provider="openai", name="a", list=everything))
    targets = [
        Target(service, name, TargetSettings(provider="openai", name=name)) for name in ("a", "b")
    ]
    return ModelResolver(Models(settings, home, targets, clock=clock), clock)


async def names(found: ModelResolver) -> list[str]:
    return [name for name, _ in await found.list_models()]


async def test_models_of_the_service_are_listed_only_on_demand(tmp_path: Path) -> None:
    service = CountingService("one", "b", "c")
    quiet = resolver(tmp_path, service, TwoClocks(), everything=False)
    assert await names(quiet) == ["a", "b"]
    assert service.asked == 0
    assert await names(resolver(tmp_path, service, TwoClocks(), everything=True)) == ["a", "b", "c"]


async def test_the_service_is_asked_once_a_minute(tmp_path: Path) -> None:
    service, clock = CountingService("one", "c"), TwoClocks()
    found = resolver(tmp_path, service, clock, everything=True)
    for seconds, asked in ((0, 1), (59, 1), (2, 2)):
        clock.pass_by(seconds)
        assert await names(found) == ["a", "b", "c"]
        assert service.asked == asked


async def test_a_failing_service_leaves_the_configured_models(tmp_path: Path) -> None:
    service = CountingService("one", error=Overloaded("busy"))
    found = resolver(tmp_path, service, TwoClocks(), everything=True)
    assert await names(found) == ["a", "b"]
    assert await names(found) == ["a", "b"]
    assert service.asked == 1


async def test_the_list_is_bounded(tmp_path: Path) -> None:
    service = CountingService("one", *(f"m{number}" for number in range(2_000)))
    assert len(await names(resolver(tmp_path, service, TwoClocks(), everything=True))) == 1_002
