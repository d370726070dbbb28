"""What people chose for a conversation: another model, how long it may think."""

import msgspec

from sessions.store import SessionStore


class Choice(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was chosen; None: as configured."""

    model: str | None = None
    effort: str | None = None


class Choices:
    """The choices of all conversations."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def open(self) -> None:
        """Read them."""

    def of(self, key: str) -> Choice:
        """What was chosen for a conversation."""
        del key
        return Choice()
