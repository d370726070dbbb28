"""Where the configuration goes, and who may read it."""

import pwd
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from gateway.config import Options, config_file

SYSTEM = Path("/etc/holdfast")
NAME = "holdfast.toml"


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
        found = Path(home) / ".config/holdfast" / NAME
    return Place(found, environ, user)
