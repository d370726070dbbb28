"""Errors that adapters raise, sorted by what the caller does about them.

    PlatformError
    ├── Unavailable      repeat later: the platform certainly did not carry the op out
    ├── Rejected         never repeat: the platform understood and refused
    │   └── ChatGone     never repeat anything in this chat
    ├── Unconfirmed      the op may have been carried out: never repeat a Post blindly
    └── Unauthorized     stop the adapter: the credentials are invalid

Exceptions of libraries never leave an adapter. An error without a message shows its docstring.
"""

from sessions.values.exceptions import docstring_summary


class PlatformError(Exception):
    """The platform did not carry out the request."""

    def __str__(self) -> str:
        return super().__str__() or docstring_summary(self)


class Unavailable(PlatformError):
    """The platform cannot take this now; nothing was carried out."""

    def __init__(self, message: str = "", retry_after: float | None = None) -> None:
        super().__init__(*([message] if message else []))
        self.retry_after = retry_after
        """Seconds the platform asked to wait, if any."""


class Rejected(PlatformError):
    """The platform refused this and would refuse it again."""

    def __init__(self, message: str = "", code: int | str = "") -> None:
        super().__init__(*([message] if message else []))
        self.code = code
        """The platform's own code of the refusal, if any."""


class ChatGone(Rejected):
    """The chat does not exist any more, or the bot may not write there."""


class Unconfirmed(PlatformError):
    """The connection broke or timed out during the request; the op may have been carried out."""


class Unauthorized(PlatformError):
    """The platform does not accept the credentials."""
