"""Sans-IO: from the text of an item to the texts of its messages; may run in a thread."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from gateway.delivery.imitations import mark_imitations
from gateway.delivery.long_text import IN_FILE, NOT_SHOWN, STILL_WRITING, beginning
from gateway.delivery.view import render_final, render_live
from platforms.core.contract import Capabilities, Live
from platforms.core.split import IncrementalSplitter


class Rendering(msgspec.Struct, frozen=True):
    """The texts of an item's messages."""

    source: str  # text of the item
    texts: tuple[str, ...]
    is_cut: bool = False  # the messages show only the beginning


class LiveRedaction(Protocol):
    """Masking of the secrets in one growing text."""

    def hold_back(self, text: str) -> str:
        """Return the text without an end that may be the beginning of a secret."""
        ...

    def redact(self, text: str) -> str:
        """Return the text as a chat may see it; fast if the text extends the last one."""
        ...


class RenderJob(msgspec.Struct, frozen=True, kw_only=True):
    """The work of rendering one state of an item; takes about 2 ms for 10,000 characters."""

    text: str
    capabilities: Capabilities
    is_of_model: bool
    messages: int | None  # maximum number
    has_file: bool = False  # the whole text follows as a file
    growing: IncrementalSplitter | None = None  # for a text being written
    redaction: LiveRedaction | None = None  # likewise
    status: str = ""  # likewise

    def run(self, redact: Callable[[str], str]) -> Rendering:
        """Return the texts of the messages as the chat may see them."""
        text = self.text
        if self.messages is not None:
            text = beginning(text, self.messages, self.capabilities)
        shown = self.redaction.redact(text) if self.redaction else redact(text)
        if self.is_of_model:  # a model cannot imitate the gateway
            shown = mark_imitations(shown)
        if self.growing:
            status = redact(self.status) if self.status else ""
            texts = render_live(shown, self.capabilities, status, self.growing)
        else:
            texts = render_final(shown, self.capabilities)
        if self.messages is None or (len(texts) <= self.messages and len(text) == len(self.text)):
            return Rendering(self.text, texts)
        # The last one may end inside a secret, which is then not masked.
        shown_texts = texts[:-1][: self.messages]
        return Rendering(self.text, (*shown_texts, self._note(redact)), is_cut=True)

    def _note(self, redact: Callable[[str], str]) -> str:
        """Return the message below the shown part."""
        if not self.growing:
            return IN_FILE if self.has_file else NOT_SHOWN
        if self.status and self.capabilities.live is Live.EDIT:
            return f"{STILL_WRITING}\n\n{redact(self.status)}"
        return STILL_WRITING
