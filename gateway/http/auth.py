"""Authentication by `Authorization: Bearer KEY`, and below `/v1/` also by `x-api-key: KEY`."""

import hmac

from starlette.requests import Request

from gateway.http.errors import HttpFailure
from sessions.values.loopback import is_loopback
from sessions.values.secret import Secret

INVALID_API_KEY = HttpFailure(
    status=401,
    message="The API key is missing or wrong. Send the key that `holdfast config show --secrets` "
    "prints (http.api_key) as `Authorization: Bearer KEY` or `x-api-key: KEY`.",
    code="invalid_api_key",
)

_API_PREFIX = "/v1/"
_LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
_FORWARDING_HEADERS = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


def has_valid_key(request: Request, key: Secret | None) -> bool:
    """Return True if the request carries the key; without a configured key always False."""
    shown = _shown_key(request)
    return key is not None and bool(shown) and _constant_time_equal(shown, key.reveal())


def _shown_key(request: Request) -> str:
    """Return the key that a request shows; empty without one."""
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if request.url.path.startswith(_API_PREFIX):
        return request.headers.get("x-api-key", "").strip()
    return ""


def is_local(request: Request) -> bool:
    """Return True if the request comes from a program on this machine, not through a proxy.

    A proxy on this machine that forwards neither the original Host nor the client's address cannot
    be told apart from a local program.
    """
    if any(name in request.headers for name in _FORWARDING_HEADERS):
        return False
    host = request.headers.get("host", "").lower()
    name = host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
    return name in _LOCAL_NAMES and request.client is not None and is_loopback(request.client.host)


def _constant_time_equal(shown: str, expected: str) -> bool:
    """Compare in constant time, so that timing does not reveal a correct prefix."""
    return hmac.compare_digest(shown.encode("utf-8", "surrogatepass"), expected.encode())
