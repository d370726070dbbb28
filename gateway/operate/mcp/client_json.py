"""Sans-IO: servers in the JSON configuration of other MCP clients.

Claude Desktop, Claude Code and Cursor write `mcpServers`, VS Code writes `servers`; each maps names
to servers. Files without either key are taken for such a map.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.errors import ConfigError

_NAME_LENGTH = 32
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
_ENVIRONMENT = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")
_PLACEHOLDER = re.compile(r"\$\{[^}]*\}")


class ImportedServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server in the form of our configuration; values of secrets are plain or `env:NAME`."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    url: str = ""
    headers: dict[str, str] = {}
    cwd: str = ""
    disabled: bool = False
    timeout: float | None = None  # seconds
    approval: str = "auto"
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


class _Entry(msgspec.Struct, rename="camel"):
    """The fields that clients use; others are ignored."""

    command: str = ""
    args: list[str] = []
    env: dict[str, str | int | float | bool | None] = {}
    url: str = ""
    server_url: str = ""
    http_url: str = ""
    headers: dict[str, str] = {}
    cwd: str = ""
    disabled: bool = False
    enabled: bool = True
    disabled_tools: list[str] = []
    excluded_tools: list[str] = msgspec.field(default_factory=list, name="excludeTools")
    included_tools: list[str] | None = msgspec.field(default=None, name="includeTools")


def read_client_json(text: str) -> tuple[ImportedServer, ...]:
    """Return the servers of a file; raise `ConfigError` if there are none to read."""
    try:
        document = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        msg = f"This is not JSON: {error}."
        raise ConfigError(msg) from None
    found = document if isinstance(document, dict) else {}
    servers: Any = found.get("mcpServers", found.get("servers", found))
    if not isinstance(servers, dict) or not servers:
        msg = "There are no servers: neither mcpServers nor servers is a map of names to servers."
        raise ConfigError(msg)
    return tuple(_read_entry(str(name), value) for name, value in servers.items())


def _read_entry(name: str, value: object) -> ImportedServer:
    try:
        entry = msgspec.convert(value, _Entry)
    except msgspec.ValidationError as error:
        msg = f"The server {name!r} cannot be read: {error}"
        raise ConfigError(msg) from None
    url = entry.url or entry.server_url or entry.http_url
    if bool(url) == bool(entry.command):
        msg = f"The server {name!r} needs either a command or a url."
        raise ConfigError(msg)
    env = {key: str(each) for key, each in entry.env.items() if each is not None}
    return ImportedServer(
        name=valid_name(name),
        command=_plain(name, entry.command),
        args=tuple(_plain(name, each) for each in entry.args) if entry.command else (),
        env=_secrets(name, env) if entry.command else {},
        url=_plain(name, url),
        headers=_secrets(name, entry.headers) if url else {},
        cwd=_plain(name, entry.cwd) if entry.command else "",
        disabled=entry.disabled or not entry.enabled,
        allow=tuple(entry.included_tools) if entry.included_tools is not None else None,
        deny=(*entry.disabled_tools, *entry.excluded_tools),
    )


def valid_name(name: str) -> str:
    """Return a name that `[[mcp]]` accepts."""
    return _NOT_IN_NAMES.sub("-", name).strip("-")[:_NAME_LENGTH] or "server"


def _secrets(server: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return values in which a reference to the environment has our form."""
    found = {}
    for key, value in values.items():
        reference = _ENVIRONMENT.fullmatch(value)
        found[key] = f"env:{reference[1]}" if reference else _plain(server, value)
    return found


def _plain(server: str, value: str) -> str:
    if found := _PLACEHOLDER.search(value):
        msg = (
            f"The server {server!r} contains {found[0]}, which the other program fills in. Replace "
            "it by its value, and import again."
        )
        raise ConfigError(msg)
    return value
