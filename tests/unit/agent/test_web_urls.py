"""Parsing and checking of URLs and redirects."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.web.errors import FetchError
from agent.web.urls import MAX_URL_LENGTH, FetchRules, FetchTarget, parse_target, resolve_redirect

RULES = FetchRules()

READ = {
    "plain": ("http://example.org/a.png", FetchTarget("http", "example.org", 80, "/a.png")),
    "tls": ("https://example.org", FetchTarget("https", "example.org", 443, "/")),
    "capitals": ("HTTPS://EXAMPLE.org/A", FetchTarget("https", "example.org", 443, "/A")),
    "query": ("https://x.org/a?b=c&d=%20", FetchTarget("https", "x.org", 443, "/a?b=c&d=%20")),
    "fragment": ("https://x.org/a#b", FetchTarget("https", "x.org", 443, "/a")),
    "the other port": ("http://x.org:443/", FetchTarget("http", "x.org", 443, "/")),
    "dot": ("http://x.org./", FetchTarget("http", "x.org.", 80, "/")),
    "numbers": ("http://192.0.2.7/", FetchTarget("http", "192.0.2.7", 80, "/")),
    "IPv6": ("http://[2001:DB8::1]/", FetchTarget("http", "2001:db8::1", 80, "/")),
    "umlaut": ("http://bücher.example/ä", FetchTarget("http", "xn--bcher-kva.example", 80, "/%C3%A4")),
    "wide dots": ("http://127\uff0e0.0.1/", FetchTarget("http", "127.0.0.1", 80, "/")),
    "underscore": ("http://a_b.example/", FetchTarget("http", "a_b.example", 80, "/")),
}  # fmt: skip

REFUSED = {
    "no address": ("cat.png", "only http and https"),
    "nothing": ("", "only http and https"),
    "file": ("file:///etc/passwd", "only http and https"),
    "ftp": ("ftp://example.org/a", "only http and https"),
    "gopher": ("gopher://example.org:80/", "only http and https"),
    "no scheme": ("//example.org/", "only http and https"),
    "user": ("http://me@example.org/", "user name or password"),
    "password": ("http://me:pw@example.org/", "user name or password"),
    "empty user": ("http://@example.org/", "user name or password"),
    "port": ("http://example.org:22/", "port 22"),
    "port 0": ("http://example.org:0/", "port 0"),
    "port too large": ("http://example.org:65616/", "not a valid web address"),
    "port of words": ("http://example.org:http/", "not a valid web address"),
    "no host": ("http:///a", "not a valid web address"),
    "blank": ("http://example.org/a b", "not a valid web address"),
    "line": ("http://example.org/\r\nHost: x", "not a valid web address"),
    "tab": ("http://exam\tple.org/", "not a valid web address"),
    "NUL": ("http://example.org/\0", "not a valid web address"),
    "backslash": ("http://127.0.0.1\\.example.org/", "not a valid web address"),
    "half a bracket": ("http://[::1/", "not a valid web address"),
    "dots": ("http://../", "not a valid web address"),
    "percent": ("http://127.0.0.%31/", "not a valid web address"),
    "sign": ("http://a$b/", "not a valid web address"),
    "too long": (f"http://example.org/{'a' * MAX_URL_LENGTH}", "not a valid web address"),
    "long label": (f"http://{'a' * 64}.org/", "not a valid web address"),
}


@pytest.mark.parametrize(("url", "expected"), READ.values(), ids=READ)
def test_a_url_is_parsed_and_normalized(url: str, expected: FetchTarget) -> None:
    assert parse_target(url, RULES) == expected


@pytest.mark.parametrize(("url", "why"), REFUSED.values(), ids=REFUSED)
def test_a_url_that_must_not_be_fetched_is_refused(url: str, why: str) -> None:
    with pytest.raises(FetchError, match=why):
        parse_target(url, RULES)


@pytest.mark.parametrize(
    ("url", "authority"),
    [
        ("http://x.org/", "x.org"),
        ("https://x.org:80/", "x.org:80"),
        ("https://[2001:db8::1]/", "[2001:db8::1]"),
        ("http://[2001:db8::1]:443/", "[2001:db8::1]:443"),
    ],
)
def test_the_authority_names_host_and_port(url: str, authority: str) -> None:
    read = parse_target(url, RULES)
    assert read.authority == authority
    assert parse_target(read.url, RULES) == read


BEFORE = FetchTarget("https", "x.org", 443, "/a/b?c")
LEADS = {
    "/d": "https://x.org/d",
    "d": "https://x.org/a/d",
    "//y.org/d": "https://y.org/d",
    "http://y.org": "http://y.org/",
    "?e": "https://x.org/a/b?e",
    " /d ": "https://x.org/d",
}


@pytest.mark.parametrize(("location", "url"), LEADS.items())
def test_a_redirect_is_relative_to_its_own_url(location: str, url: str) -> None:
    assert resolve_redirect(BEFORE, location, RULES).url == url


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "http://me@y.org/", "//y.org:22/", "http://[", "data:,x"]
)
def test_a_redirect_must_satisfy_the_same_rules(location: str) -> None:
    with pytest.raises(FetchError):
        resolve_redirect(BEFORE, location, RULES)


def test_an_extra_address_allows_only_its_own_port() -> None:
    rules = FetchRules(extra_addresses={("10.0.0.5", 8080), ("fd00::5", 80)})
    assert rules.allows("10.0.0.5", 8080)
    assert rules.allows("fd00::5", 80)
    assert not rules.allows("10.0.0.5", 80)
    assert not rules.allows("10.0.0.6", 8080)
    assert not rules.allows("8.8.8.8", 8080)
    assert rules.allows("8.8.8.8", 443)
    assert not rules.allows("127.0.0.1", 80)


@given(st.text(max_size=40) | st.from_regex(r"https?://[^/]{0,20}(:[0-9]{1,6})?/?.{0,9}"))
def test_any_text_is_parsed_or_refused(url: str) -> None:
    try:
        read = parse_target(url, RULES)
    except FetchError:
        return
    assert read.port in RULES.ports
    assert read.url.isascii()
    assert read.url.isprintable()
    assert " " not in read.url
