"""Readers of configuration values with custom types: secrets, paths, durations, sizes."""

import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from gateway.config import credentials
from gateway.settings import KeyPath
from sessions.values.duration import Duration
from sessions.values.secret import Secret
from sessions.values.size import Size


class ConfigValues:
    """Reader of values that may refer to the environment or to files.

    `folder` is the base of relative paths. `on_literal_secret` is called with each secret that is
    written literally, and its path.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        folder: Path,
        on_literal_secret: Callable[[str, KeyPath], None],
    ) -> None:
        self._environ = environ
        self._folder = folder
        self._on_literal_secret = on_literal_secret

    def read_secret(self, value: object, path: KeyPath) -> Secret:
        """Read `env:NAME`, `file:PATH`, `credential:NAME` or the secret itself.

        A secret from another place can be read again later, so that a rotated key is picked up.
        """
        written = _require_text(value, "the secret itself, env:NAME or file:PATH")
        read = self._external_reader(written)
        if read is None:
            self._on_literal_secret(written, path)
        secret, problem = read() if read else (written, "is empty")
        if not secret.strip():
            raise ValueError(problem)
        return Secret(secret.strip(), _stripped_reader(read) if read else None)

    def _external_reader(self, written: str) -> Callable[[], tuple[str, str]] | None:
        """Return a reader of an external secret, which returns the secret and a problem text."""
        kind, _, name = written.partition(":")
        match kind:
            case "env":
                return lambda: (self._environ.get(name, ""), f"env:{name} is not set")
            case "file":
                path = self._folder / Path(name).expanduser()
                return lambda: read_text(path)
            case "credential":
                return lambda: self._read_credential(name)
            case _:
                return None

    def read_path(self, value: object, _path: KeyPath) -> Path:
        """Read a path, relative to the folder of the configuration file."""
        return self._folder / Path(_require_text(value, "a path")).expanduser()

    def read_duration(self, value: object, _path: KeyPath) -> Duration:
        """Read a duration."""
        return Duration.parse(value)

    def read_size(self, value: object, _path: KeyPath) -> Size:
        """Read a size in bytes."""
        return Size.parse(value)

    def _read_credential(self, name: str) -> tuple[str, str]:
        folder = credentials.find_folder(self._environ)
        if not folder:
            return "", f"is credential:{name}, but there is no folder of credentials"
        return read_text(credentials.credential_path(folder, name))


def read_text(path: Path) -> tuple[str, str]:
    """Read a small file; returns its text, and the problem to report if the text is empty."""
    try:
        return path.read_text(encoding="utf-8"), f"names {path}, which is empty"
    except UnicodeDecodeError:
        return "", f"names {path}, which is not UTF-8 text"
    except OSError as error:
        return "", f"names {path}, which cannot be read: {error.strerror}"


def _stripped_reader(read: Callable[[], tuple[str, str]]) -> Callable[[], str]:
    def read_stripped() -> str:
        text, _ = read()
        return text.strip()

    return read_stripped


def is_readable_by_others(path: Path) -> bool:
    """Return True if other users than the owner may read a file."""
    return bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))


def _require_text(value: object, expected: str) -> str:
    if isinstance(value, str) and value:
        return value
    msg = f"must be text: {expected}"
    raise ValueError(msg)
