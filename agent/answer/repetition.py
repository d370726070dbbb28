"""Sans-IO: detection of a model that repeats the same block endlessly.

Only exact repetition of blocks of at least 60 characters counts, because tables, drawings and
horizontal rules legitimately repeat short pieces. An endlessly repeated short phrase is therefore
not detected here; the output limit ends such an answer.
"""

_MIN_PERIOD = 60  # characters of one block
_MIN_REPEATS = 5
_WINDOW = 16_384  # characters at the end of the text
_MIN_LOOP_LENGTH = _WINDOW // 2
_CHECK_INTERVAL = 4096  # characters between two checks
_MAX_PERIOD = _WINDOW // _MIN_REPEATS
# A loop is detected at the first check after reaching the minimum length, so this is enough.
_KEPT_CHARACTERS = _WINDOW + _CHECK_INTERVAL

_SENTENCE_ENDS = frozenset(" \t\r\n.,;:!?)]}")


class RepetitionDetector:
    """Loop detector for a streamed text; the result does not depend on how the text is split."""

    def __init__(self) -> None:
        self._loop_start: int | None = None
        self._pending_pieces: list[str] = []  # fed since the last check
        self._pending_characters = 0
        self._tail = ""  # end of the examined text
        self._examined_characters = 0

    def feed(self, text: str) -> int | None:
        """Add a piece; once a loop is found, return the number of characters before the loop.

        The first occurrence of the repeated block is part of the loop.
        """
        if self._loop_start is None:
            self._pending_pieces.append(text)
            self._pending_characters += len(text)
            if self._pending_characters >= _CHECK_INTERVAL:
                self._loop_start = self._examine()
        return self._loop_start

    def _examine(self) -> int | None:
        fresh = "".join(self._pending_pieces)
        whole = len(fresh) - len(fresh) % _CHECK_INTERVAL
        self._pending_pieces = [fresh[whole:]]
        self._pending_characters = len(fresh) - whole
        for at in range(0, whole, _CHECK_INTERVAL):
            self._tail = (self._tail + fresh[at : at + _CHECK_INTERVAL])[-_KEPT_CHARACTERS:]
            self._examined_characters += _CHECK_INTERVAL
            start = _find_loop(self._tail)
            if start is not None:
                return self._examined_characters - len(self._tail) + start
        return None


def _find_loop(text: str) -> int | None:
    """Return the start of the loop at the end of the text, or None."""
    if len(text) < _MIN_LOOP_LENGTH:
        return None
    backwards = text[::-1]  # `str.find` has a linear worst case, `str.rfind` does not
    period = _find_period(backwards)
    if period < _MIN_PERIOD:
        return None
    looped = _looped_length(backwards, period)
    if looped < max(_MIN_LOOP_LENGTH, _MIN_REPEATS * period):
        return None
    return _skip_sentence_end(text, len(text) - looped, period)


def _find_period(text: str) -> int:
    """Return the smallest period of the text's prefix; -1 if there is none.

    The sample is longer than any period, so the next occurrence is exactly one period further.
    """
    sample = text[: _MIN_LOOP_LENGTH - _MAX_PERIOD]
    return text.find(sample, 1, _MAX_PERIOD + len(sample))


def _looped_length(text: str, period: int) -> int:
    """Return the length of the longest prefix that has this period."""
    least, most = period, len(text)
    while least < most:
        middle = (least + most + 1) // 2
        if text[period:middle] == text[: middle - period]:
            least = middle
        else:
            most = middle - 1
    return least


def _skip_sentence_end(text: str, start: int, period: int) -> int:
    """Move the loop's start past punctuation that ends the sentence before the loop."""
    block = range(start, start + period)
    return next((at for at in block if text[at] not in _SENTENCE_ENDS), start)
