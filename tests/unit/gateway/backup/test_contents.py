"""Members that may be unpacked from an untrusted archive."""

import pytest

from agent.tools.mcp.contract import MCP_LOGIN_FOLDER
from gateway.operate.backup.contents import (
    MemberKind,
    is_escaping_link,
    is_excluded,
    is_secret,
    rejection_reason,
)

OUTSIDE = "is outside the state folder"
TAKEN = "has a name that no backup contains"
OUT = "is a link that points outside its folder"


@pytest.mark.parametrize(
    ("name", "kind", "target", "expected"),
    [
        ("database.db", "file", "", ""),
        ("database.db", "link", "/etc/passwd", "is not a file"),
        ("holdfast-backup.json", "folder", "", "is not a file"),
        ("state/workspace", "folder", "", ""),
        ("state/workspace/a/b.txt", "file", "", ""),
        ("state/workspace/...", "file", "", ""),
        ("state/workspace/a\udc80", "file", "", ""),
        ("state", "folder", "", OUTSIDE),
        ("state/", "folder", "", OUTSIDE),
        ("state//etc/passwd", "file", "", OUTSIDE),
        ("/etc/passwd", "file", "", OUTSIDE),
        ("../x", "file", "", OUTSIDE),
        ("state/../x", "file", "", OUTSIDE),
        ("state/workspace/../../x", "file", "", OUTSIDE),
        ("state/workspace/./x", "file", "", OUTSIDE),
        ("state/workspace/a\0b", "file", "", OUTSIDE),
        ("elsewhere/x", "file", "", OUTSIDE),
        ("state/lock", "file", "", TAKEN),
        ("state/control.sock", "file", "", TAKEN),
        ("state/holdfast.db-wal", "file", "", TAKEN),
        ("state/backups/x", "file", "", TAKEN),
        ("state/.restore/plan.json", "file", "", TAKEN),
        ("state/before-restore-20260101T000000Z/x", "file", "", TAKEN),
        ("state/workspace/x", "other", "", "is neither a file nor a folder nor a link"),
        ("state/workspace/l", "link", "b/c", ""),
        ("state/workspace/a/l", "link", "../b", ""),
        ("state/workspace/l", "link", "/etc/passwd", OUT),
        ("state/workspace/l", "link", "../lock", OUT),
        ("state/workspace/a/l", "link", "../../../etc", OUT),
        ("state/l", "link", "workspace", OUT),
        ("state/workspace/link/x", "file", "", "is inside a linked folder"),
        ("state/workspace/link/a/x", "folder", "", "is inside a linked folder"),
    ],
)
def test_only_members_a_backup_can_contain_are_unpacked(
    name: str, kind: str, target: str, expected: str
) -> None:
    assert rejection_reason(name, MemberKind(kind), target, {"workspace/link"}) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("api_key", True),
        ("secrets", True),
        (".env", True),
        ("holdfast.toml", True),
        ("bot-token", True),
        ("workspace", False),
        ("drafts", False),
        ("outgoing", False),
        ("platforms", False),
    ],
)
def test_secrets_are_recognized_by_name(name: str, *, expected: bool) -> None:
    assert is_secret(name) is expected


def test_files_of_this_installation_are_excluded() -> None:
    assert all(
        map(is_excluded, ("lock", "holdfast.db", "holdfast.db-shm", "mine.tar.gz", ".b.tar.part"))
    )
    assert not any(map(is_excluded, ("workspace", "locks", "a.txt", "api_key")))


def test_links_are_judged_from_their_own_folder() -> None:
    assert not is_escaping_link("workspace/a/b", "../c")
    assert is_escaping_link("workspace/a", "../c")
    assert is_escaping_link("a", "a")


def test_stored_logins_of_mcp_servers_are_secrets() -> None:
    assert is_secret(MCP_LOGIN_FOLDER)
