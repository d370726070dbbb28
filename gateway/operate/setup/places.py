"""Where the configuration goes, and who may read it."""

import pwd
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from gateway.config import credentials
from gateway.config.loader import ConfigOptions, config_file

SYSTEM_FOLDER = credentials.MACHINE_FOLDER.parent
FILE_NAME = "holdfast.toml"
CREDENTIALS_FOLDER = credentials.MACHINE_FOLDER.name


class ConfigTarget(Struct, frozen=True):
    """The file that is written, for whom, and what surrounds them."""

    path: Path
    environ: Mapping[str, str]
    uid: int  # 0: root

    @property
    def file_mode(self) -> int:
        """Rights of a new file, in which no secret stands: a user's is theirs alone.

        The machine's must be readable to its service, which has a user of its own.
        """
        return 0o644 if self.path.absolute().is_relative_to(SYSTEM_FOLDER) else 0o600

    @property
    def credentials_folder(self) -> Path:
        """The folder in which each secret has a file of its own."""
        return self.path.absolute().parent / CREDENTIALS_FOLDER

    def secret_reference(self, name: str) -> str:
        """How the configuration names a secret of this folder.

        A credential is also found where systemd has put it for the service, which cannot look into
        the folder itself.
        """
        home = self.environ.get("HOME")
        own = Path(home) / credentials.USER_FOLDER if home else None
        seen = self.credentials_folder == own or (
            self.credentials_folder == credentials.MACHINE_FOLDER
            and not (own and credentials.is_readable(own))
        )
        return f"credential:{name}" if seen else f"file:{CREDENTIALS_FOLDER}/{name}"

    @property
    def is_default_path(self) -> bool:
        """Whether commands find it without being told."""
        found = config_file(ConfigOptions(), self.environ)
        return found is not None and found.absolute() == self.path.absolute()


def choose_target(options: ConfigOptions, environ: Mapping[str, str], uid: int) -> ConfigTarget:
    """Choose the file: the one that is read, else the usual one of this user."""
    found = config_file(options, environ)
    if found is None and uid == 0:
        found = SYSTEM_FOLDER / FILE_NAME
    if found is None:
        home = environ.get("HOME") or pwd.getpwuid(uid).pw_dir
        found = (Path(home) / credentials.USER_FOLDER).with_name(FILE_NAME)
    return ConfigTarget(found, environ, uid)
