"""Sans-IO: what a web address asks for, and where a redirect leads."""

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
"""What may stand in a path as it is."""

AddressPort = tuple[str, int]
"""An address as numbers, and a port."""


class FetchRules(msgspec.Struct, frozen=True):
    """From where something may be fetched."""

    ports: Collection[int] = (80, 443)
    extra_addresses: Collection[
        AddressPort
    ] = ()  # besides the public internet; these very ports there, no others

    def allows_port(self, port: int) -> bool:
        """Tell whether anything at all may be fetched from a port."""
        return port in self.ports or any(port == each for _, each in self.extra_addresses)

    def allows(self, address: str, port: int) -> bool:
        """Tell whether a place may be connected to."""
        return (address, port) in self.extra_addresses or (
            port in self.ports and is_public(address)
        )


class FetchTarget(msgspec.Struct, frozen=True):
    """What is asked for, and of whom."""

    scheme: str
    host: str  # a name, or an address as numbers
    port: int
    path: str  # with its query

    @property
    def url(self) -> str:
        """Write it as an address."""
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def authority(self) -> str:
        """Write whom it is asked of, as in a Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def literal_address(self) -> str | None:
        """The host, where it is an address as numbers already."""
        try:
            return str(ip_address(self.host))
        except ValueError:
            return None


def parse_target(url: str, rules: FetchRules) -> FetchTarget:
    """Read an address; raises `FetchError` when nothing is fetched from such a one."""
    if len(url) > MAX_URL_LENGTH or any(ord(sign) <= ord(" ") or sign in "\x7f\\" for sign in url):
        msg = "it is not written like a web address"
        raise FetchError(msg)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        msg = "it is not written like a web address"
        raise FetchError(msg) from error
    if parts.scheme not in _PORTS:
        msg = "only http and https addresses are fetched"
        raise FetchError(msg)
    if "@" in parts.netloc:
        msg = "addresses with a name and password in them are not fetched"
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
    """Read where a redirect leads; it must hold like any other address."""
    try:
        url = urljoin(before.url, location.strip())
    except ValueError as error:
        msg = "it leads to what is not written like a web address"
        raise FetchError(msg) from error
    return parse_target(url, rules)


def _normalize_host(written: str) -> str:
    """Give a name as the name service knows it, or numbers."""
    if ":" in written:  # it stood in brackets
        return written
    try:
        host = written.encode("idna").decode().lower()
    except UnicodeError:
        host = ""
    if not _HOST_NAME.fullmatch(host):
        msg = "it is not written like a web address"
        raise FetchError(msg)
    return host
