"""Sans-IO: what of a state folder belongs into a backup, and what may come out of one."""

import posixpath
import re
from collections.abc import Collection

DATABASE_NAME = "database.db"
MANIFEST_NAME = "holdfast-backup.json"
STATE_PREFIX = "state/"
"""The names in an archive: the database, what the archive says of itself, and the state folder."""


_EXCLUDED = re.compile(
    r"lock|control\.sock|holdfast\.db.*|backups|\.restore|before-restore-.*"
    r"|\..*\.(part|work)|.*\.(tar|tar\.gz|tgz)"
)
_SECRET_NAME = re.compile(r"key|secret|token|credential|passw|\.env|\.toml|\.pem", re.IGNORECASE)


def is_excluded(name: str) -> bool:
    """Whether something in the state folder belongs to this place, not to the state."""
    return _EXCLUDED.fullmatch(name) is not None


def is_secret(name: str) -> bool:
    """Whether something in the state folder opens doors; only its own name counts."""
    return _SECRET_NAME.search(name) is not None


def is_escaping_link(name: str, target: str) -> bool:
    """Whether a link leads out of the folder of the state folder in which it stands."""
    if posixpath.isabs(target):
        return True
    parts = name.split("/")
    end = posixpath.normpath(posixpath.join(posixpath.dirname(name), target)).split("/")
    return len(parts) == 1 or end[:1] != parts[:1]


def rejection_reason(name: str, kind: str, target: str, earlier_links: Collection[str]) -> str:
    """Say what is wrong with something in an archive; empty when it may be unpacked.

    `kind` is `file`, `folder` or `link`, or anything else; `links` are those that came before.
    """
    if kind not in {"file", "folder", "link"}:
        return "is neither a file nor a folder nor a link"
    if name in {DATABASE_NAME, MANIFEST_NAME}:
        return "" if kind == "file" else "is not a file"
    inside = name.removeprefix(STATE_PREFIX)
    parts = inside.split("/")
    if inside == name or any(part in {"", ".", ".."} for part in parts) or "\0" in name:
        return "lies outside the state folder"
    if is_excluded(parts[0]):
        return "has a name that no backup holds"
    if any("/".join(parts[:end]) in earlier_links for end in range(1, len(parts))):
        return "lies behind a link"
    if kind == "link" and is_escaping_link(inside, target):
        return "is a link that leads out of its folder"
    return ""
