"""Sans-IO: how speech becomes words: what may be asked for it, and what can go wrong."""

from collections.abc import Awaitable, Callable
from typing import Protocol

Speech = Callable[[], Awaitable[bytes]]
"""Reads the recording."""


class NotHeard(Exception):
    """Speech could not be written down; says why, for the model; `log` has what operators need."""

    def __init__(self, why: str, log: str = "") -> None:
        super().__init__(why)
        self.log = log or why


class Listener(Protocol):
    """Writes speech down; see `gateway.media.transcription`."""

    async def heard(self, speech: Speech, media_type: str, size: int) -> str:
        """Give what is said, or raise `NotHeard`; the recording is read when its turn has come."""
        ...

    async def aclose(self) -> None:
        """Let go of all connections."""
        ...
