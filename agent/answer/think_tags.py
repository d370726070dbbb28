"""Sans-IO: tells thinking from answer where a model writes both into one text.

Some models begin their text with `<think>…</think>`. Only a tag at the very beginning counts: later
on, a text may speak about such tags.
"""

import re

_NAMES = ("think", "thinking", "reasoning", "reasoning_scratchpad")
_OPEN = re.compile(rf"\s*<({'|'.join(_NAMES)})(?:\s[^>]*)?>", re.IGNORECASE)
_MAY_OPEN = re.compile(rf"\s*(?:<(?:{'|'.join(_NAMES)})\s[^>]*|<[a-z_]*)?", re.IGNORECASE)
_LONGEST_TAG = 200


class ThinkSplitter:
    """Feed pieces of text; each gives what it adds to the thinking and to the answer."""

    def __init__(self) -> None:
        self._held = ""
        self._closing: str | None = None  # the end tag that is waited for, in lower case
        self._answering = False  # the tag has ended; blank lines after it are not yet over
        self.plain = False  # no tag can follow any more: pieces need not pass through here

    def feed(self, piece: str) -> tuple[str, str]:
        """Give (thinking, answer); what may still become a tag is held back."""
        if self.plain:
            return "", piece
        self._held += piece
        if self._answering:
            return "", self._begin_answer()
        if self._closing is None:
            opened = _OPEN.match(self._held)
            if opened is None:
                return "", self._unless_tag()
            self._closing = f"</{opened[1].lower()}>"
            self._held = self._held[opened.end() :]
        return self._until_closed(self._closing)

    def close(self) -> tuple[str, str]:
        """Nothing follows: what was held back is thinking when its tag is still open."""
        held, self._held = self._held, ""
        self.plain = True
        return (held, "") if self._closing and not self._answering else ("", held)

    def _unless_tag(self) -> str:
        if len(self._held) < _LONGEST_TAG and self._may_become_tag():
            return ""
        self.plain = True
        held, self._held = self._held, ""
        return held

    def _may_become_tag(self) -> bool:
        if not _MAY_OPEN.fullmatch(self._held):
            return False
        word = self._held.strip().lower().removeprefix("<").split(None, 1)
        return not word or any(name.startswith(word[0]) for name in _NAMES)

    def _until_closed(self, closing: str) -> tuple[str, str]:
        lowered = self._held.lower()
        end = lowered.find(closing)
        if end < 0:
            keep = _overlap(lowered, closing)
            thought = self._held[: len(self._held) - keep]
            self._held = self._held[len(thought) :]
            return thought, ""
        thought, self._held = self._held[:end], self._held[end + len(closing) :]
        self._answering = True
        return thought, self._begin_answer()

    def _begin_answer(self) -> str:
        answer, self._held = self._held.lstrip(), ""
        self.plain = bool(answer)
        return answer


def _overlap(text: str, tag: str) -> int:
    """How many characters at the end of the text may be the beginning of the tag."""
    return next((n for n in range(len(tag) - 1, 0, -1) if text.endswith(tag[:n])), 0)
