"""The user and the chat that an API client names for its request.

Any client can name any user. So the names are only shown by `holdfast why`, unless
`http.trust_user_header` says that the clients tell the truth; then limits count for each user. With
`http.user_token_secret` only a signed user is believed.
"""

import enum
import re
from collections.abc import Callable

import msgspec
from starlette.datastructures import Headers

from gateway.access.api_keys import Requester
from gateway.http.user_token import SIGNED_USER_HEADER
from sessions.values.ids import stable_id

MAX_NAME_LENGTH = 200

_USER_HEADER, _CHAT_HEADER = "X-OpenWebUI-User-Id", "X-OpenWebUI-Chat-Id"
_COUNTED_USER = re.compile(r"[A-Za-z0-9._@+=-]{1,64}")


class UserLabel(enum.StrEnum):
    """Origin of the user name of a request; a label of metrics."""

    NONE = "none"
    NAMED = "named"
    TRUSTED = "trusted"


class ClientNames:
    """Reads the names, and reports each request with its key and the kind of its user."""

    def __init__(
        self,
        *,
        trusted: bool,
        on_request: Callable[[str, UserLabel], None],
        read_token: Callable[[str], str] | None = None,
    ) -> None:
        self._trusted = trusted
        self._read_token = read_token if trusted else None  # returns the user of a signed token
        self._on_request = on_request

    def identify(self, requester: Requester, headers: Headers, body_user: str) -> Requester:
        """Return the sender of a request with the names of its headers, or else of its body.

        Raises `InvalidUserToken`: a wrong secret must not silently switch off the limits of users.
        """
        user = _shorten(headers.get(_USER_HEADER, "")) or _shorten(body_user)
        trusted = self._trusted and bool(user) and not self._read_token
        if self._read_token and (token := headers.get(SIGNED_USER_HEADER, "")):
            user = _shorten(self._read_token(token))
            trusted = True
        label = UserLabel.TRUSTED if trusted else UserLabel.NAMED if user else UserLabel.NONE
        self._on_request(requester.name if requester.key else "configured", label)
        return msgspec.structs.replace(
            requester,
            named_user=user,
            named_chat=_shorten(headers.get(_CHAT_HEADER, "")),
            user=_counted_user(user) if trusted else "",
        )


def _shorten(name: str) -> str:
    return name.strip()[:MAX_NAME_LENGTH]


def _counted_user(user: str) -> str:
    """Return the name under which a user is counted: a hash if the configuration cannot name it."""
    return user if _COUNTED_USER.fullmatch(user) else stable_id(user)
