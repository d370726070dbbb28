"""Descriptions of network errors wrapped by libraries."""

import errno
import socket
import ssl

import pytest

from sessions.values.unreached import describe_network_error


class Wrapped(Exception):
    """A library's error around another one."""


def wrapped(error: BaseException) -> Wrapped:
    outer = Wrapped("something went wrong")
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (socket.gaierror(-2, "Name or service not known"), "(DNS)"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), "refused"),
        (ConnectionResetError(errno.ECONNRESET, "reset"), "was reset"),
        (OSError(errno.ENETUNREACH, "unreachable"), "network is unreachable"),
        (OSError(errno.EHOSTUNREACH, "unreachable"), "machine is unreachable"),
        (TimeoutError(), "in time"),
        (ssl.SSLCertVerificationError(1, "self-signed"), "not trusted"),
        (ssl.SSLError(1, "WRONG_VERSION_NUMBER"), "TLS handshake failed"),
    ],
)
def test_the_cause_is_found_below_any_number_of_wrappers(error: BaseException, words: str) -> None:
    assert words in describe_network_error(error)
    assert words in describe_network_error(wrapped(wrapped(error)))
    assert words in describe_network_error(
        wrapped(ExceptionGroup("several addresses", [wrapped(error)]))
    )


def test_other_errors_have_no_description() -> None:
    turning = Wrapped()
    turning.__cause__ = wrapped(turning)
    assert describe_network_error(turning) == ""
    assert describe_network_error(OSError(errno.ENOSPC, "no space")) == ""
