"""Sans-IO: the interface of speech to text."""

from collections.abc import Awaitable, Callable
from typing import Protocol

RecordingReader = Callable[[], Awaitable[bytes]]
"""Reads the recording."""


class TranscriptionFailed(Exception):
    """Transcription failed; the message is for the model, `log_message` for operators."""

    def __init__(self, reason: str, log_message: str = "") -> None:
        super().__init__(reason)
        self.log_message = log_message or reason


class SpeechToText(Protocol):
    """Speech to text; see `gateway.media.transcription`."""

    async def transcribe(self, read_recording: RecordingReader, media_type: str, size: int) -> str:
        """Return the transcript, or raise `TranscriptionFailed`.

        The recording is read only when a slot is free.
        """
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...
