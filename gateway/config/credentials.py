"""Secrets that lie in a folder, a file each: systemd's credentials, or those of a user.

A file that is called like a variable of the environment counts as that variable:
`TELEGRAM_BOT_TOKEN`, `OPENAI_API_KEY`, `HOLDFAST_HTTP__API_KEY`. A variable that is set goes first.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from gateway.errors import ConfigError

MACHINE_FOLDER = Path("/etc/holdfast/credentials")
USER_FOLDER = Path(".config/holdfast/credentials")
"""From the user's own folder."""

PREFIX = "holdfast_"
"""What systemd puts before the name of each file of a folder: the name of the credential."""

_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")


def find_folder(environ: Mapping[str, str]) -> Path | None:
    """Where they lie: where systemd put them, else in the user's own folder or the machine's."""
    if environ.get("CREDENTIALS_DIRECTORY"):
        return Path(environ["CREDENTIALS_DIRECTORY"])
    home = environ.get("HOME")
    usual = (*((Path(home) / USER_FOLDER,) if home else ()), MACHINE_FOLDER)
    return next((each for each in usual if is_readable(each)), None)


def credential_path(folder: Path, name: str) -> Path:
    """The file of one of them; it need not exist."""
    plain = folder / Path(name).name
    prefixed = folder / f"{PREFIX}{Path(name).name}"
    return prefixed if not plain.exists() and prefixed.exists() else plain


def read_variables(folder: Path) -> dict[str, str]:
    """What they are as variables; raises `ConfigError` for one that cannot be read."""
    return dict(_read(folder))


def _read(folder: Path) -> Iterator[tuple[str, str]]:
    try:
        files = sorted(each for each in folder.iterdir() if each.is_file())
    except FileNotFoundError:  # named, as an image of a container does, and nothing put there
        return
    except OSError as error:
        msg = f"The credentials in {folder} cannot be read: {error.strerror}"
        raise ConfigError(msg) from error
    for file in files:
        name = file.name.removeprefix(PREFIX)
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
    """Whether there is such a folder that we may look into: the machine's is root's alone."""
    try:
        next(folder.iterdir(), None)
    except OSError:
        return False
    return True
