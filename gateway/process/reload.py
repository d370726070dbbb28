"""Reload of the configuration while the gateway runs.

The whole configuration is read, checked and prepared before any part takes effect. After an error,
or if the model cannot be found, the current settings stay in force.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from gateway.access.people import People
from gateway.config.diff import ReloadPlan, plan_reload
from gateway.errors import HoldfastError
from gateway.observe.redact import Redactor, find_secrets
from gateway.settings import Settings
from gateway.turns.models import Models, open_targets

log = logging.getLogger(__name__)


class ConfigReloader:
    """Reloader of the configuration; concurrent calls run one after the other."""

    def __init__(
        self,
        read_settings: Callable[[], Settings],
        *,
        current_settings: Callable[[], Settings],
        apply_settings: Callable[[Settings], None],
        models: Models,
        people: People,
        redactor: Redactor,
        enforce_access: Callable[[], Awaitable[None]],
    ) -> None:
        self._read_settings = read_settings
        self._current_settings = current_settings
        self._apply_settings = apply_settings
        self._models = models
        self._people = people
        self._redactor = redactor
        self._enforce_access = enforce_access
        self._lock = asyncio.Lock()

    async def __call__(self) -> dict[str, object]:
        """Reload the configuration and return the changed keys; raises `HoldfastError`."""
        async with self._lock:
            try:
                plan = await self._reload()
            except HoldfastError as error:
                for line in error.lines:
                    log.error("configuration not reloaded, the current one stays: %s", line)  # noqa: TRY400 - no traceback
                raise
        log.info("configuration reloaded. %s", plan.summary)
        return {
            "changed": list(plan.changed),
            "later": list(plan.after_restart),
            "summary": plan.summary,
        }

    async def _reload(self) -> ReloadPlan:
        new, old = self._read_settings(), self._current_settings()
        for secret in find_secrets(new):
            self._redactor.add(secret)
        plan = plan_reload(old, new)
        prepared = self._models.prepare(plan.settings)
        # A new limit in dollars opens the models again, because then their prices must be known.
        limits = (plan.settings.limits.dollar_limit_key, old.limits.dollar_limit_key)
        reopen = plan.settings.model != old.model or limits[0] != limits[1]
        targets = await open_targets(plan.settings) if reopen else None
        self._models.apply(prepared, targets)
        self._people.apply_settings(plan.settings.access)
        self._apply_settings(plan.settings)
        if plan.settings.access != old.access:
            await self._enforce_access()
        return plan
