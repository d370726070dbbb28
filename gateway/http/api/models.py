"""Which model a request means, and which there are."""

from collections.abc import Sequence

from gateway.http.api.failures import Failure, Refused, no_model
from gateway.turns.model_names import Named, Several, meant, quoted
from gateway.turns.models import Models
from sessions.values.clock import Clock

_KEPT_SECONDS = 60.0


class Naming:
    """Finds models by the names that programs give."""

    def __init__(self, models: Models, clock: Clock) -> None:
        self._models = models
        self._clock = clock
        self._offered: tuple[str, ...] | None = None
        self._asked_at: float | None = None

    def listed(self) -> Sequence[tuple[str, str]]:
        """Name the configured models and those of the routes, with who provides each."""
        return [(name, self._models.provider_of(name)) for name in self._models.known()]

    def usual(self, key: str) -> str:
        """Name the model that answers in a conversation when none is asked for."""
        return self._models.targets_of(key)[0].model

    async def find(self, name: str) -> str:
        """Find a model as `/model` does; raises `Refused` where none is meant, or several are."""
        known = self._models.known()
        if not name or name in known:
            return name
        offered = await self._offers()
        names = (*known, *(offered or ()))
        match meant(name, names, others=offered is None):
            case Named(found):
                return found
            case Several(found):
                msg = f"“{name[:80]}” may be any of these models: {quoted(found)}."
            case near:
                hint = f" Did you mean {quoted(near.nearest)}?" if near.nearest else ""
                raise Refused(no_model(name, hint))
        raise Refused(Failure(status=404, message=msg, param="model", code="model_not_found"))

    async def _offers(self) -> tuple[str, ...] | None:
        """Ask the service what it has, but not for every request."""
        now = self._clock.monotonic()
        if self._asked_at is None or now - self._asked_at > _KEPT_SECONDS:
            self._offered = await self._models.offered()
            self._asked_at = now
        return self._offered
