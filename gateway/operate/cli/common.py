"""What several commands share: options, settings, the daemon, the store, tables."""

import asyncio
import contextlib
import functools
import os
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
from gateway.process.control_socket import NotRunning, send_request, socket_path
from platforms.core.registry import load_specs
from sessions.errors import StoreError, StoreTooNew
from sessions.values.clock import SystemClock, rfc3339

if TYPE_CHECKING:
    from sessions.store.store import SessionStore

Result = TypeVar("Result")
CommandFunction = Callable[..., None]


def config_options(command: CommandFunction) -> CommandFunction:
    """Give a command the options `--config` and `--set`; it gets them as `options`."""

    @functools.wraps(command)  # which also keeps the options that stand below this one
    def with_options(config: Path | None, settings: tuple[str, ...], **others: object) -> None:
        command(options=ConfigOptions(config, settings), **others)

    file = click.option(
        "--config", type=click.Path(path_type=Path, dir_okay=False), help="Configuration file."
    )
    change = click.option(
        "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set one key; repeatable."
    )
    return file(change(with_options))


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def load_settings(options: ConfigOptions) -> LoadedConfig:
    """Read the configuration and say what is odd about it."""
    loaded = load(options, read_environment(), load_specs())
    for warning in loaded.warnings:
        click.echo(f"holdfast: {warning}", err=True)
    return loaded


# --- the running daemon ----------------------------------------------------------------------


def control_socket() -> Path:
    """Where the daemon of this state folder listens."""
    return socket_path(state_folder(read_environment()), read_environment())


def call_daemon(operation: str, **args: object) -> Any:  # noqa: ANN401 - what the operation answers
    """Have the running daemon do something; one sentence when there is none."""
    try:
        return send_request(control_socket(), operation, args)
    except NotRunning:
        msg = f"{not_running_message()}, and this needs one; start it with: holdfast run"
        raise NotRunning(msg) from None


def not_running_message() -> str:
    """Say that none runs here; to who is not root also that there is the machine's service."""
    environ = read_environment()
    said = f"No Holdfast runs on {state_folder(environ)}"
    chosen = environ.get("HOLDFAST_HOME") or environ.get("STATE_DIRECTORY")
    if os.geteuid() and not chosen and os.path.lexists(SERVICE_HOME):
        said += " (for the service of this machine put sudo before the command)"
    return said


# --- the store -------------------------------------------------------------------------------


def read_store(
    options: ConfigOptions, read: Callable[["SessionStore"], Awaitable[Result]]
) -> Result:
    """Read the store, also while a daemon runs."""
    loaded = load_settings(options)

    async def reading() -> Result:
        async with open_store(loaded, read_only=True) as store:
            return await read(store)

    return asyncio.run(reading())


@contextlib.asynccontextmanager
async def open_store(
    loaded: LoadedConfig, *, read_only: bool, keep_in: Path | None = None
) -> AsyncIterator["SessionStore"]:
    """Open the store; what goes wrong with it becomes one sentence. See `SessionStore.open`."""
    # It takes longer to load than all else; commands that only ask the daemon do without it.
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
    """Where the database is."""
    url = loaded.settings.store.url
    return url.reveal() if url else f"sqlite:///{loaded.home / 'holdfast.db'}"


@contextlib.contextmanager
def translate_store_errors() -> Iterator[None]:
    """Turn what the store says into the program's own errors."""
    try:
        yield
    except StoreTooNew as error:
        raise ConfigError(str(error)) from error
    except StoreError as error:
        raise CannotStart(str(error)) from error


# --- what is printed -------------------------------------------------------------------------


def print_json(value: object) -> None:
    """Print for programs."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))


def print_table(
    headings: Sequence[str], rows: Iterable[Sequence[object]], if_empty: str = "Nothing."
) -> None:
    """Print for people: columns as wide as what stands in them."""
    lines = [tuple(headings), *(tuple(printable(str(cell)) for cell in row) for row in rows)]
    if len(lines) == 1:
        click.echo(if_empty)
        return
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def print_fields(fields: Mapping[str, object]) -> None:
    """Print one thing for people: a name and a value per line."""
    width = max(len(name) for name in fields)
    for name, value in fields.items():
        click.echo(f"{name.ljust(width)}  {printable(str(value))}".rstrip())


def printable(text: str) -> str:
    """Text of strangers must neither break a table nor move the cursor."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def format_time(milliseconds: int) -> str:
    """Write a moment for people: to the second, in UTC."""
    return rfc3339(milliseconds)[:19].replace("T", " ")
