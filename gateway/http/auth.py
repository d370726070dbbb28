"""Authentication by `Authorization: Bearer KEY`, and below `/v1/` also by `x-api-key: KEY`.

`/metrics` needs the key of the configuration; the API also takes the stored keys.
"""

import hmac
from collections.abc import Awaitable, Callable
from typing import Protocol

from starlette.requests import Request

from gateway.access.api_keys import Requester, StoredKey, requester_with
from gateway.http.errors import PERMISSION_ERROR, HttpFailure
from sessions.values.loopback import is_loopback
from sessions.values.secret import Secret

INVALID_API_KEY = HttpFailure(
    status=401,
    message="The API key is missing or wrong. Send the key that `holdfast config show --secrets` "
    "prints (http.api_key), or one of `holdfast keys add`, as `Authorization: Bearer KEY` or "
    "`x-api-key: KEY`.",
    code="invalid_api_key",
)

KEY_WITHOUT_ACCESS = HttpFailure(
    status=403,
    message="The person of this API key has no access.",
    type=PERMISSION_ERROR,
    code="not_allowed",
)

_REQUESTER = "holdfast.requester"
"""Key of the ASGI scope under which the sender of a request is kept."""
_API_PREFIX = "/v1/"
_LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
_FORWARDING_HEADERS = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


class KeyRing(Protocol):
    """Source of the stored keys; see `gateway.access.key_store.ApiKeys`."""

    def find(self, text: str) -> StoredKey | None:
        """Return the key with this text, or None."""
        ...

    def has_access(self, key: StoredKey) -> bool:
        """Return True if the person of a key has access now."""
        ...

    async def record_use(self, key: StoredKey) -> None:
        """Record that a key was used now."""
        ...


Authenticate = Callable[[Request], Awaitable[Requester | HttpFailure]]
"""Returns the sender of a request, or the reason why its key is refused."""


def authenticator(key: Secret | None, keys: KeyRing) -> Authenticate:
    """Return the check of requests against the key of the configuration and the stored keys."""

    async def authenticate(request: Request) -> Requester | HttpFailure:
        if has_valid_key(request, key):
            return Requester()
        found = keys.find(_shown_key(request))
        if found is None:
            return INVALID_API_KEY
        if not keys.has_access(found):
            return KEY_WITHOUT_ACCESS
        await keys.record_use(found)
        return requester_with(found)

    return authenticate


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


def set_requester(request: Request, requester: Requester) -> None:
    """Attach the authenticated sender to a request, for `requester_of`."""
    request.scope[_REQUESTER] = requester


def requester_of(request: Request) -> Requester:
    """Return the sender that `set_requester` attached."""
    requester: Requester = request.scope[_REQUESTER]
    return requester


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
