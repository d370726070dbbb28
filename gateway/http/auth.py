"""Who may use the API: whoever shows the key, as `Authorization: Bearer KEY`."""

import hmac

from starlette.requests import Request

from gateway.http.errors import HttpFailure
from sessions.values.loopback import is_loopback
from sessions.values.secret import Secret

INVALID_API_KEY = HttpFailure(
    status=401,
    message="This is not the key of this gateway's API. Send the one that "
    "`holdfast config show --secrets` prints (http.api_key) as `Authorization: Bearer KEY`.",
    code="invalid_api_key",
)

_LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
_FORWARDING_HEADERS = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


def has_valid_key(request: Request, key: Secret | None) -> bool:
    """Whether a request shows the key; where there is none, nobody does."""
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or key is None:
        return False
    return _constant_time_equal(value.strip(), key.reveal())


def is_local(request: Request) -> bool:
    """Whether a program of this machine asks, and not for somebody behind a proxy.

    A proxy on this machine that passes on neither the name it was asked for nor for whom it asks
    cannot be told from a program here.
    """
    if any(name in request.headers for name in _FORWARDING_HEADERS):
        return False
    host = request.headers.get("host", "").lower()
    name = host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
    return name in _LOCAL_NAMES and request.client is not None and is_loopback(request.client.host)


def _constant_time_equal(shown: str, expected: str) -> bool:
    """Compare without telling by the time taken how much was right."""
    return hmac.compare_digest(shown.encode("utf-8", "surrogatepass"), expected.encode())
