"""Credentials: a folder with one file per secret, from systemd or from the user.

A file with the name of an environment variable counts as that variable: `TELEGRAM_BOT_TOKEN`,
`OPENAI_API_KEY`, `HOLDFAST_HTTP__API_KEY`. A variable that is set takes precedence.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from gateway.errors import ConfigError

MACHINE_FOLDER = Path("/etc/holdfast/credentials")
USER_FOLDER = Path(".config/holdfast/credentials")
"""Relative to the user's home folder."""

_PREFIX = "holdfast_"
"""Prefix of file names from `LoadCredential=holdfast:FOLDER`: systemd adds the credential's name."""

_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")


def find_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of credentials: systemd's, else the user's, else the machine's, else None."""
    if environ.get("CREDENTIALS_DIRECTORY"):
        return Path(environ["CREDENTIALS_DIRECTORY"])
    home = environ.get("HOME")
    usual = (*((Path(home) / USER_FOLDER,) if home else ()), MACHINE_FOLDER)
    return next((each for each in usual if is_readable(each)), None)


def credential_path(folder: Path, name: str) -> Path:
    """Return the path of a credential; the file need not exist."""
    plain = folder / Path(name).name
    prefixed = folder / f"{_PREFIX}{Path(name).name}"
    return prefixed if not plain.exists() and prefixed.exists() else plain


def read_variables(folder: Path) -> dict[str, str]:
    """Return the credentials as environment variables; raises `ConfigError` if one is unreadable."""
    return dict(_read(folder))


def _read(folder: Path) -> Iterator[tuple[str, str]]:
    try:
        files = sorted(each for each in folder.iterdir() if each.is_file())
    except FileNotFoundError:  # a container image may name a folder that is not mounted
        return
    except OSError as error:
        msg = f"The credentials in {folder} cannot be read: {error.strerror}"
        raise ConfigError(msg) from error
    for file in files:
        name = file.name.removeprefix(_PREFIX)
        if not _VARIABLE.fullmatch(name):
            continue
        try:
            yield name, file.read_text(encoding="utf-8").strip()
        except UnicodeDecodeError:
            msg = f"The credential {file} is not UTF-8 text"
            raise ConfigError(msg) from None
        except OSError as error:
            msg = f"The credential {file} cannot be read: {error.strerror}"
            raise ConfigError(msg) from error


def is_readable(folder: Path) -> bool:
    """Return True if the folder exists and is readable; only root can read the machine's folder."""
    try:
        next(folder.iterdir(), None)
    except OSError:
        return False
    return True
