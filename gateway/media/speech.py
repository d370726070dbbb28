"""Sans-IO: how speech becomes words: what may be asked for it, and what can go wrong."""

from collections.abc import Awaitable, Callable
from typing import Protocol

RecordingReader = Callable[[], Awaitable[bytes]]
"""Reads the recording."""


class TranscriptionFailed(Exception):
    """Speech could not be written down; says why, for the model; `log` has what operators need."""

    def __init__(self, reason: str, log_message: str = "") -> None:
        super().__init__(reason)
        self.log_message = log_message or reason


class SpeechToText(Protocol):
    """Writes speech down; see `gateway.media.transcription`."""

    async def transcribe(self, read_recording: RecordingReader, media_type: str, size: int) -> str:
        """Give what is said, or raise `TranscriptionFailed`; the recording is read when its turn has come."""
        ...

    async def aclose(self) -> None:
        """Let go of all connections."""
        ...
