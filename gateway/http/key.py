"""Who may use the API: whoever shows the key, as `Authorization: Bearer KEY`.

Any route may ask:

    asked = require_key(request)
    if isinstance(asked, Response):
        return asked
"""

import hmac
import ipaddress

from starlette.requests import Request
from starlette.responses import Response

from gateway.refusals import Error, error_body
from sessions.values.secret import Secret

HOLDER = "api:key"
"""The principal that whoever shows the key is."""

_LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
_PASSED_ON = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
_NO_KEY = (
    "Show the API key as `Authorization: Bearer KEY`; `holdfast config show --secrets` names it."
)
_WRONG_KEY = "This is not the API key; `holdfast config show --secrets` shows the right one."


def require_key(request: Request) -> str | Response:
    """Give the principal that asks, or the answer that turns it away."""
    shown = request.headers.get("authorization", "")
    scheme, _, value = shown.partition(" ")
    if scheme.lower() != "bearer" or not value.strip():
        return _refused(_NO_KEY)
    key: Secret | None = request.app.state.key
    if key is None or not _same(value.strip(), key.reveal()):
        return _refused(_WRONG_KEY)
    return HOLDER


def is_local(request: Request) -> bool:
    """Whether a program of this machine asks, and not for somebody behind a proxy.

    A proxy on this machine that passes on neither the name it was asked for nor for whom it asks
    cannot be told from a program here.
    """
    if any(name in request.headers for name in _PASSED_ON):
        return False
    host = request.headers.get("host", "").lower()
    name = host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
    return name in _LOCAL_NAMES and request.client is not None and _loopback(request.client.host)


def openai_error(
    status: int,
    message: str,
    *,
    kind: str = "invalid_request_error",
    code: str | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    """Refuse in the shape in which OpenAI's clients expect it."""
    body = error_body(Error(message, kind, code=code))
    return Response(body, status, headers=headers, media_type="application/json")


def _refused(message: str) -> Response:
    headers = {"www-authenticate": 'Bearer realm="holdfast"'}
    return openai_error(401, message, code="invalid_api_key", headers=headers)


def _same(shown: str, expected: str) -> bool:
    """Compare without telling by the time taken how much was right."""
    return hmac.compare_digest(shown.encode("utf-8", "surrogatepass"), expected.encode())


def _loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
