"""`holdfast link`, `status` and `send`: commands for the running daemon."""

import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import click

from gateway.errors import HoldfastError
from gateway.operate.cli.common import (
    ask_daemon,
    call_daemon,
    json_option,
    not_running_message,
    print_json,
    print_text,
)
from gateway.process.control_socket import NotRunning
from sessions.records import ItemState
from sessions.values.clock import SystemClock, rfc3339
from sessions.values.loopback import is_loopback
from sessions.values.text import format_minutes, format_time
from sessions.values.visible_text import visible_line

_DEFAULT_PORT = 80


class MessageNotSent(HoldfastError):
    """The platform has not accepted the message."""


@click.command(help="Print a one-time link to the web page.")
@click.option("--base-url", metavar="URL", help="Public address of the page.")
@json_option
def link(base_url: str | None, *, as_json: bool) -> None:
    """See the help."""
    address = call_daemon("link", base_url=base_url)
    tunnel = None if base_url else _tunnel_command(address)
    if as_json:
        print_json({"url": address, "tunnel": tunnel})
        return
    click.echo(address)
    click.echo("The link works once, within an hour.", err=True)
    if tunnel:
        click.echo(f"From another machine, run this first: {tunnel}", err=True)


def _tunnel_command(address: str) -> str | None:
    """Return the ssh command that makes a loopback address reachable from another machine."""
    place = urlsplit(address)
    if not place.hostname or not is_loopback(place.hostname):
        return None
    port = place.port or _DEFAULT_PORT
    here = f"[{place.hostname}]" if ":" in place.hostname else place.hostname
    # The link's own address must be the local end of the tunnel.
    local = "" if here in {"127.0.0.1", "localhost"} else f"{here}:"
    remote = "127.0.0.1" if here == "localhost" else here
    return f"ssh -L {local}{port}:{remote}:{port} {_ssh_destination()}"


def _ssh_destination() -> str:
    import getpass  # noqa: PLC0415 - used by this command only
    import socket  # noqa: PLC0415 - used by this command only

    return f"{getpass.getuser()}@{socket.gethostname()}"


@click.command(help="Show the state of the running gateway; exit code 0 if one runs, else 1.")
@json_option
def status(*, as_json: bool) -> None:
    """See the help."""
    try:
        found = ask_daemon("status")
    except NotRunning:
        if as_json:
            print_json({"state": "not running"})
        else:
            click.echo(f"{not_running_message()}.")
        sys.exit(1)
    started = found.get("started_at")
    if as_json:
        if isinstance(started, int):
            found["started_at"] = rfc3339(started)
        print_json(found)
        return
    for line in format_status(found, SystemClock().now()):
        print_text(line)


def format_status(found: Mapping[str, Any], now: int) -> list[str]:
    """Return the daemon's state for people: one summary, then a line per platform and limit."""
    started, running = found["started_at"], found["running"]
    version = f", version {found['version']}" if found.get("version") else ""
    how_long = format_minutes(max(0, now - started) // 1000)
    process = f"(since {format_time(started)}){version}, pid {found.get('pid', 'unknown')}"
    lines = [
        f"{found['state'].capitalize()} for {how_long} {process}.",
        f"{running or 'No'} turn{'' if running == 1 else 's'} running.",
    ]
    if found.get("safe_mode"):
        lines.append(found["safe_mode"])
    rows = [("page", found["url"])] if found.get("url") else []
    rows += [
        (name, how if how == "connected" else f"PROBLEM: {how}")
        for name, how in found.get("platforms", {}).items()
    ]
    rows += [(name, f"PROBLEM: {how}") for name, how in found.get("degraded", {}).items()]
    rows += [
        (f"today, {limit['for']}", f"{limit['used']} of {limit['limit']}")
        for limit in found.get("today", ())
    ]
    width = max((len(name) for name, _ in rows), default=0)
    return [*lines, *(f"  {name.ljust(width)}  {visible_line(text)}" for name, text in rows)]


@click.command(
    help="Post TEXT to CHAT, such as telegram:1001; `-` reads the text from standard input."
)
@click.argument("chat")
@click.argument("text")
@json_option
def send(chat: str, text: str, *, as_json: bool) -> None:
    """See the help."""
    if text == "-":
        text = sys.stdin.read()
    if not text.strip():
        msg = "There is nothing to send."
        raise click.UsageError(msg)
    found = call_daemon("send", chat=chat, text=text)
    state, id_, reason = found["state"], found["id"], found["reason"]
    if state != ItemState.SENT:
        raise MessageNotSent(_failure(chat, state, id_, reason), data={"state": state, "id": id_})
    if as_json:
        print_json({"state": state, "id": id_})
    else:
        click.echo(f"Sent ({id_}).")


def _failure(chat: str, state: str, item_id: str, reason: str) -> str:
    """Return the sentence about a message that is not sent."""
    match ItemState(state):
        case ItemState.DEAD:
            return f"The message could not be sent to {chat}: {reason}."
        case ItemState.UNKNOWN:
            return (
                f"The message may or may not have reached {chat}: {reason}. It is tried again as "
                f"far as the platform allows; see: holdfast why {item_id}"
            )
        case ItemState.PENDING | ItemState.ATTEMPTING | ItemState.SENT:
            return (
                f"The message to {chat} is not sent yet: {reason}. It stays queued as {item_id} and "
                "is sent later."
            )
