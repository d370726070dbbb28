"""Why a service could not be reached, found below what libraries make of it."""

import errno
import socket
import ssl

import pytest

from sessions.values.unreached import why_unreached


class Wrapped(Exception):
    """What a library makes of an error."""


def wrapped(error: BaseException) -> Wrapped:
    outer = Wrapped("something went wrong")
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (socket.gaierror(-2, "Name or service not known"), "(DNS)"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), "refused"),
        (ConnectionResetError(errno.ECONNRESET, "reset"), "was cut"),
        (OSError(errno.ENETUNREACH, "unreachable"), "into that network"),
        (OSError(errno.EHOSTUNREACH, "unreachable"), "to that machine"),
        (TimeoutError(), "in time"),
        (ssl.SSLCertVerificationError(1, "self-signed"), "not trusted"),
        (ssl.SSLError(1, "WRONG_VERSION_NUMBER"), "no TLS"),
    ],
)
def test_the_cause_is_told_however_deep_it_lies(error: BaseException, words: str) -> None:
    assert words in why_unreached(error)
    assert words in why_unreached(wrapped(wrapped(error)))
    assert words in why_unreached(wrapped(ExceptionGroup("several addresses", [wrapped(error)])))


def test_what_has_no_such_cause_has_no_reason() -> None:
    turning = Wrapped()
    turning.__cause__ = wrapped(turning)
    assert why_unreached(turning) == ""
    assert why_unreached(OSError(errno.ENOSPC, "no space")) == ""
