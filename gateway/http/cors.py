"""Sans-IO: requests of web pages from other origins (CORS): the allowed origins and the headers.

Only the API below `/v1/` can be called from another origin. Cookies are never accepted there: a
page needs the API key.
"""

import re
from collections.abc import Iterable, Mapping

_API_PREFIX = "/v1/"
_HEADER_NAMES = re.compile(r"[A-Za-z0-9_-]+(?:\s*,\s*[A-Za-z0-9_-]+)*")
_MAX_HEADER_NAMES_LENGTH = 2000
_METHODS = "GET, POST, DELETE"
_READABLE_HEADERS = (
    "request-id, retry-after, x-request-id, x-session-state, x-should-retry, www-authenticate"
)
_MAX_AGE_SECONDS = 600


class CorsPolicy:
    """The origins that may call the API."""

    def __init__(self, origins: Iterable[str]) -> None:
        self._origins = frozenset(origins)

    def allows(self, origin: str | None, path: str) -> bool:
        """Return True if pages of this origin may call this path."""
        return origin in self._origins and path.startswith(_API_PREFIX)


def is_preflight(method: str, headers: Mapping[str, str]) -> bool:
    """Return True for the question of a browser whether a page may send a request."""
    return method == "OPTIONS" and "access-control-request-method" in headers


def preflight_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the answer to a preflight: every method of the API, and the headers in question."""
    found = {
        "access-control-allow-methods": _METHODS,
        "access-control-max-age": str(_MAX_AGE_SECONDS),
    }
    names = headers.get("access-control-request-headers", "")
    if len(names) <= _MAX_HEADER_NAMES_LENGTH and _HEADER_NAMES.fullmatch(names):
        found["access-control-allow-headers"] = names
    if headers.get("access-control-request-private-network") == "true":
        found["access-control-allow-private-network"] = "true"
    return found


def response_headers(origin: str) -> dict[str, str]:
    """Return the headers with which a page of an allowed origin can read a response."""
    return {
        "access-control-allow-origin": origin,
        "access-control-expose-headers": _READABLE_HEADERS,
        "vary": "Origin",
    }
