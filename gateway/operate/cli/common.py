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

from gateway.config.loader import SERVICE_HOME, Loaded, Options, environment, load, state_folder
from gateway.errors import CannotStart, ConfigError
from gateway.process.control_socket import NotRunning, ask, socket_path
from platforms.core.registry import specs
from sessions.errors import StoreError, StoreTooNew
from sessions.values.clock import SystemClock, rfc3339

if TYPE_CHECKING:
    from sessions.store.store import SessionStore

Result = TypeVar("Result")
Body = Callable[..., None]


def configured(command: Body) -> Body:
    """Give a command the options `--config` and `--set`; it gets them as `options`."""

    @functools.wraps(command)  # which also keeps the options that stand below this one
    def with_options(config: Path | None, settings: tuple[str, ...], **others: object) -> None:
        command(options=Options(config, settings), **others)

    file = click.option(
        "--config", type=click.Path(path_type=Path, dir_okay=False), help="Configuration file."
    )
    change = click.option(
        "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set one key; repeatable."
    )
    return file(change(with_options))


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def settings_of(options: Options) -> Loaded:
    """Read the configuration and say what is odd about it."""
    loaded = load(options, environment(), specs())
    for warning in loaded.warnings:
        click.echo(f"holdfast: {warning}", err=True)
    return loaded


# --- the running daemon ----------------------------------------------------------------------


def control_socket() -> Path:
    """Where the daemon of this state folder listens."""
    return socket_path(state_folder(environment()), environment())


def order(do: str, **args: object) -> Any:  # noqa: ANN401 - what the operation answers
    """Have the running daemon do something; one sentence when there is none."""
    try:
        return ask(control_socket(), do, args)
    except NotRunning:
        msg = f"{nobody_runs()}, and this needs one; start it with: holdfast run"
        raise NotRunning(msg) from None


def nobody_runs() -> str:
    """Say that none runs here; to who is not root also that there is the machine's service."""
    environ = environment()
    said = f"No Holdfast runs on {state_folder(environ)}"
    chosen = environ.get("HOLDFAST_HOME") or environ.get("STATE_DIRECTORY")
    if os.geteuid() and not chosen and os.path.lexists(SERVICE_HOME):
        said += " (for the service of this machine put sudo before the command)"
    return said


# --- the store -------------------------------------------------------------------------------


def read_store(options: Options, read: Callable[["SessionStore"], Awaitable[Result]]) -> Result:
    """Read the store, also while a daemon runs."""
    loaded = settings_of(options)

    async def reading() -> Result:
        async with opened(loaded, read_only=True) as store:
            return await read(store)

    return asyncio.run(reading())


@contextlib.asynccontextmanager
async def opened(
    loaded: Loaded, *, read_only: bool, keep_in: Path | None = None
) -> AsyncIterator["SessionStore"]:
    """Open the store; what goes wrong with it becomes one sentence. See `SessionStore.open`."""
    # It takes longer to load than all else; commands that only ask the daemon do without it.
    from sessions.store.store import SessionStore  # noqa: PLC0415

    with told():
        store = await SessionStore.open(
            store_url(loaded), clock=SystemClock(), read_only=read_only, keep_in=keep_in
        )
        try:
            yield store
        finally:
            await store.close()


def store_url(loaded: Loaded) -> str:
    """Where the database is."""
    url = loaded.settings.store.url
    return url.reveal() if url else f"sqlite:///{loaded.home / 'holdfast.db'}"


@contextlib.contextmanager
def told() -> Iterator[None]:
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
    heads: Sequence[str], rows: Iterable[Sequence[object]], nothing: str = "Nothing."
) -> None:
    """Print for people: columns as wide as what stands in them."""
    lines = [tuple(heads), *(tuple(plain(str(cell)) for cell in row) for row in rows)]
    if len(lines) == 1:
        click.echo(nothing)
        return
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def print_fields(fields: Mapping[str, object]) -> None:
    """Print one thing for people: a name and a value per line."""
    width = max(len(name) for name in fields)
    for name, value in fields.items():
        click.echo(f"{name.ljust(width)}  {plain(str(value))}".rstrip())


def plain(text: str) -> str:
    """Text of strangers must neither break a table nor move the cursor."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def moment(milliseconds: int) -> str:
    """Write a moment for people: to the second, in UTC."""
    return rfc3339(milliseconds)[:19].replace("T", " ")
