"""Reads the configuration anew while the gateway runs.

All of it is read, checked and prepared before anything is exchanged: when something is wrong with
it, or its model cannot be found, what was in force stays in force.
"""

import asyncio
import logging
from collections.abc import Callable

from gateway.access.people import People
from gateway.config.diff import Reloaded, reload
from gateway.errors import HoldfastError
from gateway.observe.redact import Redactor, secrets_in
from gateway.settings import Settings
from gateway.turns.models import Models, open_targets

log = logging.getLogger(__name__)


class Reload:
    """One at a time; whoever asks meanwhile waits, and then reads anew."""

    def __init__(
        self,
        reread: Callable[[], Settings],
        *,
        current: Callable[[], Settings],
        use: Callable[[Settings], None],
        models: Models,
        people: People,
        redactor: Redactor,
    ) -> None:
        self._reread = reread
        self._current = current
        self._use = use
        self._models = models
        self._people = people
        self._redactor = redactor
        self._one = asyncio.Lock()

    async def __call__(self) -> dict[str, object]:
        """See the module; raises `HoldfastError` with what is wrong."""
        async with self._one:
            try:
                found = await self._exchange()
            except HoldfastError as error:
                for line in error.lines:
                    log.error("the configuration is not taken, the one in force stays: %s", line)  # noqa: TRY400 - the operator needs the sentence
                raise
        log.info("the configuration was read anew. %s", found.summary)
        return {
            "changed": list(found.changed),
            "later": list(found.later),
            "summary": found.summary,
        }

    async def _exchange(self) -> Reloaded:
        new, old = self._reread(), self._current()
        for secret in secrets_in(new):
            self._redactor.add(secret)
        found = reload(old, new)
        prepared = self._models.prepare(found.settings)
        # Where money is limited from now on the price of each model must be known.
        limits = (found.settings.limits.in_dollars, old.limits.in_dollars)
        other = found.settings.model != old.model or limits[0] != limits[1]
        targets = await open_targets(found.settings) if other else None
        self._models.adopt(prepared, targets)
        self._people.adopt(found.settings.access)
        self._use(found.settings)
        return found
