"""Path and mode of the configuration and the secrets."""

import pwd
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from gateway.config import credentials
from gateway.config.loader import ConfigOptions, config_file
from gateway.errors import CannotStart

SYSTEM_FOLDER = credentials.MACHINE_FOLDER.parent
_FILE_NAME = "holdfast.toml"
_CREDENTIALS_FOLDER = credentials.MACHINE_FOLDER.name


class ConfigTarget(Struct, frozen=True):
    """The configuration file to write, with environment and user."""

    path: Path
    environ: Mapping[str, str]
    uid: int  # 0: root

    @property
    def file_mode(self) -> int:
        """Mode of a new file, which contains no secret; a user's file is private.

        The machine's file must be readable by the service, which runs as its own user.
        """
        return 0o644 if self.path.absolute().is_relative_to(SYSTEM_FOLDER) else 0o600

    @property
    def credentials_folder(self) -> Path:
        """Folder with one file per secret."""
        return self.path.absolute().parent / _CREDENTIALS_FOLDER

    def secret_reference(self, name: str) -> str:
        """Return the value that refers to a secret of this folder in the configuration.

        systemd copies credentials for the service, which cannot read the folder itself; the form
        `credential:` also finds that copy.
        """
        home = self.environ.get("HOME")
        own = Path(home) / credentials.USER_FOLDER if home else None
        seen = self.credentials_folder == own or (
            self.credentials_folder == credentials.MACHINE_FOLDER
            and not (own and credentials.is_readable(own))
        )
        return f"credential:{name}" if seen else f"file:{_CREDENTIALS_FOLDER}/{name}"

    @property
    def is_default_path(self) -> bool:
        """True if commands find the file without `--config`."""
        found = config_file(ConfigOptions(), self.environ)
        return found is not None and found.absolute() == self.path.absolute()


def choose_target(options: ConfigOptions, environ: Mapping[str, str], uid: int) -> ConfigTarget:
    """Return the configuration in use, else the default path for this user.

    Raises `CannotStart` for a path that cannot be a configuration file.
    """
    found = config_file(options, environ)
    if found is None and uid == 0:
        found = SYSTEM_FOLDER / _FILE_NAME
    if found is None:
        home = environ.get("HOME") or pwd.getpwuid(uid).pw_dir
        found = (Path(home) / credentials.USER_FOLDER).with_name(_FILE_NAME)
    if found.exists() and not found.is_file():  # writing would replace a device such as /dev/null
        msg = f"{found} is not a regular file. Name another file with --config."
        raise CannotStart(msg)
    return ConfigTarget(found, environ, uid)
