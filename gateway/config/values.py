"""Values of a configuration that lie somewhere else: secrets, paths, spans of time."""

import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from gateway.config import credentials
from gateway.settings import KeyPath
from sessions.values.duration import Duration
from sessions.values.secret import Secret
from sessions.values.size import Size


class ConfigValues:
    """Reads the values that need the environment or the disk.

    `folder` is what relative paths start from; `literal` is told of every secret that is written
    out, with its place.
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

        What lies somewhere else can be read again later: it may have become another one.
        """
        written = _require_text(value, "the secret itself, env:NAME or file:PATH")
        read = self._external_reader(written)
        if read is None:
            self._on_literal_secret(written, path)
        found, otherwise = read() if read else (written, "is empty")
        if not found.strip():
            raise ValueError(otherwise)
        return Secret(found.strip(), _stripped_reader(read) if read else None)

    def _external_reader(self, written: str) -> Callable[[], tuple[str, str]] | None:
        """How a secret is read that lies somewhere else: gives it, or why there is none."""
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
        """Read a path; a relative one starts from the folder of the configuration."""
        return self._folder / Path(_require_text(value, "a path")).expanduser()

    def read_duration(self, value: object, _path: KeyPath) -> Duration:
        """Read a span of time."""
        return Duration.parse(value)

    def read_size(self, value: object, _path: KeyPath) -> Size:
        """Read an amount of bytes."""
        return Size.parse(value)

    def _read_credential(self, name: str) -> tuple[str, str]:
        folder = credentials.find_folder(self._environ)
        if not folder:
            return "", f"is credential:{name}, but systemd passed none (LoadCredential=)"
        return read_text(credentials.credential_path(folder, name))


def read_text(path: Path) -> tuple[str, str]:
    """Read a small file: its text, and what to say when there is none."""
    try:
        return path.read_text(encoding="utf-8"), f"names {path}, which is empty"
    except UnicodeDecodeError:
        return "", f"names {path}, which is not UTF-8 text"
    except OSError as error:
        return "", f"names {path}, which cannot be read: {error.strerror}"


def _stripped_reader(read: Callable[[], tuple[str, str]]) -> Callable[[], str]:
    def once_more() -> str:
        found, _ = read()
        return found.strip()

    return once_more


def is_readable_by_others(path: Path) -> bool:
    """Tell whether somebody besides a file's owner may read it."""
    return bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))


def _require_text(value: object, expected: str) -> str:
    if isinstance(value, str) and value:
        return value
    msg = f"must be text: {expected}"
    raise ValueError(msg)
