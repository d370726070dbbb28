"""Writes a backup: one archive that gets the final name only after the verification.

The database is copied first, so the folders read afterwards contain every file named in a row.
Files may change while they are read; each is stored with the size at the time of opening.
"""

import contextlib
import fcntl
import gzip
import hashlib
import io
import os
import shutil
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from gateway.errors import CannotStart
from gateway.operate.backup.contents import (
    DATABASE_NAME,
    MANIFEST_NAME,
    STATE_PREFIX,
    MemberKind,
    is_escaping_link,
    is_excluded,
    is_process_record,
    is_secret,
)
from gateway.operate.backup.manifest import BackupMember, Manifest, encode_manifest
from gateway.operate.backup.reading import verify
from gateway.operate.progress import Progress
from sessions.store import copy
from sessions.store.engine import is_database_file, parse_url

_CHUNK_BYTES = 1 << 20
_COMPRESSION_LEVEL = 3
"""Higher levels take several times as long and save little, because workspaces are mostly text."""


class BackupSource(msgspec.Struct, frozen=True, kw_only=True):
    """The state to back up."""

    home: Path
    store_url: str
    version: str
    made_at: str
    include_secrets: bool = False


def write_backup_file(
    source: BackupSource, target: Path, *, force: bool = False, progress: Progress | None = None
) -> Manifest:
    """Write and verify a backup file; replace an existing file only with `force`."""
    _check_target(target.resolve(), source.home.resolve())
    if target.exists() and not force:
        msg = f"{target} already exists. Choose another name, or use --force to overwrite it."
        raise CannotStart(msg)
    try:
        with _partial_file(target) as (partial, stream, work):
            compressed = target.suffix != ".tar"
            manifest = write_backup(source, stream, work, compressed=compressed, progress=progress)
            stream.flush()
            os.fsync(stream.fileno())
            verify(partial, progress)
            if force:
                partial.replace(target)
            else:
                os.link(partial, target)  # unlike a rename, never overwrites a file
                partial.unlink()
            _sync_folder(target.absolute().parent)
    except FileExistsError:
        msg = f"{target} already exists. Choose another name, or use --force to overwrite it."
        raise CannotStart(msg) from None
    except OSError as error:
        msg = f"The backup cannot be written to {target}: {error.strerror or error}."
        raise CannotStart(msg) from error
    return manifest


def _check_target(target: Path, home: Path) -> None:
    """Raise `CannotStart` if the backup would contain itself, or replace a device or folder."""
    if target.exists() and not target.is_file():
        msg = f"{target} is not a regular file. Choose another name, or - for the standard output."
        raise CannotStart(msg)
    if target.is_relative_to(home) and target.parent not in {home, home / "backups"}:
        msg = f"{target} is inside the state folder. Choose a place outside {home}."
        raise CannotStart(msg)


def write_backup(
    source: BackupSource,
    stream: BinaryIO,
    work_folder: Path,
    *,
    compressed: bool = True,
    progress: Progress | None = None,
) -> Manifest:
    """Write a backup to a stream; `work_folder` needs space for a copy of the database."""
    progress = progress or Progress()
    location = parse_url(source.store_url)
    database = work_folder / DATABASE_NAME
    os.close(os.open(database, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    original = _file_bytes(location.file) if location.file else 0
    progress.begin("Copying the database", original, lambda: _file_bytes(database))
    schema = copy.copy_database(location, database)
    progress.begin("Checking the copy", _file_bytes(database))
    copy.check_integrity(database)
    progress.begin("Writing the backup", _file_bytes(database) + _state_bytes(source))
    outer = (
        gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=_COMPRESSION_LEVEL)
        if compressed
        else None
    )
    archive = _ArchiveWriter(outer or stream, progress)
    with database.open("rb") as file:
        archive.add_file(DATABASE_NAME, file, os.fstat(file.fileno()))
    left_out = list(_add_state(archive, source))
    manifest = Manifest(
        version=source.version,
        schema=schema,
        engine="sqlite" if location.file else "postgresql",
        made_at=source.made_at,
        home=str(source.home),
        secrets=source.include_secrets,
        members=tuple(archive.members),
        left_out=tuple(left_out),
    )
    text = encode_manifest(manifest)
    archive.add_file(MANIFEST_NAME, io.BytesIO(text), None, len(text))
    archive.close()
    if outer:
        outer.close()
    return manifest


def _file_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _state_bytes(source: BackupSource) -> int:
    """Return about how many bytes `_add_state` reads: files come and go meanwhile."""
    database = parse_url(source.store_url).file
    return sum(
        _file_bytes(Path(folder, name))
        for entry in (os.scandir(source.home) if source.home.is_dir() else ())
        if _is_included(entry, database)
        for folder, names in _files_below(entry)
        for name in names
    )


def _is_included(entry: os.DirEntry[str], database: Path | None) -> bool:
    return not (
        is_excluded(entry.name)
        or is_process_record(entry.name)
        or is_database_file(Path(entry.path), database)
    )


def _files_below(entry: os.DirEntry[str]) -> Iterator[tuple[str, list[str]]]:
    if not entry.is_dir(follow_symlinks=False):
        yield os.path.dirname(entry.path), [entry.name]  # noqa: PTH120 - as os.walk yields it
        return
    for folder, _, names in os.walk(entry.path):
        yield folder, names


@contextlib.contextmanager
def _partial_file(target: Path) -> Iterator[tuple[Path, BinaryIO, Path]]:
    """Yield a partial file and a work folder beside the target; leftovers are reused."""
    partial = target.with_name(f".{target.name}.part")
    work = target.with_name(f".{target.name}.work")
    descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "r+b") as stream:  # noqa: PTH123 - a descriptor
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            msg = f"Another backup is being written to {target}."
            raise CannotStart(msg) from error
        try:
            stream.truncate()
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(mode=0o700)
            yield partial, stream, work
        finally:
            shutil.rmtree(work, ignore_errors=True)
            partial.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- the members ---------------------------------------------------------------------------------


def _add_state(archive: "_ArchiveWriter", source: BackupSource) -> Iterator[str]:
    """Add the state folder; yield each entry that is left out, with the reason."""
    home = source.home
    database = parse_url(source.store_url).file
    for entry in sorted(os.scandir(home), key=lambda entry: entry.name) if home.is_dir() else ():
        if not _is_included(entry, database):
            continue
        if is_secret(entry.name) and not source.include_secrets:
            yield f"{entry.name}: a secret (--secrets includes it)"
        elif entry.is_dir(follow_symlinks=False):
            yield from _add_folder(archive, home, entry.name)
        else:
            with _open_folder(home) as descriptor:
                yield from _add_entry(archive, entry.name, entry.name, descriptor)


@contextlib.contextmanager
def _open_folder(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _add_folder(archive: "_ArchiveWriter", home: Path, name: str) -> Iterator[str]:
    errors: list[OSError] = []
    # Use descriptors, because an agent may replace a folder by a link at any moment.
    for root, folders, files, descriptor in os.fwalk(home / name, onerror=errors.append):
        inside = os.path.relpath(root, home)
        folders.sort()
        archive.add_folder(STATE_PREFIX + inside, os.fstat(descriptor))
        links = [folder for folder in folders if _is_link(folder, descriptor)]
        for file in sorted((*files, *links)):
            yield from _add_entry(archive, f"{inside}/{file}", file, descriptor)
    for error in errors:
        if not isinstance(error, FileNotFoundError):
            yield f"{os.path.relpath(str(error.filename), home)}: {error.strerror}"


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _add_entry(archive: "_ArchiveWriter", path: str, name: str, folder: int) -> Iterator[str]:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            target = os.readlink(name, dir_fd=folder)
            if is_escaping_link(path, target):
                yield f"{path}: a link that points outside its folder"
            else:
                archive.add_link(STATE_PREFIX + path, target, found)
        elif stat.S_ISREG(found.st_mode):
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with open(os.open(name, flags, dir_fd=folder), "rb") as file:  # noqa: PTH123 - a descriptor
                archive.add_file(STATE_PREFIX + path, file, os.fstat(file.fileno()))
    except FileNotFoundError:
        return  # removed meanwhile
    except OSError as error:
        if archive.write_failed:
            raise
        yield f"{path}: {error.strerror}"


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes:
        """Read up to `size` bytes."""
        ...


class _SizedReader:
    """Reads exactly the given number of bytes, even if the file shrinks or grows meanwhile."""

    def __init__(self, file: _Readable, size: int, progress: Progress) -> None:
        self._file = file
        self._progress = progress
        self._remaining_bytes = size
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        wanted = self._remaining_bytes if size < 0 else min(size, self._remaining_bytes)
        piece = b""
        while len(piece) < wanted and (more := self._file.read(wanted - len(piece))):
            piece += more
        piece = piece.ljust(wanted, b"\0")  # the file was truncated meanwhile
        self._remaining_bytes -= wanted
        self._progress.advance(wanted)
        self.digest.update(piece)
        return piece


class _ArchiveWriter:
    """A sequentially written tar archive with a list of its members."""

    def __init__(self, stream: BinaryIO | gzip.GzipFile, progress: Progress) -> None:
        self._progress = progress
        self._tar = tarfile.open(  # noqa: SIM115 - closed by `close`
            fileobj=stream,
            mode="w|",
            format=tarfile.PAX_FORMAT,
            encoding="utf-8",
            errors="surrogateescape",
            bufsize=_CHUNK_BYTES,
        )
        self.members: list[BackupMember] = []
        self.write_failed = False
        """True if an error came from writing the archive, not from reading a source file."""

    def add_file(
        self, name: str, source: _Readable, state: os.stat_result | None, size: int = 0
    ) -> None:
        """Add a file with its current size."""
        size = state.st_size if state else size
        measured = _SizedReader(source, size, self._progress)
        info = _tar_info(name, state, tarfile.REGTYPE)
        info.size = size
        self._add_member(info, measured)
        self._record_member(name, MemberKind.FILE, size, measured.digest.hexdigest())

    def add_folder(self, name: str, state: os.stat_result) -> None:
        """Add a folder."""
        self._add_member(_tar_info(name, state, tarfile.DIRTYPE))
        self._record_member(name, MemberKind.FOLDER, 0, hashlib.sha256().hexdigest())

    def add_link(self, name: str, target: str, state: os.stat_result) -> None:
        """Add a symbolic link, not the target."""
        info = _tar_info(name, state, tarfile.SYMTYPE)
        info.linkname = target
        self._add_member(info)
        link_target = os.fsencode(target)
        self._record_member(
            name, MemberKind.LINK, len(link_target), hashlib.sha256(link_target).hexdigest()
        )

    def close(self) -> None:
        """Write the end of the archive."""
        self._tar.close()

    def _add_member(self, info: tarfile.TarInfo, source: _SizedReader | None = None) -> None:
        self.write_failed = True  # until the write has succeeded
        self._tar.addfile(info, source)
        self.write_failed = False

    def _record_member(self, name: str, kind: MemberKind, size: int, digest: str) -> None:
        self.members.append(BackupMember(name, kind, size, digest))


def _tar_info(name: str, state: os.stat_result | None, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.mode = stat.S_IMODE(state.st_mode) & 0o777 if state else 0o600
    info.mtime = int(state.st_mtime) if state else 0
    return info
