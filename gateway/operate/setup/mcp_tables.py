"""Sans-IO: servers as tables of the configuration, with secrets in files."""

import re
from collections.abc import Mapping

from gateway.operate.mcp.client_json import ImportedServer
from gateway.operate.setup.draft import ConfigDraft

_SECRET_NAME = re.compile(
    r"token|key|secret|passw|pwd|auth|cookie|credential|dsn|session", re.IGNORECASE
)
_REFERENCES = ("env:", "file:", "credential:")
_NOT_IN_FILES = re.compile(r"[^A-Za-z0-9_]+")


def add_server(draft: ConfigDraft, server: ImportedServer) -> None:
    """Add a server to the configuration; values that are secrets go to files."""
    table: dict[str, object] = {"name": server.name}
    if server.command:
        table |= {"command": server.command}
    else:
        table |= {"url": server.url}
    if server.args:
        table["args"] = list(server.args)
    if server.env:
        table["env"] = _with_references(draft, server.name, server.env)
    if server.headers:
        table["headers"] = _with_references(draft, server.name, server.headers)
    if server.cwd:
        table["cwd"] = server.cwd
    if server.disabled:
        table["disabled"] = True
    if server.timeout is not None:
        table["timeout"] = server.timeout
    if server.approval != "auto":
        table["approval"] = server.approval
    selection: dict[str, object] = {}
    if server.allow is not None:
        selection["allow"] = list(server.allow)
    if server.deny:
        selection["deny"] = list(server.deny)
    if selection:
        table["tools"] = selection
    draft.add_table("mcp", table)


def configured_names(draft: ConfigDraft) -> frozenset[str]:
    """Return the names of the servers in a configuration."""
    servers = draft.get(("mcp",))
    if not isinstance(servers, list):
        return frozenset()
    return frozenset(str(each.get("name")) for each in servers if isinstance(each, dict))


def _with_references(draft: ConfigDraft, server: str, values: Mapping[str, str]) -> dict[str, str]:
    return {
        key: draft.keep_secret(_file_name(server, key), value)
        if _SECRET_NAME.search(key) and not value.startswith(_REFERENCES)
        else value
        for key, value in values.items()
    }


def _file_name(server: str, key: str) -> str:
    return _NOT_IN_FILES.sub("_", f"MCP_{server}_{key}").upper()
