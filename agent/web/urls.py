"""Sans-IO: parsing and checking of URLs and redirects."""

import re
from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import quote, urljoin, urlsplit

import msgspec

from agent.web.addresses import is_public
from agent.web.errors import FetchError

MAX_URL_LENGTH = 8_000
_PORTS = {"http": 80, "https": 443}
_HOST_NAME = re.compile(r"[a-z0-9_]([a-z0-9._-]{0,251}[a-z0-9_])?\.?")
_SAFE_PATH_CHARACTERS = "/%:@!$&'()*+,;=~-._"
"""Characters that are not percent-encoded in a path."""

AddressPort = tuple[str, int]
"""An IP address and a port."""


class FetchRules(msgspec.Struct, frozen=True):
    """Addresses and ports from which may be fetched."""

    ports: Collection[int] = (80, 443)
    extra_addresses: Collection[AddressPort] = ()
    """Allowed addresses outside the public internet, each with the only allowed port."""

    def allows_port(self, port: int) -> bool:
        """Return True if any address is allowed with this port."""
        return port in self.ports or any(port == extra for _, extra in self.extra_addresses)

    def allows(self, address: str, port: int) -> bool:
        """Return True if connections to this address and port are allowed."""
        return (address, port) in self.extra_addresses or (
            port in self.ports and is_public(address)
        )


class FetchTarget(msgspec.Struct, frozen=True):
    """A checked and normalized URL."""

    scheme: str
    host: str  # a name or an IP address
    port: int
    path: str  # with the query

    @property
    def url(self) -> str:
        """The URL as text."""
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def authority(self) -> str:
        """Host and port as in a Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def literal_address(self) -> str | None:
        """The host if written as an IP address, else None."""
        try:
            return str(ip_address(self.host))
        except ValueError:
            return None


def parse_target(url: str, rules: FetchRules) -> FetchTarget:
    """Parse a URL; raises `FetchError` for a URL that must not be fetched."""
    if len(url) > MAX_URL_LENGTH or any(char <= " " or char in "\x7f\\" for char in url):
        msg = "it is not a valid web address"
        raise FetchError(msg)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        msg = "it is not a valid web address"
        raise FetchError(msg) from error
    if parts.scheme not in _PORTS:
        msg = "only http and https addresses are fetched"
        raise FetchError(msg)
    if "@" in parts.netloc:
        msg = "addresses with a user name or password are not fetched"
        raise FetchError(msg)
    port = _PORTS[parts.scheme] if port is None else port
    if not rules.allows_port(port):
        msg = f"nothing is fetched from port {port}"
        raise FetchError(msg)
    query = f"?{quote(parts.query, safe=f'{_SAFE_PATH_CHARACTERS}?[]')}" if parts.query else ""
    return FetchTarget(
        parts.scheme,
        _normalize_host(host),
        port,
        quote(parts.path or "/", safe=_SAFE_PATH_CHARACTERS) + query,
    )


def resolve_redirect(before: FetchTarget, location: str, rules: FetchRules) -> FetchTarget:
    """Parse the target of a redirect; the same rules apply as for the first URL."""
    try:
        url = urljoin(before.url, location.strip())
    except ValueError as error:
        msg = "it redirects to an invalid web address"
        raise FetchError(msg) from error
    return parse_target(url, rules)


def _normalize_host(name: str) -> str:
    """Return a host name in its ASCII form, or an IP address unchanged."""
    if ":" in name:  # an IPv6 address
        return name
    try:
        host = name.encode("idna").decode().lower()
    except UnicodeError:
        host = ""
    if not _HOST_NAME.fullmatch(host):
        msg = "it is not a valid web address"
        raise FetchError(msg)
    return host
