"""Sans-IO: pairing codes for people without access, and the claim code of the first owner.

A code is shown once and stored only as a keyed hash, and valid for one hour and one use. Random
source, time and key are arguments; the caller stores the records.
"""

import enum
import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

CODE_ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
"""No 0, O, 1 or I, because people read codes to each other."""
_CODE_LENGTH = 8
CODE_LIFETIME_MS = 3_600_000
"""Lifetime of a code in milliseconds."""
MAX_OPEN_PER_PLATFORM = 20
_FREE_FAILURES = 3
"""Wrong codes without a waiting time."""
MAX_WAIT_MS = 3_600_000

_CODE_PATTERN = f"[{CODE_ALPHABET}{CODE_ALPHABET.lower()}]{{4}}[- ]?[{CODE_ALPHABET}{CODE_ALPHABET.lower()}]{{4}}"
_CLAIM_PATTERN = re.compile(
    rf"(?:(?:[/!]?claim)|(?:[/!]start(?:@\w+)?))\s+({_CODE_PATTERN})", re.IGNORECASE
)


class CodeKind(enum.StrEnum):
    """Use of a code."""

    PAIR = "pair"  # an admin approves the person's access
    CLAIM = "claim"  # makes the sender the first admin


class PairingCode(Struct, frozen=True, kw_only=True):
    """A valid code as stored."""

    kind: CodeKind
    digest: str
    platform: str
    principal: str  # who asked for access; empty for a claim code, which anyone may use
    created_at: int
    name: str = ""  # the person's display name at that time

    @property
    def expires_at(self) -> int:
        """First moment at which the code is no longer valid."""
        return self.created_at + CODE_LIFETIME_MS


# --- creating and reading codes ----------------------------------------------------------------


def new_code(choose: Callable[[Sequence[str]], str]) -> str:
    """Create a code; `choose` picks a character unpredictably, as `secrets.choice` does."""
    return "".join(choose(CODE_ALPHABET) for _ in range(_CODE_LENGTH))


def normalize_code(code: str) -> str:
    """Normalize a typed code: upper case, without hyphens and spaces."""
    return re.sub(r"[\s-]", "", code).upper()


def hash_code(code: str, key: bytes) -> str:
    """Return the keyed hash under which a code is stored; `key` belongs to this installation."""
    return hmac.new(key, normalize_code(code).encode(), hashlib.sha256).hexdigest()


def find_claim_code(text: str) -> str | None:
    """Return the claim code in a message `claim CODE` or `/start CODE`."""
    match = _CLAIM_PATTERN.fullmatch(text.strip())
    return normalize_code(match[1]) if match else None


# --- offering codes ----------------------------------------------------------------------------


class OfferCode(Struct, frozen=True):
    """Give the person a new code."""


class CodeAlreadyOffered(Struct, frozen=True):
    """The person already has a code, which cannot be shown again."""

    expires_at: int


class PairingFull(Struct, frozen=True):
    """Too many people are waiting: do not reply; the admins get a bounded notice."""


def decide_offer(
    codes: Iterable[PairingCode], platform: str, principal: str, now: int
) -> OfferCode | CodeAlreadyOffered | PairingFull:
    """Decide whether a person gets a code: one per person, 20 per platform."""
    waiting = [
        code
        for code in codes
        if code.kind is CodeKind.PAIR and code.platform == platform and now < code.expires_at
    ]
    for code in waiting:
        if code.principal == principal:
            return CodeAlreadyOffered(code.expires_at)
    return PairingFull() if len(waiting) >= MAX_OPEN_PER_PLATFORM else OfferCode()


# --- redeeming codes ---------------------------------------------------------------------------


class CodeRedeemed(Struct, frozen=True):
    """The code is valid; the caller must delete it in the transaction that grants access."""

    code: PairingCode


class CodeExpired(Struct, frozen=True):
    """The code has expired."""


class CodeInvalid(Struct, frozen=True):
    """The code does not exist; the caller must count a failure."""


def redeem_code(
    codes: Iterable[PairingCode], text: str, key: bytes, kind: CodeKind, now: int
) -> CodeRedeemed | CodeExpired | CodeInvalid:
    """Look up a code; compares all codes, so that the time taken reveals nothing."""
    digest = hash_code(text, key)
    found = [code for code in codes if hmac.compare_digest(code.digest, digest)]
    matching = [code for code in found if code.kind is kind]
    if not matching:
        return CodeInvalid()
    return CodeRedeemed(matching[0]) if now < matching[0].expires_at else CodeExpired()


def next_allowed_attempt(failures: int, last_failed_at: int) -> int:
    """Return when the next code may be tried after `failures` wrong ones.

    The first three cost nothing; then the wait is 2 s, 4 s, 8 s and so on, at most an hour. The
    caller resets the count after a valid code.
    """
    beyond = failures - _FREE_FAILURES
    if beyond <= 0:
        return last_failed_at
    return last_failed_at + min(1000 << min(beyond, 12), MAX_WAIT_MS)
