"""Options, settings, daemon calls, store access and tables shared by the commands."""

import asyncio
import contextlib
import functools
import os
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from gateway.config.loader import (
    SERVICE_HOME,
    ConfigOptions,
    LoadedConfig,
    load,
    read_environment,
    state_folder,
)
from gateway.errors import CannotStart, ConfigError
from gateway.operate.cli.found_config import confirm_found_store
from gateway.process.control_socket import NotAnswering, NotRunning, send_request, socket_path
from gateway.process.lock import find_lock_holder
from platforms.core.registry import load_specs
from sessions.errors import StoreError, StoreTooNew
from sessions.values.clock import SystemClock
from sessions.values.visible_text import visible_line, visible_text

if TYPE_CHECKING:
    from sessions.store.store import SessionStore

Result = TypeVar("Result")
CommandFunction = Callable[..., None]

_START_SECONDS = 20.0
"""Time for a daemon that holds the lock of the state folder to answer."""

_POLL_SECONDS = 0.05


def config_options(command: CommandFunction) -> CommandFunction:
    """Add `--config` and `--set` to a command; the command receives them as `options`."""

    @functools.wraps(command)  # also keeps options added by decorators below this one
    def with_options(config: Path | None, settings: tuple[str, ...], **others: object) -> None:
        command(options=ConfigOptions(config, settings), **others)

    file = click.option(
        "--config", type=click.Path(path_type=Path, dir_okay=False), help="Configuration file."
    )
    change = click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="Override one key; repeatable.",
    )
    return file(change(with_options))


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def load_settings(options: ConfigOptions) -> LoadedConfig:
    """Load the configuration; print warnings to stderr."""
    loaded = load(options, read_environment(), load_specs())
    print_warnings(loaded)
    return loaded


def print_warnings(loaded: LoadedConfig) -> None:
    """Print the warnings of loading a configuration to stderr."""
    for warning in loaded.warnings:
        click.echo(f"holdfast: {warning}", err=True)


# --- the running daemon ----------------------------------------------------------------------


def control_socket() -> Path:
    """Return the path of the control socket of this state folder's daemon."""
    return socket_path(state_folder(read_environment()), read_environment())


def ask_daemon(operation: str, **args: object) -> Any:  # noqa: ANN401 - depends on the operation
    """Call an operation of the daemon, and wait for one that is starting; raises `NotRunning`."""
    until = time.monotonic() + _START_SECONDS
    while True:
        try:
            return send_request(control_socket(), operation, args)
        except NotRunning:
            is_held, process = find_lock_holder(state_folder(read_environment()))
            if not is_held:
                raise
        if time.monotonic() > until:
            who = f" (process {process})" if process else ""
            msg = f"Holdfast{who} is starting or stopping, and does not answer yet. Try again in a minute."
            raise NotAnswering(msg)
        time.sleep(_POLL_SECONDS)


def call_daemon(operation: str, **args: object) -> Any:  # noqa: ANN401 - depends on the operation
    """Call an operation of the running daemon; raise `NotRunning` with one clear sentence."""
    try:
        return ask_daemon(operation, **args)
    except NotRunning:
        msg = f"{not_running_message()}, and this command needs it. Start it with: holdfast run"
        raise NotRunning(msg) from None


def not_running_message() -> str:
    """Return the sentence that no daemon runs; without root, mention the machine's service."""
    environ = read_environment()
    message = f"Holdfast is not running on {state_folder(environ)}"
    chosen = environ.get("HOLDFAST_HOME") or environ.get("STATE_DIRECTORY")
    if os.geteuid() and not chosen and os.path.lexists(SERVICE_HOME):
        message += " (for this machine's service, run the command with sudo)"
    return message


# --- the store -------------------------------------------------------------------------------


def read_store(
    options: ConfigOptions, read: Callable[["SessionStore"], Awaitable[Result]]
) -> Result:
    """Open the store read-only and return the result of `read`; works while a daemon runs."""
    loaded = load_settings(options)
    confirm_found_store(options)

    async def reading() -> Result:
        async with open_store(loaded, read_only=True) as store:
            return await read(store)

    return asyncio.run(reading())


@contextlib.asynccontextmanager
async def open_store(
    loaded: LoadedConfig, *, read_only: bool, keep_in: Path | None = None
) -> AsyncIterator["SessionStore"]:
    """Open the store, and report errors as one sentence. See `SessionStore.open`."""
    # Slow to import, and not needed by commands that only call the daemon.
    from sessions.store.store import SessionStore  # noqa: PLC0415

    with translate_store_errors():
        store = await SessionStore.open(
            store_url(loaded), clock=SystemClock(), read_only=read_only, copy_folder=keep_in
        )
        try:
            yield store
        finally:
            await store.close()


def store_url(loaded: LoadedConfig) -> str:
    """Return the URL of the database, including the password."""
    url = loaded.settings.store.url
    return url.reveal() if url else f"sqlite:///{loaded.home / 'holdfast.db'}"


@contextlib.contextmanager
def translate_store_errors() -> Iterator[None]:
    """Turn store errors into `ConfigError` and `CannotStart`."""
    try:
        yield
    except StoreTooNew as error:
        raise ConfigError(str(error)) from error
    except StoreError as error:
        raise CannotStart(str(error)) from error


# --- output ----------------------------------------------------------------------------------


def print_json(value: object) -> None:
    """Print a value as indented JSON."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))


def print_table(
    headings: Sequence[str], rows: Iterable[Sequence[object]], if_empty: str = "Nothing."
) -> None:
    """Print rows for people, each column as wide as the widest cell."""
    lines = [tuple(headings), *(tuple(visible_line(str(cell)) for cell in row) for row in rows)]
    if len(lines) == 1:
        click.echo(if_empty)
        return
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def print_fields(fields: Mapping[str, object]) -> None:
    """Print one record for people, one name and value per line."""
    width = max(len(name) for name in fields)
    for name, value in fields.items():
        click.echo(f"{name.ljust(width)}  {visible_line(str(value))}".rstrip())


def print_text(text: str) -> None:
    """Print text from chats, which must not control the terminal; line breaks are kept."""
    click.echo(visible_text(text))
