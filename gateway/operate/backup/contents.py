"""Sans-IO: which files belong in a backup, and which archive members may be unpacked."""

import enum
import posixpath
import re
from collections.abc import Collection

DATABASE_NAME = "database.db"
MANIFEST_NAME = "holdfast-backup.json"
STATE_PREFIX = "state/"
"""Names in an archive: the database, the manifest, and the prefix of the state folder's files."""


_EXCLUDED = re.compile(
    r"lock|control\.sock|holdfast\.db.*|backups|\.restore|before-restore-.*"
    r"|\..*\.(part|work)|.*\.(tar|tar\.gz|tgz)"
)
_SECRET_NAME = re.compile(r"key|secret|token|credential|passw|\.env|\.toml|\.pem", re.IGNORECASE)


class MemberKind(enum.StrEnum):
    """Kind of an archive member; a backup contains the first three."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    OTHER = "other"


def is_excluded(name: str) -> bool:
    """Return True for files of this installation, such as locks, that no backup contains."""
    return _EXCLUDED.fullmatch(name) is not None


def is_process_record(name: str) -> bool:
    """Return True for the record of starts, which says of a running gateway that it crashed.

    Backups of older versions contain the record; a restore leaves it out.
    """
    return name == "starts.json"


def is_secret(name: str) -> bool:
    """Return True if the name of an entry of the state folder suggests a secret."""
    return _SECRET_NAME.search(name) is not None


def is_escaping_link(name: str, target: str) -> bool:
    """Return True if a link points outside the top-level folder that contains the link."""
    if posixpath.isabs(target):
        return True
    parts = name.split("/")
    end = posixpath.normpath(posixpath.join(posixpath.dirname(name), target)).split("/")
    return len(parts) == 1 or end[:1] != parts[:1]


def rejection_reason(
    name: str, kind: MemberKind, target: str, earlier_links: Collection[str]
) -> str:
    """Return why an archive member must not be unpacked; empty if allowed.

    `earlier_links` are the links unpacked so far.
    """
    if kind is MemberKind.OTHER:
        return "is neither a file nor a folder nor a link"
    if name in {DATABASE_NAME, MANIFEST_NAME}:
        return "" if kind is MemberKind.FILE else "is not a file"
    inside = name.removeprefix(STATE_PREFIX)
    parts = inside.split("/")
    if inside == name or any(part in {"", ".", ".."} for part in parts) or "\0" in name:
        return "is outside the state folder"
    if is_excluded(parts[0]):
        return "has a name that no backup contains"
    if any("/".join(parts[:end]) in earlier_links for end in range(1, len(parts))):
        return "is inside a linked folder"
    if kind is MemberKind.LINK and is_escaping_link(inside, target):
        return "is a link that points outside its folder"
    return ""
