"""Sans-IO: separation of inline reasoning from the answer text.

Some models begin their text with `<think>…</think>`. Only a tag at the very beginning counts,
because an answer may mention such tags.
"""

import re

_TAG_NAMES = ("think", "thinking", "reasoning", "reasoning_scratchpad")
_OPEN_TAG = re.compile(rf"\s*<({'|'.join(_TAG_NAMES)})(?:\s[^>]*)?>", re.IGNORECASE)
_PARTIAL_OPEN_TAG = re.compile(
    rf"\s*(?:<(?:{'|'.join(_TAG_NAMES)})\s[^>]*|<[a-z_]*)?", re.IGNORECASE
)
_MAX_TAG_LENGTH = 200


class ThinkSplitter:
    """Stream splitter: each piece of text yields a reasoning part and an answer part."""

    def __init__(self) -> None:
        self._held = ""
        self._closing_tag: str | None = None  # expected end tag, in lower case
        self._answering = False  # after the end tag, while skipping blank lines
        self.passthrough = False  # no tag can follow; callers may bypass `feed`

    def feed(self, piece: str) -> tuple[str, str]:
        """Return (reasoning, answer); text that may still become a tag is held back."""
        if self.passthrough:
            return "", piece
        self._held += piece
        if self._answering:
            return "", self._begin_answer()
        if self._closing_tag is None:
            opened = _OPEN_TAG.match(self._held)
            if opened is None:
                return "", self._release_unless_tag()
            self._closing_tag = f"</{opened[1].lower()}>"
            self._held = self._held[opened.end() :]
        return self._split_at_closing_tag(self._closing_tag)

    def close(self) -> tuple[str, str]:
        """Return the held text as (reasoning, answer); an unclosed tag makes it reasoning."""
        held, self._held = self._held, ""
        self.passthrough = True
        return (held, "") if self._closing_tag and not self._answering else ("", held)

    def _release_unless_tag(self) -> str:
        if len(self._held) < _MAX_TAG_LENGTH and self._may_become_tag():
            return ""
        self.passthrough = True
        held, self._held = self._held, ""
        return held

    def _may_become_tag(self) -> bool:
        if not _PARTIAL_OPEN_TAG.fullmatch(self._held):
            return False
        word = self._held.strip().lower().removeprefix("<").split(None, 1)
        return not word or any(name.startswith(word[0]) for name in _TAG_NAMES)

    def _split_at_closing_tag(self, closing: str) -> tuple[str, str]:
        lowered = self._held.lower()
        end = lowered.find(closing)
        if end < 0:
            keep = _partial_tag_length(lowered, closing)
            thought = self._held[: len(self._held) - keep]
            self._held = self._held[len(thought) :]
            return thought, ""
        thought, self._held = self._held[:end], self._held[end + len(closing) :]
        self._answering = True
        return thought, self._begin_answer()

    def _begin_answer(self) -> str:
        answer, self._held = self._held.lstrip(), ""
        self.passthrough = bool(answer)
        return answer


def _partial_tag_length(text: str, tag: str) -> int:
    """Return the length of the longest suffix of the text that is a prefix of the tag."""
    return next((n for n in range(len(tag) - 1, 0, -1) if text.endswith(tag[:n])), 0)
