"""Ids that sort by creation time (`s_01…`, `t_01…`), and deterministic ids."""

import secrets
from collections.abc import Callable
from hashlib import blake2b

from sessions.values.clock import Clock

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_RANDOM_BITS = 40
_DIGEST_BYTES = 11


class Ids:
    """A generator of unique ids, which sort in the order of their creation."""

    def __init__(self, clock: Clock, randbits: Callable[[int], int] = secrets.randbits) -> None:
        self._clock = clock
        self._randbits = randbits
        self._last = 0

    def new(self, kind: str) -> str:
        """Return a new id that begins with the word `kind`."""
        fresh = (self._clock.now() << _RANDOM_BITS) | self._randbits(_RANDOM_BITS)
        # A clock that stands still or goes back must not make an id smaller than an earlier one.
        self._last = fresh if fresh > self._last else self._last + 1
        return f"{kind}_{_base32(self._last)}"


def unique_part(id_: str) -> str:
    """Return an id without the word for its kind: `01…` of `t_01…`."""
    return id_.partition("_")[2]


def stable_id(*parts: str) -> str:
    """Return a deterministic id of these parts."""
    text = "\0".join(parts).encode(errors="surrogatepass")
    return _base32(int.from_bytes(blake2b(text, digest_size=_DIGEST_BYTES).digest()))


def _base32(number: int) -> str:
    digits = []
    while number:
        number, digit = divmod(number, 32)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits)).rjust(18, "0")
