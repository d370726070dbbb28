"""The generated API key: created when none is configured, and stored beside the database."""

import logging
import os
import secrets
from collections.abc import Callable
from pathlib import Path

import msgspec

from gateway.errors import CannotStart
from sessions.values.secret import Secret

log = logging.getLogger(__name__)

_PREFIX = "hf-"
_BYTES = 32
_MIN_LENGTH = 20
_FILE_NAME = "api_key"
_OTHERS_MASK = 0o077


class ApiKey(msgspec.Struct, frozen=True):
    """An API key; `is_new` is true if this start generated it."""

    secret: Secret
    is_new: bool = False


def key_path(home: Path) -> Path:
    """Return the path of the key file inside a state folder."""
    return home / _FILE_NAME


def load_or_create(
    home: Path, generate_token: Callable[[int], str] = secrets.token_urlsafe
) -> ApiKey:
    """Return the key of this installation and generate one if there is none.

    Raises `CannotStart` if the key file cannot be read or written.
    """
    kept = read(home)
    if kept is not None:
        _restrict_permissions(key_path(home))
        return ApiKey(kept)
    made = _PREFIX + generate_token(_BYTES)
    try:
        _write(key_path(home), made)
    except OSError as error:
        msg = f"The API key cannot be written to {key_path(home)}: {error.strerror}."
        raise CannotStart(msg) from error
    return ApiKey(Secret(made), is_new=True)


def read(home: Path) -> Secret | None:
    """Return the stored key, or None if there is none; raises `CannotStart` if it is unusable."""
    path = key_path(home)
    try:
        text = path.read_bytes().decode("ascii", "replace").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        msg = f"The API key in {path} cannot be read: {error.strerror}."
        raise CannotStart(msg) from error
    if len(text) < _MIN_LENGTH or not text.isprintable() or " " in text or "\ufffd" in text:
        msg = f"{path} does not contain an API key. Delete it; the next start creates a new key."
        raise CannotStart(msg)
    return Secret(text)


def _restrict_permissions(path: Path) -> None:
    """Make the key file private; warn if it was readable, because the key may have leaked."""
    if not path.stat().st_mode & _OTHERS_MASK:
        return
    try:
        path.chmod(0o600)
    except OSError as error:
        log.warning(
            "%s is readable by other users, and its mode cannot be changed: %s", path, error
        )
        return
    log.warning(
        "%s was readable by other users; now it is private. If the key may have leaked, delete the "
        "file: the next start creates a new API key.",
        path,
    )


def _write(path: Path, key: str) -> None:
    """Write the key file atomically and durably; the file is private from its creation on."""
    unfinished = path.with_name(f".{path.name}.new")
    unfinished.unlink(missing_ok=True)
    file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "w", encoding="ascii") as writing:
        writing.write(f"{key}\n")
        writing.flush()
        os.fsync(writing.fileno())
    unfinished.replace(path)
