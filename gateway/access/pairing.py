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

CODE_ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
"""No 0 and O, no 1 and I: people read codes to each other."""
CODE_LENGTH = 8
CODE_LIFETIME_MS = 3_600_000
"""Milliseconds a code is good for."""
MAX_OPEN_PER_PLATFORM = 20
FREE_FAILURES = 3
"""Wrong codes that cost no waiting."""
MAX_WAIT_MS = 3_600_000

_CODE_PATTERN = f"[{CODE_ALPHABET}{CODE_ALPHABET.lower()}]{{4}}[- ]?[{CODE_ALPHABET}{CODE_ALPHABET.lower()}]{{4}}"
_CLAIM_PATTERN = re.compile(
    rf"(?:(?:[/!]?claim)|(?:[/!]start(?:@\w+)?))\s+({_CODE_PATTERN})", re.IGNORECASE
)


class PairingCode(Struct, frozen=True, kw_only=True):
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
        return self.created_at + CODE_LIFETIME_MS


# --- writing and reading codes -----------------------------------------------------------------


def new_code(choose: Callable[[Sequence[str]], str]) -> str:
    """Make a code; `choose` picks one sign unpredictably (`secrets.choice`)."""
    return "".join(choose(CODE_ALPHABET) for _ in range(CODE_LENGTH))


def normalize_code(code: str) -> str:
    """Undo what people do to codes: small letters, a hyphen or space in the middle."""
    return re.sub(r"[\s-]", "", code).upper()


def hash_code(code: str, key: bytes) -> str:
    """Hash a code for keeping; `key` is this installation's own."""
    return hmac.new(key, normalize_code(code).encode(), hashlib.sha256).hexdigest()


def find_claim_code(text: str) -> str | None:
    """Find a claim code in what a stranger says: `claim CODE` or `/start CODE`."""
    match = _CLAIM_PATTERN.fullmatch(text.strip())
    return normalize_code(match[1]) if match else None


# --- giving out --------------------------------------------------------------------------------


class OfferCode(Struct, frozen=True):
    """Give this person a new code."""


class CodeAlreadyOffered(Struct, frozen=True):
    """This person has a code already; it cannot be shown again."""

    expires_at: int


class PairingFull(Struct, frozen=True):
    """Too many strangers are waiting: say nothing to this one, and tell the admins."""


def decide_offer(
    codes: Iterable[PairingCode], platform: str, principal: str, now: int
) -> OfferCode | CodeAlreadyOffered | PairingFull:
    """Decide whether a stranger gets a code: one for each person, 20 on a platform."""
    waiting = [
        code
        for code in codes
        if code.kind == "pair" and code.platform == platform and now < code.expires_at
    ]
    for code in waiting:
        if code.principal == principal:
            return CodeAlreadyOffered(code.expires_at)
    return PairingFull() if len(waiting) >= MAX_OPEN_PER_PLATFORM else OfferCode()


# --- taking back -------------------------------------------------------------------------------


class CodeRedeemed(Struct, frozen=True):
    """The code is right. It must be deleted in the same transaction that lets the person in."""

    code: PairingCode


class CodeExpired(Struct, frozen=True):
    """The code was right once."""


class CodeInvalid(Struct, frozen=True):
    """No such code: count it as a failure."""


def redeem_code(
    codes: Iterable[PairingCode], text: str, key: bytes, kind: Literal["pair", "claim"], now: int
) -> CodeRedeemed | CodeExpired | CodeInvalid:
    """Look a code up. All are compared, so that the time taken tells nothing."""
    digest = hash_code(text, key)
    found = [code for code in codes if hmac.compare_digest(code.digest, digest)]
    right = [code for code in found if code.kind == kind]
    if not right:
        return CodeInvalid()
    return CodeRedeemed(right[0]) if now < right[0].expires_at else CodeExpired()


def next_allowed_attempt(failures: int, last_failed_at: int) -> int:
    """Tell when somebody may try again after wrong codes, the last of them at `last`.

    The first three cost nothing; then 2 s, 4 s, 8 s and so on, at most an hour. Whoever counts
    starts anew after a right code.
    """
    beyond = failures - FREE_FAILURES
    if beyond <= 0:
        return last_failed_at
    return last_failed_at + min(1000 << min(beyond, 12), MAX_WAIT_MS)
