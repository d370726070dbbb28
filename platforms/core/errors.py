"""Errors an adapter may raise, sorted by what the caller does about them.

    PlatformError
    ├── Unavailable      repeat later: the platform surely did not carry the op out
    ├── Rejected         never repeat: the platform understood and refused
    │   └── ChatGone     never repeat anything in this chat
    ├── Unconfirmed      the op may have been carried out: never blindly repeat a Post
    └── Unauthorized     stop the adapter: the credentials do not work

A library's own exceptions never leave the adapter that met them. The docstring is the message
shown when none is given.
"""


class PlatformError(Exception):
    """The platform did not do what was asked."""

    def __str__(self) -> str:
        return super().__str__() or (type(self).__doc__ or "").partition("\n")[0]


class Unavailable(PlatformError):
    """The platform cannot take this now; it was not carried out."""

    def __init__(self, message: str = "", retry_after: float | None = None) -> None:
        super().__init__(*([message] if message else []))
        self.retry_after = retry_after
        """Seconds the platform asked us to wait, when it did."""


class Rejected(PlatformError):
    """The platform refused this and would refuse it again."""


class ChatGone(Rejected):
    """The chat does not exist any more, or we may not write there."""


class Unconfirmed(PlatformError):
    """The connection broke or timed out while this was under way; it may have been carried out."""


class Unauthorized(PlatformError):
    """The platform does not accept our credentials."""
