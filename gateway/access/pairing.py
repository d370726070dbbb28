"""Sans-IO: codes by which a stranger is let in, and by which the first owner shows up.

A code is shown once and kept only as a keyed hash; it is good for one hour and one use. Chance, the
time and the key of the installation are arguments; the store keeps the records.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from msgspec import Struct

ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
"""No 0 and O, no 1 and I: people read codes to each other."""
LENGTH = 8
LIFETIME = 3_600_000
"""Milliseconds a code is good for."""
OPEN_PER_PLATFORM = 20
FREE_FAILURES = 3
"""Wrong codes that cost no waiting."""
LONGEST_WAIT = 3_600_000

_CODE = f"[{ALPHABET}{ALPHABET.lower()}]{{4}}[- ]?[{ALPHABET}{ALPHABET.lower()}]{{4}}"
_CLAIM = re.compile(rf"(?:(?:[/!]?claim)|(?:[/!]start(?:@\w+)?))\s+({_CODE})", re.IGNORECASE)


class Code(Struct, frozen=True):
    """An open code, as it is kept."""

    kind: Literal["pair", "claim"]
    digest: str
    platform: str
    principal: str  # who asked to be let in; empty for a claim code, which is for whoever has it
    created_at: int
    name: str = ""  # how that person was called then

    @property
    def expires_at(self) -> int:
        """The first moment at which it is good no more."""
        return self.created_at + LIFETIME


# --- writing and reading codes -----------------------------------------------------------------


def new_code(choose: Callable[[Sequence[str]], str]) -> str:
    """Make a code; `choose` picks one sign unpredictably (`secrets.choice`)."""
    return "".join(choose(ALPHABET) for _ in range(LENGTH))


def normal(code: str) -> str:
    """Undo what people do to codes: small letters, a hyphen or space in the middle."""
    return re.sub(r"[\s-]", "", code).upper()


def digest_of(code: str, key: bytes) -> str:
    """Hash a code for keeping; `key` is this installation's own."""
    return hmac.new(key, normal(code).encode(), hashlib.sha256).hexdigest()


def claim_in(text: str) -> str | None:
    """Find a claim code in what a stranger says: `claim CODE` or `/start CODE`."""
    match = _CLAIM.fullmatch(text.strip())
    return normal(match[1]) if match else None


# --- giving out --------------------------------------------------------------------------------


class Offer(Struct, frozen=True):
    """Give this person a new code."""


class Waiting(Struct, frozen=True):
    """This person has a code already; it cannot be shown again."""

    expires_at: int


class Full(Struct, frozen=True):
    """Too many strangers are waiting: say nothing to this one, and tell the admins."""


def offer(codes: Iterable[Code], platform: str, principal: str, now: int) -> Offer | Waiting | Full:
    """Decide whether a stranger gets a code: one for each person, 20 on a platform."""
    waiting = [
        code
        for code in codes
        if code.kind == "pair" and code.platform == platform and now < code.expires_at
    ]
    for code in waiting:
        if code.principal == principal:
            return Waiting(code.expires_at)
    return Full() if len(waiting) >= OPEN_PER_PLATFORM else Offer()


# --- taking back -------------------------------------------------------------------------------


class Redeemed(Struct, frozen=True):
    """The code is right. It must be deleted in the same transaction that lets the person in."""

    code: Code


class Expired(Struct, frozen=True):
    """The code was right once."""


class Wrong(Struct, frozen=True):
    """No such code: count it as a failure."""


def redeem(
    codes: Iterable[Code], text: str, key: bytes, kind: Literal["pair", "claim"], now: int
) -> Redeemed | Expired | Wrong:
    """Look a code up. All are compared, so that the time taken tells nothing."""
    digest = digest_of(text, key)
    found = [code for code in codes if hmac.compare_digest(code.digest, digest)]
    right = [code for code in found if code.kind == kind]
    if not right:
        return Wrong()
    return Redeemed(right[0]) if now < right[0].expires_at else Expired()


def next_allowed_attempt(failures: int, last: int) -> int:
    """Tell when somebody may try again after wrong codes, the last of them at `last`.

    The first three cost nothing; then 2 s, 4 s, 8 s and so on, at most an hour. Whoever counts
    starts anew after a right code.
    """
    beyond = failures - FREE_FAILURES
    if beyond <= 0:
        return last
    return last + min(1000 << min(beyond, 12), LONGEST_WAIT)
