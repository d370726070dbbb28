"""Sans-IO: what a web address asks for, and where a redirect leads."""

import re
from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import quote, urljoin, urlsplit

import msgspec

from agent.web.addresses import is_public
from agent.web.errors import NotFetched

LONGEST = 8_000
_PORTS = {"http": 80, "https": 443}
_NAME = re.compile(r"[a-z0-9_]([a-z0-9._-]{0,251}[a-z0-9_])?\.?")
_KEPT = "/%:@!$&'()*+,;=~-._"
"""What may stand in a path as it is."""

Place = tuple[str, int]
"""An address as numbers, and a port."""


class Rules(msgspec.Struct, frozen=True):
    """From where something may be fetched."""

    ports: Collection[int] = (80, 443)
    also: Collection[Place] = ()  # besides the public internet; these very ports there, no others

    def allow_port(self, port: int) -> bool:
        """Tell whether anything at all may be fetched from a port."""
        return port in self.ports or any(port == each for _, each in self.also)

    def allow(self, address: str, port: int) -> bool:
        """Tell whether a place may be connected to."""
        return (address, port) in self.also or (port in self.ports and is_public(address))


class Target(msgspec.Struct, frozen=True):
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
    def numbers(self) -> str | None:
        """The host, where it is an address as numbers already."""
        try:
            return str(ip_address(self.host))
        except ValueError:
            return None


def target(url: str, rules: Rules) -> Target:
    """Read an address; raises `NotFetched` when nothing is fetched from such a one."""
    if len(url) > LONGEST or any(ord(sign) <= ord(" ") or sign in "\x7f\\" for sign in url):
        msg = "it is not written like a web address"
        raise NotFetched(msg)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        msg = "it is not written like a web address"
        raise NotFetched(msg) from error
    if parts.scheme not in _PORTS:
        msg = "only http and https addresses are fetched"
        raise NotFetched(msg)
    if "@" in parts.netloc:
        msg = "addresses with a name and password in them are not fetched"
        raise NotFetched(msg)
    port = _PORTS[parts.scheme] if port is None else port
    if not rules.allow_port(port):
        msg = f"nothing is fetched from port {port}"
        raise NotFetched(msg)
    query = f"?{quote(parts.query, safe=f'{_KEPT}?[]')}" if parts.query else ""
    return Target(parts.scheme, _host(host), port, quote(parts.path or "/", safe=_KEPT) + query)


def redirected(before: Target, location: str, rules: Rules) -> Target:
    """Read where a redirect leads; it must hold like any other address."""
    try:
        url = urljoin(before.url, location.strip())
    except ValueError as error:
        msg = "it leads to what is not written like a web address"
        raise NotFetched(msg) from error
    return target(url, rules)


def _host(written: str) -> str:
    """Give a name as the name service knows it, or numbers."""
    if ":" in written:  # it stood in brackets
        return written
    try:
        host = written.encode("idna").decode().lower()
    except UnicodeError:
        host = ""
    if not _NAME.fullmatch(host):
        msg = "it is not written like a web address"
        raise NotFetched(msg)
    return host
