"""Model and reasoning effort that people chose for a conversation."""

import asyncio
import logging

import msgspec

from sessions.store.store import SessionStore

log = logging.getLogger(__name__)

_SHELF = "choices"


class ModelChoice(msgspec.Struct, frozen=True, omit_defaults=True):
    """Choice for one conversation; None means as configured."""

    model: str | None = None
    provider: str = ""  # the provider that knows this model name
    effort: str | None = None


_DEFAULT_CHOICE = ModelChoice()


class ModelChoices:
    """Choices of all conversations, in memory and in the store."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._by_key: dict[str, ModelChoice] = {}
        self._lock = asyncio.Lock()  # each change reads the choice before it

    async def load(self) -> None:
        """Load the stored choices; unreadable ones are logged and skipped."""
        for key, written in (await self._store.values(_SHELF)).items():
            try:
                self._by_key[key] = msgspec.json.decode(written, type=ModelChoice)
            except msgspec.DecodeError as error:
                log.warning("%s: stored model choice cannot be read: %s", key, error)

    def get(self, key: str) -> ModelChoice:
        """Return the choice for a conversation."""
        return self._by_key.get(key, _DEFAULT_CHOICE)

    async def set_model(self, key: str, model: str | None, provider: str = "") -> None:
        """Set the model for future turns; None restores the configured one."""
        async with self._lock:
            chosen = msgspec.structs.replace(self.get(key), model=model, provider=provider)
            await self._save(key, chosen)

    async def set_effort(self, key: str, effort: str | None) -> None:
        """Set the reasoning effort for future turns; None restores the configured one."""
        async with self._lock:
            await self._save(key, msgspec.structs.replace(self.get(key), effort=effort))

    async def forget(self, key: str) -> None:
        """Delete the choice for a conversation that was deleted."""
        async with self._lock:
            if key in self._by_key:
                await self._save(key, _DEFAULT_CHOICE)

    async def _save(self, key: str, chosen: ModelChoice) -> None:
        if chosen == _DEFAULT_CHOICE:
            await self._store.put_value(_SHELF, key, None)
            self._by_key.pop(key, None)
        else:
            await self._store.put_value(_SHELF, key, msgspec.json.encode(chosen).decode())
            self._by_key[key] = chosen
