"""Which addresses only this machine can reach."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.values.loopback import is_loopback, normalize_host


@pytest.mark.parametrize(
    ("host", "listened_on"),
    [
        ("127.0.0.1", "127.0.0.1"),
        (" 127.0.0.1 ", "127.0.0.1"),
        ("127.9.9.9", "127.9.9.9"),
        ("::1", "::1"),
        ("[::1]", "::1"),
        ("0:0:0:0:0:0:0:1", "0:0:0:0:0:0:0:1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("[::FFFF:127.0.0.1]", "127.0.0.1"),
        ("localhost", "localhost"),
        ("LocalHost", "localhost"),
    ],
)
def test_what_only_this_machine_reaches(host: str, listened_on: str) -> None:
    assert is_loopback(host)
    assert normalize_host(host) == listened_on


@pytest.mark.parametrize(
    "host",
    [
        *("0.0.0.0", "::", "[::]", "::ffff:0.0.0.0", "::ffff:10.0.0.7", "10.0.0.7", "2001:db8::1"),  # noqa: S104
        *("example.org", "localhost.example.org", "127.0.0.1.example.org", "ip6-localhost"),
        *("", "0", "127.1", "0x7f000001", "2130706433", "127.0.0.1:80", "[[::1]]"),
    ],
)
def test_what_others_may_reach_or_nobody_knows(host: str) -> None:
    assert not is_loopback(host)


@given(st.text())
def test_no_text_is_too_odd(host: str) -> None:
    assert is_loopback(host) in {True, False}
    assert normalize_host(normalize_host(host)) == normalize_host(host) or not is_loopback(host)
