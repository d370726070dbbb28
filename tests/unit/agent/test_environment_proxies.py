"""Proxies from the environment: the same patterns as httpx2 reads for itself."""

import pytest
from httpx2._utils import get_environment_proxies

from agent.providers.transport.proxies import environment_proxies

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, {}),
        (
            {"HTTP_PROXY": "proxy.test:3128", "ALL_PROXY": "socks5://proxy.test"},
            {"http://": "http://proxy.test:3128", "all://": "socks5://proxy.test"},
        ),
        ({"HTTPS_PROXY": "http://p", "NO_PROXY": "a.test, *"}, {}),
        (
            {"HTTPS_PROXY": "http://p", "NO_PROXY": " .a.test,b.test,localhost,https://c.test,"},
            {
                "https://": "http://p",
                "all://*.a.test": None,
                "all://*b.test": None,
                "all://localhost": None,
                "https://c.test": None,
            },
        ),
        (
            {"NO_PROXY": "10.0.0.1,10.1.0.0/16,::1,fd00::/8,[fe80::1],[fe80::1]:80"},
            {
                "all://10.0.0.1": None,
                "all://10.1.0.0/16": None,
                "all://[::1]": None,
                "all://[fd00::]/8": None,
                "all://[fe80::1]": None,
                "all://[fe80::1]:80": None,
            },
        ),
        ({"NO_PROXY": "10.1.0.0/99,a.test/b,https://a:b:c"}, {}),
    ],
    ids=["none", "proxies", "all-excluded", "names", "addresses", "malformed"],
)
def test_the_environment_is_read_as_httpx2_reads_it(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: dict[str, str | None]
) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(variable.lower(), raising=False)
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    assert environment_proxies() == expected == get_environment_proxies()
