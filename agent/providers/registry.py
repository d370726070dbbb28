"""Registry of model providers, built-in and installed.

A provider's module is imported only when the configuration names it. Other distributions register
providers as entry points in the group `holdfast.providers`; each entry point loads a function with
the signature of `build` in the built-in modules.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Protocol, runtime_checkable

import msgspec

from agent.errors import BadRequest
from agent.model.contract import Provider
from agent.settings import SERVICES, TargetSettings
from sessions.values.entry_points import entry_points_of

BuildProvider = Callable[[TargetSettings], Provider]

_ENTRY_POINT_GROUP = "holdfast.providers"

_BUILT_IN = {
    "anthropic": "agent.providers.anthropic.messages",
    "demo": "agent.providers.demo",
    "openai": "agent.providers.openai.chat",
    "openai-responses": "agent.providers.openai.responses",
}


@runtime_checkable
class SupportsListModels(Protocol):
    """A provider that can list the models of its service."""

    async def list_models(self) -> tuple[str, ...]:
        """Return the names of all models; raise only subclasses of `ProviderError`."""
        ...


class Target(msgspec.Struct, frozen=True):
    """A model that takes requests, with provider and settings."""

    provider: Provider
    model: str
    settings: TargetSettings

    @property
    def label(self) -> str:
        """The target's name in the journal and in notices."""
        return f"{self.provider.name}/{self.model}"


class UnknownProvider(LookupError):
    """No installed provider has this name."""


class ModelNotChosen(LookupError):
    """No model is configured, and the server lists none."""

    def __init__(self) -> None:
        super().__init__("The model server lists no models. Set model.name to the one to use.")


class ResolvedModel(msgspec.Struct, frozen=True):
    """A model name, and the number of models it was chosen from: 0 if it was not chosen."""

    name: str
    listed: int = 0


def available_providers() -> tuple[str, ...]:
    """Return the names of all installed providers."""
    return tuple(sorted({*_BUILT_IN, *entry_points_of(_ENTRY_POINT_GROUP).names}))


def build_provider(settings: TargetSettings) -> Provider:
    """Build the provider named in the settings; the first import can be slow.

    Raises `UnknownProvider`.
    """
    return _find_builder(settings.provider)(settings)


def known_model(settings: TargetSettings) -> str | None:
    """Return the configured model or the service's default; None if only the server knows one."""
    service = SERVICES.get(settings.provider)
    if settings.name is None and service is not None and settings.base_url is None:
        return service.model
    return settings.name


async def choose_model(provider: Provider, settings: TargetSettings) -> ResolvedModel:
    """Return the configured model, the service's default, or the first model the server lists.

    Raises `ModelNotChosen` when none of these exists.
    """
    if (known := known_model(settings)) is not None:
        return ResolvedModel(known)
    if not isinstance(provider, SupportsListModels):
        raise ModelNotChosen
    try:
        offered = await provider.list_models()
    except BadRequest:  # a server without such a list
        offered = ()
    if not offered:
        raise ModelNotChosen
    return ResolvedModel(offered[0], len(offered))


def _find_builder(name: str) -> BuildProvider:
    if name in _BUILT_IN:
        build: BuildProvider = import_module(_BUILT_IN[name]).build
        return build
    for entry in entry_points_of(_ENTRY_POINT_GROUP).select(name=name):
        loaded: BuildProvider = entry.load()
        return loaded
    installed = ", ".join(available_providers())
    msg = f"There is no model provider {name!r}. Installed providers: {installed}."
    raise UnknownProvider(msg)
