"""Where the configuration goes, and who may read it."""

import pwd
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from gateway.config import credentials
from gateway.config.loader import Options, config_file

SYSTEM = credentials.OF_MACHINE.parent
NAME = "holdfast.toml"
FOLDER = credentials.OF_MACHINE.name


class Place(Struct, frozen=True):
    """The file that is written, for whom, and what surrounds them."""

    path: Path
    environ: Mapping[str, str]
    user: int  # 0: root

    @property
    def mode(self) -> int:
        """Rights of a new file, in which no secret stands: a user's is theirs alone.

        The machine's must be readable to its service, which has a user of its own.
        """
        return 0o644 if self.path.absolute().is_relative_to(SYSTEM) else 0o600

    @property
    def credentials(self) -> Path:
        """The folder in which each secret has a file of its own."""
        return self.path.absolute().parent / FOLDER

    def reference(self, name: str) -> str:
        """How the configuration names a secret of this folder.

        A credential is also found where systemd has put it for the service, which cannot look into
        the folder itself.
        """
        home = self.environ.get("HOME")
        own = Path(home) / credentials.OF_USER if home else None
        seen = self.credentials == own or (
            self.credentials == credentials.OF_MACHINE and not (own and credentials.readable(own))
        )
        return f"credential:{name}" if seen else f"file:{FOLDER}/{name}"

    @property
    def is_usual(self) -> bool:
        """Whether commands find it without being told."""
        found = config_file(Options(), self.environ)
        return found is not None and found.absolute() == self.path.absolute()


def place_of(options: Options, environ: Mapping[str, str], user: int) -> Place:
    """Choose the file: the one that is read, else the usual one of this user."""
    found = config_file(options, environ)
    if found is None and user == 0:
        found = SYSTEM / NAME
    if found is None:
        home = environ.get("HOME") or pwd.getpwuid(user).pw_dir
        found = (Path(home) / credentials.OF_USER).with_name(NAME)
    return Place(found, environ, user)
