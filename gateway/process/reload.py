"""Reads the configuration anew while the gateway runs.

All of it is read, checked and prepared before anything is exchanged: when something is wrong with
it, or its model cannot be found, what was in force stays in force.
"""

import asyncio
import logging
from collections.abc import Callable

from gateway.access.people import People
from gateway.config.diff import ReloadPlan, plan_reload
from gateway.errors import HoldfastError
from gateway.observe.redact import Redactor, find_secrets
from gateway.settings import Settings
from gateway.turns.models import Models, open_targets

log = logging.getLogger(__name__)


class ConfigReloader:
    """One at a time; whoever asks meanwhile waits, and then reads anew."""

    def __init__(
        self,
        read_settings: Callable[[], Settings],
        *,
        current_settings: Callable[[], Settings],
        apply_settings: Callable[[Settings], None],
        models: Models,
        people: People,
        redactor: Redactor,
    ) -> None:
        self._read_settings = read_settings
        self._current_settings = current_settings
        self._apply_settings = apply_settings
        self._models = models
        self._people = people
        self._redactor = redactor
        self._lock = asyncio.Lock()

    async def __call__(self) -> dict[str, object]:
        """See the module; raises `HoldfastError` with what is wrong."""
        async with self._lock:
            try:
                found = await self._reload()
            except HoldfastError as error:
                for line in error.lines:
                    log.error("the configuration is not taken, the one in force stays: %s", line)  # noqa: TRY400 - the operator needs the sentence
                raise
        log.info("the configuration was read anew. %s", found.summary)
        return {
            "changed": list(found.changed),
            "later": list(found.after_restart),
            "summary": found.summary,
        }

    async def _reload(self) -> ReloadPlan:
        new, old = self._read_settings(), self._current_settings()
        for secret in find_secrets(new):
            self._redactor.add(secret)
        found = plan_reload(old, new)
        prepared = self._models.prepare(found.settings)
        # Where money is limited from now on the price of each model must be known.
        limits = (found.settings.limits.dollar_limit_key, old.limits.dollar_limit_key)
        other = found.settings.model != old.model or limits[0] != limits[1]
        targets = await open_targets(found.settings) if other else None
        self._models.apply(prepared, targets)
        self._people.apply_settings(found.settings.access)
        self._apply_settings(found.settings)
        return found
