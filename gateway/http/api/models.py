"""Model names in API requests: the list of models, and resolution of a requested name."""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from gateway.http.api.failures import HttpFailure, RequestRefused, model_not_found
from gateway.turns.model_names import (
    ModelAmbiguous,
    ModelFound,
    ModelUnknown,
    find_model,
    quote_names,
)
from gateway.turns.models import Models
from sessions.values.clock import Clock

_CACHE_SECONDS = 60.0
_MAX_LISTED = 1_000  # models of the service


class ModelResolver:
    """Resolver of model names given by API clients."""

    def __init__(self, models: Models, clock: Clock) -> None:
        self._models = models
        self._clock = clock
        self._offered_names: tuple[str, ...] | None = None
        self._fetched_at: float | None = None

    async def list_models(self) -> Sequence[tuple[str, str]]:
        """List the models of the configuration and of its routes, each with its provider.

        With `model.list`, the models of the configured service follow.
        """
        names = list(self._models.configured_names())
        if self._models.lists_offered():
            names += (await self._fetch_offered_names() or ())[:_MAX_LISTED]
        return [(name, self._models.provider_of(name)) for name in dict.fromkeys(names)]

    def default_model(self, key: str) -> str:
        """Return the model that answers in a conversation if a request names none."""
        return self._models.targets_of(key)[0].model

    def shows_reasoning(self) -> bool:
        """Return True if clients may see the model's reasoning (`agent.show_reasoning`)."""
        return self._models.shows_reasoning()

    async def resolve(self, name: str) -> str:
        """Find a model as `/model` does; raises `RequestRefused` unless exactly one matches."""
        known = self._models.configured_names()
        if not name or name in known:
            return name
        offered = await self._fetch_offered_names()
        names = (*known, *(offered or ()))
        match find_model(name, names, allow_unlisted=offered is None):
            case ModelFound(found):
                return found
            case ModelAmbiguous(found):
                msg = f"“{name[:80]}” matches several models: {quote_names(found)}."
                raise RequestRefused(
                    HttpFailure(status=404, message=msg, param="model", code="model_not_found")
                )
            case ModelUnknown(nearest):
                hint = f" Did you mean {quote_names(nearest)}?" if nearest else ""
                raise RequestRefused(model_not_found(name, hint))

    async def _fetch_offered_names(self) -> tuple[str, ...] | None:
        """Ask the model service for its models, at most once a minute."""
        now = self._clock.monotonic()
        if self._fetched_at is None or now - self._fetched_at > _CACHE_SECONDS:
            self._offered_names = await self._models.list_offered()
            self._fetched_at = now
        return self._offered_names


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A model that requests can name."""

    id: str
    object: Literal["model"] = "model"
    created: Annotated[int, Meta(description="Start of the gateway, as Unix time in seconds.")]
    owned_by: Annotated[str, Meta(description="The provider of the model.")]


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """The configured models and those of the routes; with `model.list`, all of the service."""

    object: Literal["list"] = "list"
    data: list[Model]
