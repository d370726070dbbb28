"""What people chose for a conversation: another model, how long it may think."""

import asyncio
import logging

import msgspec

from sessions.store.store import SessionStore

log = logging.getLogger(__name__)

_SHELF = "choices"


class Choice(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was chosen; None: as configured."""

    model: str | None = None
    provider: str = ""  # under which the model was chosen; elsewhere its name means nothing
    effort: str | None = None


_AS_CONFIGURED = Choice()


class Choices:
    """The choices of all conversations, in memory and in the store."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._known: dict[str, Choice] = {}
        self._lock = asyncio.Lock()  # a change builds on the one before

    async def open(self) -> None:
        """Read them."""
        for key, written in (await self._store.values(_SHELF)).items():
            try:
                self._known[key] = msgspec.json.decode(written, type=Choice)
            except msgspec.DecodeError as error:
                log.warning("%s: what was chosen cannot be read: %s", key, error)

    def of(self, key: str) -> Choice:
        """What was chosen for a conversation."""
        return self._known.get(key, _AS_CONFIGURED)

    async def choose_model(self, key: str, model: str | None, provider: str = "") -> None:
        """Have a model answer from now on; None: the configured one."""
        async with self._lock:
            chosen = msgspec.structs.replace(self.of(key), model=model, provider=provider)
            await self._keep(key, chosen)

    async def choose_effort(self, key: str, effort: str | None) -> None:
        """Let models think so long from now on; None: as configured."""
        async with self._lock:
            await self._keep(key, msgspec.structs.replace(self.of(key), effort=effort))

    async def _keep(self, key: str, chosen: Choice) -> None:
        if chosen == _AS_CONFIGURED:
            await self._store.put_value(_SHELF, key, None)
            self._known.pop(key, None)
        else:
            await self._store.put_value(_SHELF, key, msgspec.json.encode(chosen).decode())
            self._known[key] = chosen
