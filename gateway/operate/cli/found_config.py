"""Confirmation of a configuration file that was found in the current folder."""

import os
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import click

from gateway.config.found_file import FoundFile, confirmation_reason, describe_found_file
from gateway.config.loader import (
    HANDOVER_VARIABLE,
    ConfigOptions,
    LoadedConfig,
    config_file,
    read_environment,
    state_folder,
)
from gateway.errors import CannotStart, ConfigError

_FILE_NAME = "used-configs"


def confirm_found_config(options: ConfigOptions) -> None:
    """Ask before a file of the current folder decides what is started, sent and allowed.

    Raises `ConfigError` if the person says no, or if there is no terminal. A confirmed file is
    asked about again only if these settings change, or if it belongs to another user. A file that
    was named is not asked about, nor is a restart, which an admin asked for.
    """
    environ = read_environment()
    found = _find_file(options, environ)
    if found is None or environ.get(HANDOVER_VARIABLE):
        return
    record = state_folder(environ) / _FILE_NAME
    used = _read_used(record)
    reason = confirmation_reason(found, os.geteuid(), used)
    if reason is None:
        return
    if not sys.stdin.isatty():
        msg = f"{reason}. To use this file, name it: --config {found.path.name}"
        raise ConfigError(msg)
    click.echo(f"{reason}.", err=True)
    if not click.confirm("Use this file?", default=False, err=True):
        msg = f"{found.path} was not used. Name another file with --config FILE."
        raise ConfigError(msg)
    _write_used(record, {**used, str(found.path): found.digest})


def confirm_found_store(options: ConfigOptions) -> None:
    """Ask before a database is opened that a file of the current folder names.

    A command that opens the database and does nothing else of the file needs no other yes. See
    `confirm_found_config`.
    """
    found = _find_file(options, read_environment())
    if found and any(name.startswith("store.") for name in found.settings):
        confirm_found_config(options)


def remember_found_config(options: ConfigOptions) -> None:
    """Do not ask about the present content, because a confirmed file was changed by a command."""
    environ = read_environment()
    if found := _find_file(options, environ):
        record = state_folder(environ) / _FILE_NAME
        _write_used(record, {**_read_used(record), str(found.path): found.digest})


def config_line(loaded: LoadedConfig) -> str:
    """Return the first line of a start: which configuration file was read."""
    where = str(loaded.path.absolute()) if loaded.path else "no file, all defaults"
    return f"holdfast: configuration: {where}"


def _find_file(options: ConfigOptions, environ: Mapping[str, str]) -> FoundFile | None:
    """Return the file of the current folder that is used; None if a file was named.

    None also for a file that is not TOML, because it cannot be used at all.
    """
    path = config_file(options, environ)
    is_named = options.config is not None or bool(environ.get("HOLDFAST_CONFIG"))
    if is_named or path is None or path.is_absolute():
        return None
    try:
        owners = frozenset({path.stat().st_uid, path.lstat().st_uid})
        resolved = path.resolve()
        document = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        msg = f"{path}: cannot be read: {error.strerror}"
        raise ConfigError(msg) from error
    except (ValueError, RecursionError):
        return None
    return describe_found_file(resolved, owners, document)


def _read_used(record: Path) -> dict[str, str]:
    """Return the digests of confirmed files by path."""
    try:
        lines = record.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    entries = (line.partition(" ") for line in lines)
    return {path: digest for digest, _, path in entries if path}


def _write_used(record: Path, used: Mapping[str, str]) -> None:
    lines = (f"{digest} {path}\n" for path, digest in sorted(used.items()))
    try:
        record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        record.write_text("".join(lines), encoding="utf-8")
    except OSError as error:
        msg = f"{record} cannot be written: {error.strerror}."
        raise CannotStart(msg) from error
