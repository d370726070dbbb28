"""Why something on the network could not be reached, in a few words."""

import errno
import socket
import ssl
from collections.abc import Iterator

_REASONS_BY_ERRNO = {
    errno.ECONNREFUSED: "the connection is refused: nothing listens there",
    errno.ECONNRESET: "the connection was cut",
    errno.EHOSTUNREACH: "there is no way to that machine",
    errno.ENETUNREACH: "there is no way into that network",
    errno.ETIMEDOUT: "no connection in time",
}


def describe_network_error(error: BaseException) -> str:
    """Find the cause below whatever libraries made of it; empty when it is of no such kind."""
    causes = list(_causes(error))
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return "its name is not found (DNS)"
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        # Libraries' own kinds of this error do not have all that Python's has.
        said = [getattr(cause, "verify_message", "") for cause in causes]
        return f"its certificate is not trusted ({next(filter(None, said), 'TLS')})"
    for cause in causes:
        if isinstance(cause, ssl.SSLError):
            return f"no TLS can be spoken with it ({getattr(cause, 'reason', '') or 'TLS'})"
        if isinstance(cause, OSError) and cause.errno in _REASONS_BY_ERRNO:
            return _REASONS_BY_ERRNO[cause.errno]
    slow = any(isinstance(cause, TimeoutError) for cause in causes)
    return "no answer in time" if slow else ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Walk through what an error was made of; libraries hide it in several places."""
    waiting: list[object] = [error]
    seen: set[int] = set()
    while waiting:
        cause = waiting.pop(0)
        if not isinstance(cause, BaseException) or id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        waiting += [
            cause.__cause__,
            cause.__context__,
            getattr(cause, "os_error", None),  # of aiohttp
            getattr(cause, "certificate_error", None),
        ]
        if isinstance(cause, BaseExceptionGroup):
            waiting += cause.exceptions  # several addresses were tried
