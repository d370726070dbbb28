"""`holdfast mcp`: adds, imports, lists and tries MCP servers."""

import asyncio
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

import click

from agent.settings import McpSettings
from agent.tools.mcp.changes import RISKS, claims_of
from agent.tools.mcp.contract import MCP_LOGIN_FOLDER
from agent.tools.mcp.names import assign_names
from gateway.config.loader import ConfigOptions, read_environment
from gateway.errors import CannotStart, ConfigError
from gateway.operate.cli.common import (
    call_daemon,
    config_options,
    json_option,
    load_settings,
    print_json,
    print_table,
    print_text,
)
from gateway.operate.cli.found_config import confirm_found_config, remember_found_config
from gateway.operate.mcp.client_json import ImportedServer, read_client_json
from gateway.operate.setup.mcp_tables import add_server, configured_names
from gateway.operate.setup.places import choose_target
from gateway.operate.setup.wizard import read_draft, write_config
from gateway.process.control_socket import NotRunning
from platforms.core.registry import load_specs
from sessions.values.clock import SystemClock
from sessions.values.text import count_of

_RESTART = "A running gateway uses this after a restart: holdfast service restart, or /restart."


@click.group(help="Add, list, try and log in at MCP servers.")
def mcp() -> None:
    """See the help."""


@mcp.command("list")
@json_option
@config_options
def list_(options: ConfigOptions, *, as_json: bool) -> None:
    """List the configured servers, with their state if the gateway runs."""
    settings = load_settings(options).settings.mcp
    states = _running_states()
    rows = [
        {
            "name": server.name,
            "address": server.url or " ".join((server.command or "", *server.args)),
            "state": "disabled" if server.disabled else states.get(server.name, "unknown"),
        }
        for server in settings
    ]
    if as_json:
        print_json(rows)
        return
    print_table(
        ("NAME", "STATE", "ADDRESS"),
        ((row["name"], row["state"], row["address"]) for row in rows),
        "No MCP server is configured. Add one with: holdfast mcp add",
    )


def _running_states() -> dict[str, str]:
    try:
        found = call_daemon("status").get("mcp", {})
    except (NotRunning, CannotStart):
        return {}
    return {str(name): str(state) for name, state in found.items()}


@mcp.command(short_help="Connect to servers and list their tools.")
@click.argument("names", nargs=-1)
@json_option
@config_options
def test(options: ConfigOptions, names: Sequence[str], *, as_json: bool) -> None:
    """Connect to the servers with these NAMES, or to all, and list their tools.

    No tool is called. Exit code 1 if a server cannot be used.
    """
    confirm_found_config(options)  # before a program of the file is started
    loaded = load_settings(options)
    servers = _select_servers(loaded.settings.mcp, names)
    logins = loaded.home / MCP_LOGIN_FOLDER
    problems = 0
    records = []
    for server in servers:
        record = _test_server(server, logins)
        problems += bool(record["problem"])
        records.append(record)
        if not as_json:
            _print_record(record)
    if as_json:
        print_json(records)
    elif not servers:
        click.echo("No MCP server is configured. Add one with: holdfast mcp add")
    if problems:
        sys.exit(1)


def _select_servers(servers: Iterable[McpSettings], names: Sequence[str]) -> list[McpSettings]:
    known = {server.name: server for server in servers}
    for name in names:
        if name not in known:
            msg = f"There is no MCP server {name!r}. Configured: {', '.join(known) or 'none'}."
            raise ConfigError(msg)
    return [known[name] for name in names] if names else list(known.values())


def _test_server(server: McpSettings, logins: Path) -> dict[str, object]:
    from agent.tools.mcp.probe import probe_server  # noqa: PLC0415 - slow

    probed = asyncio.run(probe_server(server, SystemClock(), logins))
    names = assign_names((probed.name, tool.name) for tool in probed.tools)
    return {
        "name": probed.name,
        "problem": probed.problem or None,
        "seconds": round(probed.seconds, 2),
        "tools": [
            {
                "name": tool.name,
                "offered_as": names[probed.name, tool.name],
                "risk": RISKS[claims_of(tool).risk],
            }
            for tool in probed.tools
        ],
        "left_out": list(probed.left_out),
        "resources": probed.has_resources,
    }


def _print_record(record: dict[str, object]) -> None:
    if record["problem"]:
        print_text(f"{record['name']}: {record['problem']}")
        return
    tools = record["tools"]
    assert isinstance(tools, list)  # noqa: S101 - as built above
    print_text(f"{record['name']}: {count_of(len(tools), 'tool')}, in {record['seconds']} s")
    for tool in tools:
        print_text(f"  {tool['name']}: {tool['risk']}")
    if left_out := record["left_out"]:
        assert isinstance(left_out, list)  # noqa: S101 - as built above
        print_text(f"  not offered: {', '.join(left_out)}")


@mcp.command(
    short_help="Add a server to the configuration.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="Environment of the program.")
@click.option("--header", multiple=True, metavar="NAME=VALUE", help="Header for the address.")
@click.option("--cwd", metavar="FOLDER", help="Working folder of the program.")
@click.option("--timeout", type=float, metavar="SECONDS", help="Maximum run time of a call.")
@click.option(
    "--approval", type=click.Choice(("auto", "ask", "never")), default="auto", help="See the docs."
)
@click.option("--config", type=click.Path(path_type=Path, dir_okay=False), help="Configuration.")
@click.argument("name")
@click.argument("target", nargs=-1, required=True, metavar="URL|COMMAND...")
@json_option
def add(
    config: Path | None,
    name: str,
    target: Sequence[str],
    *,
    as_json: bool,
    **flags: Any,  # noqa: ANN401 - each option has its own type
) -> None:
    """Add a server: its NAME, then its URL or its command line.

    The options stand before the name. Values of --env and --header may be env:NAME or file:PATH;
    secrets among the others are written to files that only you can read.
    """
    if target[0] == "--":
        target = target[1:]
    if not target:
        msg = "Missing argument: a URL or a command."
        raise click.UsageError(msg)
    first, *rest = target
    is_url = first.startswith(("http://", "https://"))
    if is_url and rest:
        msg = "A URL takes no arguments."
        raise click.UsageError(msg)
    server = ImportedServer(
        name=name,
        command="" if is_url else first,
        args=tuple(rest),
        url=first if is_url else "",
        env=_pairs("--env", flags["env"]),
        headers=_pairs("--header", flags["header"]),
        cwd=flags["cwd"] or "",
        timeout=flags["timeout"],
        approval=flags["approval"],
    )
    _write_servers(ConfigOptions(config), [server], as_json=as_json)
    if not as_json:
        click.echo(f"Try it: holdfast mcp test {name}")


@mcp.command(short_help="Log in at a server with OAuth.")
@click.argument("name")
@json_option
@config_options
def login(options: ConfigOptions, name: str, *, as_json: bool) -> None:
    """Log in at the server NAME in a browser, and store its tokens for the gateway.

    Open the printed address. If the browser runs on another machine, it cannot open the last page:
    paste the address of that page here.
    """
    confirm_found_config(options)
    loaded = load_settings(options)
    (server,) = _select_servers(loaded.settings.mcp, [name])
    if server.url is None:
        msg = f"{name} is a program, and only servers with a url have a login."
        raise ConfigError(msg)
    if server.login == "person":
        msg = f"At {name} each person logs in in a private chat, with {server.login_command}."
        raise ConfigError(msg)
    from gateway.operate.mcp.login_page import log_in_at_terminal  # noqa: PLC0415 - slow

    needed = asyncio.run(log_in_at_terminal(server, loaded.home / MCP_LOGIN_FOLDER))
    if as_json:
        print_json({"name": name, "login_needed": needed})
    elif needed:
        click.echo(f"Logged in at {name}. A running gateway uses this within a minute.")
    else:
        click.echo(f"{name} needs no login.")


def _pairs(option: str, values: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for value in values:
        name, equals, content = value.partition("=")
        if not equals or not name:
            msg = f"{option} needs NAME=VALUE."
            raise click.UsageError(msg)
        pairs[name] = content
    return pairs


@mcp.command("import", short_help="Import the servers of another program.")
@click.option("--config", type=click.Path(path_type=Path, dir_okay=False), help="Configuration.")
@click.argument("file", type=click.File(encoding="utf-8"))
@json_option
def import_(config: Path | None, file: TextIO, *, as_json: bool) -> None:
    """Import the servers of FILE, a JSON file with mcpServers, such as other clients write.

    `-` reads standard input. Servers whose name is configured already are left alone.
    """
    servers = read_client_json(file.read())
    _write_servers(ConfigOptions(config), servers, skip_known=True, as_json=as_json)


def _write_servers(
    options: ConfigOptions,
    servers: Iterable[ImportedServer],
    *,
    skip_known: bool = False,
    as_json: bool,
) -> None:
    confirm_found_config(options)
    target = choose_target(options, read_environment(), os.geteuid())
    specs = load_specs()
    draft = read_draft(target, specs)
    added: list[str] = []
    skipped: list[str] = []
    for server in servers:
        if server.name not in configured_names(draft):
            add_server(draft, server)
            added.append(server.name)
        elif skip_known:
            skipped.append(server.name)
        else:
            msg = f"An MCP server {server.name!r} is configured already, in {target.path}."
            raise ConfigError(msg)
    if added:
        write_config(target, draft, specs)
        remember_found_config(options)
    if as_json:
        print_json({"file": str(target.path), "added": added, "skipped": skipped})
        return
    if skipped:
        click.echo(f"Configured already, and left as they are: {', '.join(skipped)}.")
    if added:
        click.echo(f"Added to {target.path}: {', '.join(added)}.")
        click.echo(_RESTART)
