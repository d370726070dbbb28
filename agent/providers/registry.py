"""Which providers there are, and how one is built from the configuration.

A provider's module is imported only when the configuration names it. Other distributions offer
theirs as entry points of the group `holdfast.providers`; each loads a function like `build` of the
modules below.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import Protocol, runtime_checkable

import msgspec

from agent.errors import BadRequest
from agent.model.contract import Provider
from agent.settings import SERVICES, TargetSettings

BuildProvider = Callable[[TargetSettings], Provider]

ENTRY_POINT_GROUP = "holdfast.providers"

_BUILT_IN = {
    "anthropic": "agent.providers.anthropic.messages",
    "demo": "agent.providers.demo",
    "openai": "agent.providers.openai.chat",
    "openai-responses": "agent.providers.openai.responses",
}


@runtime_checkable
class SupportsListModels(Protocol):
    """A provider that can say which models its service offers."""

    async def list_models(self) -> tuple[str, ...]:
        """Names of all models; raises only what `agent.errors` names under `ProviderError`."""
        ...


class Target(msgspec.Struct, frozen=True):
    """A model to ask: where it is reached, its name, and how it is to answer."""

    provider: Provider
    model: str
    settings: TargetSettings

    @property
    def label(self) -> str:
        """How journal and notices name it."""
        return f"{self.provider.name}/{self.model}"


class UnknownProvider(LookupError):
    """Nothing installed answers to this provider's name."""


class ModelNotChosen(LookupError):
    """No model is named and the server does not offer exactly one; `offered` is what it has."""

    def __init__(self, offered: tuple[str, ...]) -> None:
        listed = ", ".join(offered) or "none"
        super().__init__(f"Set model.name to one of the models that the server offers: {listed}.")
        self.offered = offered


def available_providers() -> tuple[str, ...]:
    """Names of all providers that are installed."""
    return tuple(
        sorted({*_BUILT_IN, *(entry.name for entry in entry_points(group=ENTRY_POINT_GROUP))})
    )


def build_provider(settings: TargetSettings) -> Provider:
    """Make the provider that the settings name; imports what it needs, which may take a while."""
    return _find_builder(settings.provider)(settings)


async def choose_model(provider: Provider, settings: TargetSettings) -> str:
    """Find the model's name: configured, the service's usual one, or the only one it lists."""
    if settings.name is not None:
        return settings.name
    service = SERVICES.get(settings.provider)
    if service is not None and service.model is not None and settings.base_url is None:
        return service.model
    if not isinstance(provider, SupportsListModels):
        raise ModelNotChosen(())
    try:
        offered = await provider.list_models()
    except BadRequest:  # a server without such a list
        offered = ()
    if len(offered) != 1:
        raise ModelNotChosen(offered)
    return offered[0]


def _find_builder(name: str) -> BuildProvider:
    if name in _BUILT_IN:
        found: BuildProvider = import_module(_BUILT_IN[name]).build
        return found
    for entry in entry_points(group=ENTRY_POINT_GROUP, name=name):
        loaded: BuildProvider = entry.load()
        return loaded
    msg = f"There is no model provider {name!r}; installed are {', '.join(available_providers())}."
    raise UnknownProvider(msg)
