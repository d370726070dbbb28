"""The key of the API where none is configured: made once, kept beside the database."""

import logging
import os
import secrets
from collections.abc import Callable
from pathlib import Path

import msgspec

from gateway.errors import CannotStart
from sessions.values.secret import Secret

log = logging.getLogger(__name__)

PREFIX = "hf-"
_BYTES = 32
_MIN_LENGTH = 20
_FILE_NAME = "api_key"
_OTHERS_MASK = 0o077


class ApiKey(msgspec.Struct, frozen=True):
    """The key, and whether it was made just now."""

    secret: Secret
    is_new: bool = False


def key_path(home: Path) -> Path:
    """Where it is kept in a state folder."""
    return home / _FILE_NAME


def load_or_create(
    home: Path, generate_token: Callable[[int], str] = secrets.token_urlsafe
) -> ApiKey:
    """Give the key of this installation, made now if there is none; raises `CannotStart`."""
    kept = read(home)
    if kept is not None:
        _restrict_permissions(key_path(home))
        return ApiKey(kept)
    made = PREFIX + generate_token(_BYTES)
    try:
        _write(key_path(home), made)
    except OSError as error:
        msg = f"The API key cannot be kept in {key_path(home)}: {error.strerror}."
        raise CannotStart(msg) from error
    return ApiKey(Secret(made), is_new=True)


def read(home: Path) -> Secret | None:
    """Give the key that was made earlier; None when there is none. Raises `CannotStart`."""
    path = key_path(home)
    try:
        text = path.read_bytes().decode("ascii", "replace").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        msg = f"The API key in {path} cannot be read: {error.strerror}."
        raise CannotStart(msg) from error
    if len(text) < _MIN_LENGTH or not text.isprintable() or " " in text or "\ufffd" in text:
        msg = f"{path} holds no API key. Remove it, and a new key is made at the next start."
        raise CannotStart(msg)
    return Secret(text)


def _restrict_permissions(path: Path) -> None:
    """Let nobody else read it any more; whoever could may know the key, so that is said."""
    if not path.stat().st_mode & _OTHERS_MASK:
        return
    try:
        path.chmod(0o600)
    except OSError as error:
        log.warning("%s can be read by others, and that cannot be changed: %s", path, error)
        return
    log.warning(
        "%s could be read by others; it no longer can. If somebody has read it: remove it, and a "
        "new API key is made at the next start.",
        path,
    )


def _write(path: Path, key: str) -> None:
    """Whole or not at all, also when the power fails; nobody else can ever read it."""
    unfinished = path.with_name(f".{path.name}.new")
    unfinished.unlink(missing_ok=True)
    file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "w", encoding="ascii") as writing:
        writing.write(f"{key}\n")
        writing.flush()
        os.fsync(writing.fileno())
    unfinished.replace(path)
