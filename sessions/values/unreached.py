"""Short descriptions of network errors."""

import errno
import socket
import ssl
from collections.abc import Iterator

_REASONS_BY_ERRNO = {
    errno.ECONNREFUSED: "the connection was refused: nothing is listening there",
    errno.ECONNRESET: "the connection was reset",
    errno.EHOSTUNREACH: "the machine is unreachable",
    errno.ENETUNREACH: "the network is unreachable",
    errno.ETIMEDOUT: "connecting timed out",
}


def describe_network_error(error: BaseException) -> str:
    """Describe the network error that a library's exception wraps; empty if there is none."""
    causes = list(_causes(error))
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return "its name cannot be resolved (DNS)"
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        # Library subclasses of this error lack some attributes of Python's own.
        messages = [getattr(cause, "verify_message", "") for cause in causes]
        return f"its certificate is not trusted ({next(filter(None, messages), 'TLS')})"
    for cause in causes:
        if isinstance(cause, ssl.SSLError):
            return f"the TLS handshake failed ({getattr(cause, 'reason', '') or 'TLS'})"
        if isinstance(cause, OSError) and cause.errno in _REASONS_BY_ERRNO:
            return _REASONS_BY_ERRNO[cause.errno]
    timed_out = any(isinstance(cause, TimeoutError) for cause in causes)
    return "no answer in time" if timed_out else ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Iterate over an error and its causes, wherever libraries attach them."""
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
            getattr(cause, "os_error", None),  # aiohttp
            getattr(cause, "certificate_error", None),
        ]
        if isinstance(cause, BaseExceptionGroup):
            waiting += cause.exceptions  # several addresses were tried
