"""Sans-IO: masking of secrets in a growing text; finished paragraphs and plain words are masked once.

A text is shown again each second while it is written. Without this module each update would mask
the whole text again.
"""

import re

from gateway.observe.redact import PRIVATE_KEY_HEAD, Redactor
from gateway.observe.redact_drawn import draws_secret, may_define_links, redact_markdown
from gateway.observe.redact_stream import hold_back, mask_unfinished
from sessions.values.visible_text import visible_text

_PARAGRAPH_END = "\n\n"
_BEARER = "earer "
_NOT_PLAIN = re.compile(r"[^ !\"#%'()+,./0-9:;=>?@A-Z^a-z{}\n-]")
"""A character that may be Markdown inside a line, or whose drawing depends on the text around."""


def redact_shown(text: str, redactor: Redactor) -> str:
    """Mask secrets in a text as a chat draws it, also one that the text ends in."""
    return redact_markdown(mask_unfinished(text, redactor), redactor)


class GrowingRedaction:
    """Masks one growing text repeatedly, with the results of `redact_shown(visible_text(text))`.

    The text up to a blank line is settled once it has no drawn secret, and so are plain words after
    it. Later text changes their drawn form only by link definitions. A private key, or a configured
    secret with a line break, may begin in one paragraph and end in another: then nothing is settled.
    A token after "Bearer", or a configured secret with a blank, may begin in one word and end in
    another: then no words are settled.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._forget()

    def _forget(self) -> None:
        self._values = self._redactor.values  # configured secrets at the last call
        self._can_settle = not any("\n" in value for value in self._values)
        self._can_settle_words = not any(" " in value for value in self._values)
        self._settled = ""  # beginning of the text
        self._masked = ""  # the same, as shown

    def hold_back(self, text: str) -> str:
        """Return the text without an end that may be the beginning of a secret."""
        return hold_back(text, self._redactor)

    def redact(self, text: str) -> str:
        """Mask the current text; one that does not extend the last one is masked from its start."""
        if self._values is not self._redactor.values or not text.startswith(self._settled):
            self._forget()
        if not self._can_settle:
            return redact_shown(visible_text(text), self._redactor)
        start, end = len(self._settled), self._settled_end(text)
        head = self._redactor.redact(visible_text(text[start:end]))
        rest = mask_unfinished(visible_text(text[end:]), self._redactor)
        rest = self._redactor.redact(rest)
        new = head + rest
        if may_define_links(new) or draws_secret(new, self._redactor, above=self._masked):
            return redact_shown(visible_text(text), self._redactor)
        if head:
            self._settled, masked = text[:end], self._masked + head
            self._masked = self._settled if masked == self._settled else masked  # one copy
        return self._masked + rest

    def _settled_end(self, text: str) -> int:
        """Return the end of the last finished paragraph, or plain word, before any private key."""
        start = len(self._settled)
        key = text.find(PRIVATE_KEY_HEAD, start)
        limit = key if key >= 0 else len(text)
        paragraph = text.rfind(_PARAGRAPH_END, start, limit)
        end = paragraph + len(_PARAGRAPH_END) if paragraph >= 0 else start
        if not self._can_settle_words:
            return end
        mark = _NOT_PLAIN.search(text, end, limit)
        word = text.rfind(" ", end, mark.start() if mark else limit) + 1
        return end if not word or text.endswith(_BEARER, end, word) else word
