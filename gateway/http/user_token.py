"""The signed user of a front end (`X-OpenWebUI-User-Jwt`), a JSON Web Token with HS256.

Open WebUI signs a token of a few minutes for each request, with a secret that both programs know.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import TypeVar

import msgspec

from sessions.values.clock import Clock
from sessions.values.secret import Secret

SIGNED_USER_HEADER = "X-OpenWebUI-User-Jwt"
_CLOCK_DIFFERENCE_SECONDS = 60


T = TypeVar("T")


class InvalidUserToken(Exception):
    """A token that does not prove a user; the message says why."""


class _TokenHeader(msgspec.Struct):
    alg: str


class _TokenClaims(msgspec.Struct):
    sub: str = ""
    exp: int | float | None = None
    nbf: int | float | None = None
    iat: int | float | None = None


class SignedUsers(msgspec.Struct, frozen=True, kw_only=True):
    """Reader of the tokens that are signed with a secret."""

    secret: Secret
    clock: Clock

    def read(self, token: str) -> str:
        """Return the user of a token; raises `InvalidUserToken`."""
        return read_signed_user(token, self.secret.reveal(), self.clock.now() / 1000)


_read_header = msgspec.json.Decoder(_TokenHeader).decode
_read_claims = msgspec.json.Decoder(_TokenClaims).decode


def read_signed_user(token: str, secret: str, now: float) -> str:
    """Return the user (`sub`) of a token; raises `InvalidUserToken`. `now` is in Unix seconds."""
    signed, _, signature = token.rpartition(".")
    head, _, body = signed.partition(".")
    if _decode(_read_header, head).alg != "HS256":
        msg = "it is not signed with HS256"
        raise InvalidUserToken(msg)
    expected = hmac.new(secret.encode(), signed.encode(), hashlib.sha256).digest()
    given = base64.urlsafe_b64encode(expected).rstrip(b"=")
    if not hmac.compare_digest(given, signature.encode()):
        msg = "its signature does not fit the secret"
        raise InvalidUserToken(msg)
    claims = _decode(_read_claims, body)
    if claims.exp is None or claims.exp + _CLOCK_DIFFERENCE_SECONDS < now:
        msg = "it has expired"
        raise InvalidUserToken(msg)
    starts = [time for time in (claims.nbf, claims.iat) if time is not None]
    if any(time - _CLOCK_DIFFERENCE_SECONDS > now for time in starts):
        msg = "it is not valid yet"
        raise InvalidUserToken(msg)
    if not claims.sub.strip():
        msg = "it names no user"
        raise InvalidUserToken(msg)
    return claims.sub


def _decode(read: Callable[[bytes], T], part: str) -> T:
    """Decode a part of a token: JSON in base64 without padding."""
    try:
        return read(base64.urlsafe_b64decode(f"{part}{'=' * (-len(part) % 4)}"))
    except ValueError as error:
        msg = "it is not a token"
        raise InvalidUserToken(msg) from error
