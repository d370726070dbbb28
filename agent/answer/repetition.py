"""Sans-IO: notices that a model says the same block over and over.

Only exact repetition counts, and only of blocks of some length: tables, drawings and rules of
equal marks repeat short pieces for good reasons. The price is that a short phrase without end is
not noticed here; the output limit ends it.
"""

_LEAST_PERIOD = 60  # characters of one block
_LEAST_REPEATS = 5
_LOOKED_AT = 16_384  # characters at the end of what was fed
_LEAST_LOOPED = _LOOKED_AT // 2
_EVERY = 4096  # characters between two looks
_MOST_PERIOD = _LOOKED_AT // _LEAST_REPEATS
# A loop is noticed at the first look after it has become long enough, so this much holds it whole.
_KEPT = _LOOKED_AT + _EVERY

_ENDS = frozenset(" \t\r\n.,;:!?)]}")


class LoopWatch:
    """Feed a text in pieces; how it was cut into pieces makes no difference."""

    def __init__(self) -> None:
        self._found: int | None = None
        self._pieces: list[str] = []  # since the last look
        self._waiting = 0  # their size
        self._kept = ""  # the end of what was looked at
        self._seen = 0  # characters looked at

    def feed(self, text: str) -> int | None:
        """Take a piece; once a loop is found, give how many characters stand before it.

        The first occurrence of the repeated block belongs to the loop.
        """
        if self._found is None:
            self._pieces.append(text)
            self._waiting += len(text)
            if self._waiting >= _EVERY:
                self._found = self._look()
        return self._found

    def _look(self) -> int | None:
        fresh = "".join(self._pieces)
        whole = len(fresh) - len(fresh) % _EVERY
        self._pieces = [fresh[whole:]]
        self._waiting = len(fresh) - whole
        for at in range(0, whole, _EVERY):
            self._kept = (self._kept + fresh[at : at + _EVERY])[-_KEPT:]
            self._seen += _EVERY
            start = _loop_in(self._kept)
            if start is not None:
                return self._seen - len(self._kept) + start
        return None


def _loop_in(text: str) -> int | None:
    """Find where the loop begins that the text ends with."""
    if len(text) < _LEAST_LOOPED:
        return None
    backwards = text[::-1]  # only the search from the front is quick whatever the text
    period = _period(backwards)
    if period < _LEAST_PERIOD:
        return None
    looped = _looped(backwards, period)
    if looped < max(_LEAST_LOOPED, _LEAST_REPEATS * period):
        return None
    return _past_ends(text, len(text) - looped, period)


def _period(text: str) -> int:
    """Give the smallest period of the text's beginning; -1 when there is none to speak of.

    A beginning longer than any period, found again that near, can only stand one period further.
    """
    sample = text[: _LEAST_LOOPED - _MOST_PERIOD]
    return text.find(sample, 1, _MOST_PERIOD + len(sample))


def _looped(text: str, period: int) -> int:
    """Give the length of the longest beginning that repeats itself after `period` characters."""
    least, most = period, len(text)
    while least < most:
        middle = (least + most + 1) // 2
        if text[period:middle] == text[: middle - period]:
            least = middle
        else:
            most = middle - 1
    return least


def _past_ends(text: str, start: int, period: int) -> int:
    """Leave the marks that end the sentence before the loop to it, where the loop has them too."""
    block = range(start, start + period)
    return next((at for at in block if text[at] not in _ENDS), start)
