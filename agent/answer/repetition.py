"""Sans-IO: notices that a model says the same block over and over.

Only exact repetition counts, and only of blocks of some length: tables, drawings and rules of
equal marks repeat short pieces for good reasons. The price is that a short phrase without end is
not noticed here; the output limit ends it.
"""

_MIN_PERIOD = 60  # characters of one block
_MIN_REPEATS = 5
_WINDOW = 16_384  # characters at the end of what was fed
_MIN_LOOP_LENGTH = _WINDOW // 2
_CHECK_INTERVAL = 4096  # characters between two looks
_MAX_PERIOD = _WINDOW // _MIN_REPEATS
# A loop is noticed at the first look after it has become long enough, so this much holds it whole.
_KEPT_CHARACTERS = _WINDOW + _CHECK_INTERVAL

_SENTENCE_ENDS = frozenset(" \t\r\n.,;:!?)]}")


class RepetitionDetector:
    """Feed a text in pieces; how it was cut into pieces makes no difference."""

    def __init__(self) -> None:
        self._loop_start: int | None = None
        self._pending_pieces: list[str] = []  # since the last look
        self._pending_characters = 0  # their size
        self._tail = ""  # the end of what was looked at
        self._examined_characters = 0  # characters looked at

    def feed(self, text: str) -> int | None:
        """Take a piece; once a loop is found, give how many characters stand before it.

        The first occurrence of the repeated block belongs to the loop.
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
    """Find where the loop begins that the text ends with."""
    if len(text) < _MIN_LOOP_LENGTH:
        return None
    backwards = text[::-1]  # only the search from the front is quick whatever the text
    period = _find_period(backwards)
    if period < _MIN_PERIOD:
        return None
    looped = _looped_length(backwards, period)
    if looped < max(_MIN_LOOP_LENGTH, _MIN_REPEATS * period):
        return None
    return _skip_sentence_end(text, len(text) - looped, period)


def _find_period(text: str) -> int:
    """Give the smallest period of the text's beginning; -1 when there is none to speak of.

    A beginning longer than any period, found again that near, can only stand one period further.
    """
    sample = text[: _MIN_LOOP_LENGTH - _MAX_PERIOD]
    return text.find(sample, 1, _MAX_PERIOD + len(sample))


def _looped_length(text: str, period: int) -> int:
    """Give the length of the longest beginning that repeats itself after `period` characters."""
    least, most = period, len(text)
    while least < most:
        middle = (least + most + 1) // 2
        if text[period:middle] == text[: middle - period]:
            least = middle
        else:
            most = middle - 1
    return least


def _skip_sentence_end(text: str, start: int, period: int) -> int:
    """Leave the marks that end the sentence before the loop to it, where the loop has them too."""
    block = range(start, start + period)
    return next((at for at in block if text[at] not in _SENTENCE_ENDS), start)
