"""`holdfast keys`: adds, lists and revokes API keys, with or without a running daemon."""

import asyncio
from collections.abc import Mapping
from typing import Any

import click

from gateway.access.api_keys import KeyRole
from gateway.config.loader import ConfigOptions, LoadedConfig
from gateway.operate.cli.common import (
    ask_daemon,
    config_options,
    json_option,
    load_settings,
    open_store,
    print_json,
    print_table,
    store_url,
)
from gateway.process.control_socket import NotRunning
from gateway.process.lock import hold_state_folder

_NO_KEYS = "There are no keys besides the one of http.api_key, which `holdfast config show --secrets` prints."
_LIMIT_WORDS = {
    "messages_per_minute": "{:,} messages a minute",
    "tokens_per_day": "{:,} tokens a day",
    "usd_per_day": "${:,} a day",
}


@click.group(help="Manage the keys of API clients.")
def keys() -> None:
    """See the help."""


@keys.command(short_help="Create an API key and print it once.")
@click.argument("name")
@click.option(
    "--person",
    default="",
    metavar="ID",
    help="Person for whom the key acts, by stable id, such as telegram:1001. Default: a person of "
    "its own, api:NAME.",
)
@click.option(
    "--role",
    type=click.Choice([each.value for each in KeyRole]),
    default=KeyRole.MEMBER.value,
    show_default=True,
    help="The most that the key may do; a guest has no tools.",
)
@click.option("--messages-per-minute", type=click.IntRange(min=1), help="Requests per minute.")
@click.option("--tokens-per-day", type=click.IntRange(min=0), help="Model tokens per day.")
@click.option("--usd-per-day", type=click.FloatRange(0, 1_000_000), help="Dollars per day.")
@json_option
@config_options
def add(
    options: ConfigOptions,
    name: str,
    person: str,
    role: str,
    *,
    as_json: bool,
    **limits: float | None,
) -> None:
    """Create a key with a NAME for one program or person, and print it. Only a hash is stored.

    A key has its own sessions and stored answers. Its requests have the workspace, budget and
    tools of the person.
    """
    given = {key: limit for key, limit in limits.items() if limit is not None}
    made = _operate(options, "keys_add", name=name, person=person, role=role, limits=given)
    if as_json:
        print_json(made)
        return
    click.echo(made["key"])
    click.echo(f"This is the key “{name}” of {made['person']}. It cannot be shown again.", err=True)


@keys.command("list")
@json_option
@config_options
def list_(options: ConfigOptions, *, as_json: bool) -> None:
    """List the keys with their person, role, limits, age and last use."""
    found = _operate(options, "keys_list")
    if as_json:
        print_json(found)
        return
    heads = ("NAME", "PERSON", "ROLE", "LIMITS", "CREATED", "LAST USED")
    print_table(heads, map(_row, found), _NO_KEYS)


@keys.command()
@click.argument("name")
@json_option
@config_options
def revoke(options: ConfigOptions, name: str, *, as_json: bool) -> None:
    """Delete the key NAME. Its running and queued requests end at once."""
    found = _operate(options, "keys_revoke", name=name)
    if as_json:
        print_json(found)
        return
    click.echo(f"The key “{name}” no longer works.")


def _row(key: Mapping[str, Any]) -> tuple[str, ...]:
    limits = key["limits"]
    shown = [
        text.format(limits[name]) for name, text in _LIMIT_WORDS.items() if limits[name] is not None
    ]
    role = key["role"] if key["access"] else f"{key['role']} (the person has no access)"
    used = key["last_used_at"]
    return (
        key["name"],
        key["person"],
        role,
        ", ".join(shown) or "-",
        key["created_at"][:10],
        f"{used[:10]} {used[11:16]}" if used else "never",
    )


def _operate(options: ConfigOptions, operation: str, **args: object) -> Any:  # noqa: ANN401 - depends on the operation
    """Call an operation of the daemon; without one, run it on the store of the configuration."""
    try:
        return ask_daemon(operation, **args)
    except NotRunning:
        loaded = load_settings(options)
    if operation == "keys_list":
        return asyncio.run(_operate_on_store(loaded, operation, args))
    with hold_state_folder(loaded.home, store_url=store_url(loaded)):  # no daemon starts meanwhile
        return asyncio.run(_operate_on_store(loaded, operation, args))


async def _operate_on_store(
    loaded: LoadedConfig, operation: str, args: Mapping[str, object]
) -> object:
    # Slow to import, and not needed beside a daemon.
    from gateway.access.key_store import ApiKeys  # noqa: PLC0415
    from gateway.access.people import People  # noqa: PLC0415
    from gateway.process.operations import KeyOperations  # noqa: PLC0415
    from sessions.values.clock import SystemClock  # noqa: PLC0415

    async def nothing_runs() -> None:
        """Stop no work: there is no daemon."""

    clock, is_list = SystemClock(), operation == "keys_list"
    async with open_store(loaded, read_only=is_list, keep_in=loaded.home / "backups") as store:
        people = People(store, clock, loaded.settings.access)
        await people.load(create=not is_list)
        keys_ = ApiKeys(store, clock, people)
        await keys_.load()
        return await KeyOperations(keys_, nothing_runs).by_name()[operation](**args)
