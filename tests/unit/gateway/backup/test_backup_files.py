"""Backup files: complete under their final name, or absent."""

import fcntl
import gzip
import hashlib
import io
import json
import os
import socket
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.errors import CannotStart, ConfigError
from gateway.operate.backup import writing
from gateway.operate.backup.manifest import InvalidBackup, decode_manifest
from gateway.operate.backup.reading import unpack, verify
from gateway.operate.backup.restoring import apply_restore, discard_prepared, prepare_restore
from gateway.operate.backup.writing import BackupSource, write_backup, write_backup_file
from gateway.process.lock import hold_state_folder
from gateway.process.state_swap import finish_moves
from sessions.store import prepare as opening
from sessions.store.engine import parse_url

NOW = 1_800_000_000_000


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A state folder with every kind of file."""
    home = tmp_path / "home"
    opening.prepare(parse_url(url(home)))
    own = home / "workspace" / "web%3Aowner"
    (own / "received" / "0123456789").mkdir(parents=True)
    (own / "received" / "0123456789" / "photo.png").write_bytes(bytes(range(256)) * 1000)
    (own / "notes.txt").write_text("words")
    (own / "run.sh").write_text("#!/bin/sh")
    (own / "run.sh").chmod(0o755)
    (own / "empty").touch()
    (own / "link").symlink_to("notes.txt")
    (own / "folder").symlink_to("received")
    (own / "out").symlink_to("/etc/passwd")
    (own / os.fsdecode(b"odd \xff name")).write_text("odd")
    (home / "drafts" / "web%3Aa").mkdir(parents=True)
    (home / "drafts" / "web%3Aa" / "d1.text").write_text("half a file")
    (home / "outgoing" / "shown" / "f_1").mkdir(parents=True)
    (home / "outgoing" / "shown" / "f_1" / "a.txt").write_text("shown")
    (home / "platforms" / "web").mkdir(parents=True)
    (home / "api_key").write_text("hf-a-key-that-opens-doors")
    (home / "lock").touch()
    (home / "backups").mkdir()
    (home / "backups" / "before-0003-x.db").write_text("old")
    return home


def url(home: Path) -> str:
    return f"sqlite:///{home / 'holdfast.db'}"


def source(home: Path, *, secrets: bool = False) -> BackupSource:
    return BackupSource(
        home=home,
        store_url=url(home),
        version="1.2.3",
        made_at="2027-01-15T08:00:00.000Z",
        include_secrets=secrets,
    )


def tree(folder: Path) -> dict[str, Any]:
    """Return content, mode and link target of every file in a folder."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_file():
            found[name] = (path.read_bytes(), path.stat().st_mode & 0o777)
    return found


def restored(file: Path, home: Path) -> None:
    with hold_state_folder(home):
        apply_restore(prepare_restore(file, home, url(home), NOW, moved=True))


@pytest.mark.parametrize("name", ["b.tar.gz", "b.tar", "b"])
def test_a_restored_backup_equals_the_original(home: Path, tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    manifest = write_backup_file(source(home), file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert tarfile.is_tarfile(file)
    assert verify(file) == manifest
    assert set(manifest.left_out) == {
        "api_key: a secret (--secrets includes it)",
        "workspace/web%3Aowner/out: a link that points outside its folder",
    }
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([name, "home"])
    other = tmp_path / "other"
    restored(file, other)
    for folder in ("workspace", "drafts", "outgoing", "platforms"):
        there = tree(home / folder)
        there.pop("web%3Aowner/out", None)
        assert tree(other / folder) == there
        assert (other / folder).is_dir()
    assert not (other / "api_key").exists()
    assert not (other / "backups").exists()
    opening.check_current(parse_url(url(other)))


def test_secrets_are_included_on_request(home: Path, tmp_path: Path) -> None:
    write_backup_file(source(home, secrets=True), tmp_path / "b.tgz")
    restored(tmp_path / "b.tgz", tmp_path / "other")
    assert (tmp_path / "other" / "api_key").read_text() == "hf-a-key-that-opens-doors"


def test_sockets_pipes_and_unreadable_files_do_not_stop_a_backup(
    home: Path, tmp_path: Path
) -> None:
    own = home / "workspace" / "web%3Aowner"
    os.mkfifo(own / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(own / "s"))
        manifest = write_backup_file(source(home), tmp_path / "b.tgz")
    names = {member.name.rpartition("/")[2] for member in manifest.members}
    assert not names & {"pipe", "s"}
    assert {"notes.txt", "link", "folder"} <= names


def test_a_file_that_changes_while_it_is_read_does_not_break_the_backup(
    home: Path, tmp_path: Path
) -> None:
    """With a slow stream, one file grows, one shrinks and one disappears while being read."""
    own = home / "workspace" / "web%3Aowner"
    for name in ("grows", "shrinks"):
        (own / name).write_bytes(b"x" * 3_000_000)
    (own / "zgoes").write_text("soon gone")

    class Slow(io.BytesIO):
        def write(self, piece: Any) -> int:
            with (own / "grows").open("ab") as file:
                file.write(b"more")
            if b"state/workspace/web%3Aowner/shrinks" in bytes(piece):
                os.truncate(own / "shrinks", 10)
                (own / "zgoes").unlink(missing_ok=True)
            return super().write(piece)

    stream = Slow()
    (tmp_path / "work").mkdir()
    manifest = write_backup(source(home), stream, tmp_path / "work", compressed=False)
    file = tmp_path / "b.tar"
    file.write_bytes(stream.getvalue())
    assert verify(file) == manifest
    sizes = {member.name.rpartition("/")[2]: member.size for member in manifest.members}
    assert sizes["shrinks"] == 3_000_000
    assert sizes["grows"] >= 3_000_000
    assert "zgoes" not in sizes


def test_a_device_is_not_replaced_even_with_force(home: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(CannotStart, match="is not a regular file"):
        write_backup_file(source(home), pipe, force=True)
    assert pipe.is_fifo()


def test_an_existing_file_is_overwritten_only_with_force(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "b.tgz"
    file.write_text("mine")
    with pytest.raises(CannotStart, match=r"already exists\. Choose another name, or use --force"):
        write_backup_file(source(home), file)
    assert file.read_text() == "mine"
    write_backup_file(source(home), file, force=True)
    verify(file)


def test_a_failed_backup_leaves_no_file(home: Path, tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=r"cannot be written to .*: No such file or directory"):
        write_backup_file(source(home), tmp_path / "nowhere" / "b.tgz")
    full = Path("/dev/full")
    if full.exists():
        (tmp_path / "work").mkdir()
        with full.open("wb") as stream, pytest.raises(OSError, match="No space left"):
            write_backup(source(home), stream, tmp_path / "work", compressed=False)


def test_two_backups_to_the_same_file_exclude_each_other(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "b.tgz"
    with (tmp_path / ".b.tgz.part").open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(CannotStart, match="Another backup is being written"):
            write_backup_file(source(home), file)
    write_backup_file(source(home), file)


def test_a_backup_contains_no_backups(home: Path) -> None:
    with pytest.raises(CannotStart, match=r"is inside the state folder\. Choose a place outside"):
        write_backup_file(source(home), home / "workspace" / "b.tgz")
    for file in (home / "b.tgz", home / "backups" / "b.tgz"):
        manifest = write_backup_file(source(home), file)
        assert not [each for each in manifest.members if each.name.endswith((".tgz", ".part"))]


# --- damaged and malicious archives ----------------------------------------------------------


def rewritten(file: Path, change: Callable[[tarfile.TarInfo, bytes], tuple[tarfile.TarInfo, bytes] | None],
              *more: tuple[tarfile.TarInfo, bytes]) -> Path:  # fmt: skip
    """Copy an archive with members changed, removed or added, and a matching manifest."""
    target = file.with_name(f"odd-{file.name}".removesuffix(".gz"))
    with tarfile.open(file) as old, tarfile.open(target, "w") as new:
        for info in old:
            content = old.extractfile(info) if info.isreg() else None
            changed = change(info, content.read() if content else b"")
            if changed and info.name == "holdfast-backup.json":
                for extra, text in more:
                    new.addfile(extra, io.BytesIO(text))
            if changed:
                changed[0].size = len(changed[1])
                new.addfile(changed[0], io.BytesIO(changed[1]))
    return target


def same(info: tarfile.TarInfo, content: bytes) -> tuple[tarfile.TarInfo, bytes]:
    return info, content


def odd(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.fixture
def file(home: Path, tmp_path: Path) -> Path:
    write_backup_file(source(home), tmp_path / "b.tar.gz")
    return tmp_path / "b.tar.gz"


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (odd("../../evil"), "is outside the state folder"),
        (odd("/tmp/evil"), "is outside the state folder"),  # noqa: S108 - never created
        (odd("state/workspace/x", tarfile.SYMTYPE, "/etc"), "points outside its folder"),
        (odd("state/workspace/x", tarfile.LNKTYPE, "database.db"), "is neither a file"),
        (odd("state/workspace/x", tarfile.CHRTYPE), "is neither a file"),
        (odd("state/workspace/x", tarfile.FIFOTYPE), "is neither a file"),
        (odd("state/workspace/web%3Aowner/folder/x"), "is inside a linked folder"),
        (odd("state/workspace/web%3Aowner/notes.txt"), "appears twice"),
        (odd("state/workspace/added"), "has changed since the backup was made"),
    ],
)
def test_a_malicious_archive_is_refused_before_anything_changes(
    file: Path, home: Path, tmp_path: Path, info: tarfile.TarInfo, expected: str
) -> None:
    before = tree(home)
    bad = rewritten(file, same, (info, b""))
    with pytest.raises(InvalidBackup, match=expected):
        verify(bad)
    with hold_state_folder(home), pytest.raises(InvalidBackup, match=expected):
        prepare_restore(bad, home, url(home), NOW, moved=False)
    after = tree(home)
    after.pop("lock")
    before.pop("lock")
    assert after == before
    assert not (tmp_path / "evil").exists()


def test_every_truncation_and_changed_byte_is_detected(file: Path, tmp_path: Path) -> None:
    whole = file.read_bytes()
    raw = gzip.decompress(whole)
    bad = tmp_path / "bad"
    for end in (0, 1, 600, len(whole) // 2, len(whole) - 200):
        bad.write_bytes(whole[:end])
        with pytest.raises(
            (InvalidBackup, CannotStart), match=r"bad cannot be|bad is not a Holdfast backup"
        ):
            verify(bad)
    noticed = 0
    for at in range(512, len(raw), len(raw) // 60):
        changed = bytearray(raw)
        changed[at] ^= 0x55
        bad.write_bytes(changed)
        try:
            found = verify(bad)
        except (InvalidBackup, CannotStart, ConfigError):
            noticed += 1
        else:
            assert found == verify(file)  # the changed byte is padding
    assert noticed > 40
    bad.write_bytes(b"a diary" * 1000)
    with pytest.raises(InvalidBackup, match="bad is not a Holdfast backup, or it is damaged"):
        verify(bad)


def edited(file: Path, **fields: object) -> Path:
    def change(info: tarfile.TarInfo, content: bytes) -> tuple[tarfile.TarInfo, bytes]:
        if info.name == "holdfast-backup.json":
            content = json.dumps(json.loads(content) | fields).encode()
        return info, content

    return rewritten(file, change)


def test_a_backup_of_a_newer_version_exits_with_78(file: Path, home: Path) -> None:
    newer: tuple[tuple[dict[str, object], str], ...] = (
        ({"schema": "9999", "version": "7.0"}, r"newer version of Holdfast \(7.0, schema 9"),
        ({"format": 2}, "was written by a newer version of Holdfast; install that"),
    )
    for fields, expected in newer:
        bad = edited(file, **fields)
        with hold_state_folder(home), pytest.raises(ConfigError, match=expected) as caught:
            prepare_restore(bad, home, url(home), NOW, moved=False)
        assert caught.value.exit_code == 78


def test_data_after_the_end_is_refused(file: Path) -> None:
    bad = rewritten(file, same)
    with tarfile.open(bad, "a") as archive:
        archive.addfile(odd("state/workspace/late"))
    with pytest.raises(InvalidBackup, match="it has data after its end"):
        verify(bad)


def test_an_unwritable_target_is_reported(file: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (there / "database.db").mkdir()
    with pytest.raises(CannotStart, match=r"b.tar.gz cannot be unpacked: File exists"):
        unpack(file, there)


def test_an_archive_without_a_manifest_is_refused(file: Path) -> None:
    with pytest.raises(InvalidBackup, match="its manifest cannot be read"):
        verify(edited(file, members=5))
    with pytest.raises(InvalidBackup, match="it is truncated"):
        verify(rewritten(file, lambda i, c: (i, c) if i.name != "holdfast-backup.json" else None))
    with pytest.raises(InvalidBackup, match="cannot be read"):
        decode_manifest(b"[]")
    gone = rewritten(
        edited(file, members=[]), lambda i, c: (i, c) if i.name == "holdfast-backup.json" else None
    )
    with pytest.raises(InvalidBackup, match="it contains no database"):
        verify(gone)


def test_a_damaged_database_in_the_archive_is_refused(file: Path, home: Path) -> None:
    junk = b"SQLite format 3\0" + b"x" * 5000
    members = [
        {**member, "size": len(junk), "sha256": hashlib.sha256(junk).hexdigest()}
        if member["name"] == "database.db"
        else member
        for member in msgspec.to_builtins(verify(file).members)
    ]
    bad = rewritten(
        edited(file, members=members), lambda i, c: (i, junk if i.name == "database.db" else c)
    )
    with (
        hold_state_folder(home),
        pytest.raises(InvalidBackup, match=r"odd-b.tar cannot be restored: .*database"),
    ):
        prepare_restore(bad, home, url(home), NOW, moved=False)


# --- applying a restore ----------------------------------------------------------------------


def test_the_previous_state_is_moved_aside(file: Path, home: Path) -> None:
    (home / "workspace" / "web%3Aowner" / "notes.txt").write_text("newer words")
    (home / "workspace" / "newcomer").mkdir()
    (home / "holdfast.db-wal").touch()
    before = tree(home)
    restored(file, home)
    aside = home / "before-restore-20270115T080000Z"
    assert (home / "workspace/web%3Aowner/notes.txt").read_text() == "words"
    assert not (home / "workspace/newcomer").exists()
    assert (home / "api_key").exists()  # the backup contains none
    kept = tree(aside)
    for name in ("workspace/web%3Aowner/notes.txt", "holdfast.db", "drafts/web%3Aa/d1.text"):
        assert kept[name] == before[name]
    assert not (home / ".restore").exists()
    restored(file, home)  # within the same second
    assert (home / "before-restore-20270115T080000Z-2" / "holdfast.db").exists()
    assert aside.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_files_restored_by_root_belong_to_the_owner_of_the_state(file: Path, home: Path) -> None:
    nobody = 65_534
    for each in (home, *home.rglob("*")):
        os.chown(each, nobody, nobody, follow_symlinks=False)
    restored(file, home)
    others = {each for each in home.rglob("*") if each.lstat().st_uid != nobody}
    assert others == set()
    assert (home / "workspace/web%3Aowner/notes.txt").read_text() == "words"


def test_a_database_outside_the_state_folder_is_restored_there(
    file: Path, home: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere" / "mine.db"
    where = f"sqlite:///{elsewhere}"
    for _ in range(2):
        with hold_state_folder(home):
            apply_restore(prepare_restore(file, home, where, NOW, moved=False))
        opening.check_current(parse_url(where))
    aside = elsewhere.with_name("mine.db.before-restore-20270115T080000Z-2")
    assert aside.exists()
    assert (home / "holdfast.db").exists()


def test_a_prepared_restore_can_be_discarded(file: Path, home: Path) -> None:
    before = tree(home)
    with hold_state_folder(home):
        before["lock"] = tree(home)["lock"]
        ready = prepare_restore(file, home, url(home), NOW, moved=False)
        assert ready.replaces_state
        discard_prepared(home)
        assert tree(home) == before


def test_a_backup_of_an_older_version_is_upgraded(tmp_path: Path) -> None:
    home = tmp_path / "home"
    opening.create_database(parse_url(url(home)), "0001")
    file = tmp_path / "b.tar"
    assert write_backup_file(source(home), file).schema == "0001"
    restored(file, tmp_path / "other")
    opening.check_current(parse_url(url(tmp_path / "other")))


# --- kill -9 ---------------------------------------------------------------------------------

KILLED = """
import os, shutil, signal, sys
from pathlib import Path
import sqlalchemy.dialects.sqlite
from gateway.operate.backup.restoring import prepare_restore, apply_restore
from gateway.operate.backup import writing
from gateway.operate.backup.writing import BackupSource, write_backup_file
from gateway.process.lock import hold_state_folder
import alembic.command, zlib

what, folder, home = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
url = f"sqlite:///{home / 'holdfast.db'}"
events = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "open", "os.truncate"}
step = int(sys.argv[4])
for number in range(1, 2000, step):
    copy = folder / str(number)
    shutil.copytree(home, copy / "home", symlinks=True)
    child = os.fork()
    if child == 0:
        left = number
        def hook(event, args):
            global left
            if event in events:
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
        here = copy / "home"
        store = f"sqlite:///{here / 'holdfast.db'}"
        if what == "backup":
            sys.addaudithook(hook)
            write_backup_file(BackupSource(home=here, store_url=store, version="1", made_at="now"), copy / "b.tar")
        else:
            with hold_state_folder(here):
                ready = prepare_restore(folder / "b.tar", here, store, 1_800_000_000_000, moved=True)
                sys.addaudithook(hook)
                apply_restore(ready)
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        break
print(number)
"""


def killed(what: str, folder: Path, home: Path, step: int) -> list[Path]:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, what, str(folder), str(home), str(step)],
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    last = int(done.stdout)
    assert last > 10 * step
    return [folder / str(number) for number in range(1, last + 1, step)]


@pytest.mark.process
def test_a_killed_backup_leaves_no_partial_file(home: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    runs = killed("backup", tmp_path / "runs", home, 3)
    names = set()
    for run in runs:
        file = run / "b.tar"
        names |= {each.name for each in run.iterdir()}
        if file.exists():
            verify(file)
        write_backup_file(source(home), file, force=True)
        assert {each.name for each in run.iterdir()} == {"b.tar", "home"}
    assert {".b.tar.part", ".b.tar.work"} <= names  # some runs were killed while writing


@pytest.mark.process
def test_a_killed_restore_leaves_the_old_or_the_new_state(home: Path, tmp_path: Path) -> None:
    runs_in = tmp_path / "runs"
    runs_in.mkdir()
    write_backup_file(source(home), runs_in / "b.tar")
    new = {"workspace/web%3Aowner/notes.txt": "words", "drafts/web%3Aa/d1.text": "half a file"}
    old = dict.fromkeys(new, "changed since")
    for name, text in old.items():
        (home / name).write_text(text)
    (home / "holdfast.db-journal").touch()  # marks the old database
    seen = set()
    for run in killed("restore", runs_in, home, 1):
        here = run / "home"
        halves = {name: (here / name).read_text() for name in new if (here / name).exists()}
        with hold_state_folder(here):  # as the next start does
            pass
        found = {name: (here / name).read_text() for name in new}
        is_new = not (here / "holdfast.db-journal").exists()
        assert found == (new if is_new else old)
        seen.add((is_new, halves == found))
        opening.prepare(parse_url(url(here)))
        assert not (here / ".restore").exists()
        if is_new:
            aside = here / "before-restore-20270115T080000Z"
            assert {name: (aside / name).read_text() for name in old} == old
    assert {(False, True), (True, True), (True, False)} <= seen  # including runs killed halfway


def test_a_restore_that_cannot_finish_is_reported(home: Path) -> None:
    (home / ".restore").mkdir()
    (home / ".restore" / "plan.json").write_text(
        json.dumps([{"source": str(home / "drafts"), "target": "/proc/nowhere/drafts"}])
    )
    with pytest.raises(CannotStart, match="An interrupted restore cannot be finished: "):
        finish_moves(home, lambda _: True)
    assert (home / ".restore" / "plan.json").exists()


def test_unpacking_writes_nowhere_else(file: Path, tmp_path: Path) -> None:
    unpack(file, tmp_path / "out")
    assert {each.name for each in (tmp_path / "out").iterdir()} == {"database.db", "state"}


def test_the_record_of_starts_belongs_to_the_installation(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "starts.json").write_text("of the gateway that was running")
    manifest = write_backup_file(source(home), tmp_path / "new.tar")
    assert not [each for each in manifest.members if "starts" in each.name]
    monkeypatch.setattr(writing, "is_process_record", lambda _: False)  # as older versions wrote it
    write_backup_file(source(home), tmp_path / "old.tar")
    other = tmp_path / "other"
    other.mkdir()
    (other / "starts.json").write_text("stopped in order")
    restored(tmp_path / "old.tar", other)
    assert (other / "starts.json").read_text() == "stopped in order"
    empty = tmp_path / "empty"
    empty.mkdir()
    restored(tmp_path / "old.tar", empty)
    assert not (empty / "starts.json").exists()
