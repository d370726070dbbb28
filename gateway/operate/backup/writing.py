"""Makes a backup: everything into one file, which has its name only when it is whole and checked.

The database goes first: what it names lies in the folders when they are read. Files may change
while they are read: of each as much is taken as it held when it was opened.
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
from gateway.operate.backup.contents import DATABASE, MANIFEST, STATE, is_secret, leads_out, stays
from gateway.operate.backup.manifest import Manifest, Member, write_manifest
from gateway.operate.backup.reading import verify
from sessions.store import copy
from sessions.store.engine import is_of_database, place

_PIECE = 1 << 20
_LEVEL = 3  # most of a workspace is text; higher ones take several times as long for little


class Source(msgspec.Struct, frozen=True):
    """What is to be backed up."""

    home: Path
    store: str  # its URL
    version: str
    made_at: str
    secrets: bool = False


def write_file(source: Source, target: Path, *, force: bool = False) -> Manifest:
    """Make a backup under a name that nothing has, or, by force, in place of what has it."""
    _check_place(target.resolve(), source.home.resolve())
    if target.exists() and not force:
        msg = f"{target} is there already; give another name, or --force to replace it."
        raise CannotStart(msg)
    try:
        with _unfinished(target) as (partial, stream, work):
            manifest = write(source, stream, work, packed=target.suffix != ".tar")
            stream.flush()
            os.fsync(stream.fileno())
            verify(partial)
            if force:
                partial.replace(target)
            else:
                os.link(partial, target)  # unlike a rename it replaces nothing
                partial.unlink()
            _settle(target.absolute().parent)
    except FileExistsError:
        msg = f"{target} is there already; give another name, or --force to replace it."
        raise CannotStart(msg) from None
    except OSError as error:
        msg = f"The backup cannot be written to {target}: {error.strerror or error}."
        raise CannotStart(msg) from error
    return manifest


def _check_place(target: Path, home: Path) -> None:
    """A backup must not take itself in."""
    if target.is_relative_to(home) and target.parent not in {home, home / "backups"}:
        msg = f"{target} lies in what is backed up; give a place outside of {home}."
        raise CannotStart(msg)


def write(source: Source, stream: BinaryIO, work: Path, *, packed: bool = True) -> Manifest:
    """Write a backup into a stream; `work` is a folder with room for the database."""
    where = place(source.store)
    database = work / DATABASE
    os.close(os.open(database, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    schema = copy.snapshot(where, database)
    copy.check_sound(database)
    outer = gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=_LEVEL) if packed else None
    archive = _Archive(outer or stream)
    with database.open("rb") as file:
        archive.file(DATABASE, file, os.fstat(file.fileno()))
    left_out = list(_add_state(archive, source))
    manifest = Manifest(
        version=source.version,
        schema=schema,
        engine="sqlite" if where.file else "postgresql",
        made_at=source.made_at,
        home=str(source.home),
        secrets=source.secrets,
        members=tuple(archive.members),
        left_out=tuple(left_out),
    )
    text = write_manifest(manifest)
    archive.file(MANIFEST, io.BytesIO(text), None, len(text))
    archive.close()
    if outer:
        outer.close()
    return manifest


@contextlib.contextmanager
def _unfinished(target: Path) -> Iterator[tuple[Path, BinaryIO, Path]]:
    """Give a file and a folder beside the target; what a dead process left there is used again."""
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


def _settle(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- what goes into it ---------------------------------------------------------------------------


def _add_state(archive: "_Archive", source: Source) -> Iterator[str]:
    """Add what lies in the state folder; gives what is left out, and why."""
    home = source.home
    database = place(source.store).file
    for entry in sorted(os.scandir(home), key=lambda entry: entry.name) if home.is_dir() else ():
        if stays(entry.name) or is_of_database(Path(entry.path), database):
            continue
        if is_secret(entry.name) and not source.secrets:
            yield f"{entry.name}: a secret (--secrets takes it in)"
        elif entry.is_dir(follow_symlinks=False):
            yield from _add_folder(archive, home, entry.name)
        else:
            with _folder(home) as descriptor:
                yield from _add(archive, entry.name, entry.name, descriptor)


@contextlib.contextmanager
def _folder(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _add_folder(archive: "_Archive", home: Path, name: str) -> Iterator[str]:
    troubles: list[OSError] = []
    # By descriptors: an agent may put a link in the place of a folder at any moment.
    for root, folders, files, descriptor in os.fwalk(home / name, onerror=troubles.append):
        inside = os.path.relpath(root, home)
        folders.sort()
        archive.folder(STATE + inside, os.fstat(descriptor))
        links = [each for each in folders if _is_link(each, descriptor)]
        for each in sorted((*files, *links)):
            yield from _add(archive, f"{inside}/{each}", each, descriptor)
    for trouble in troubles:
        if not isinstance(trouble, FileNotFoundError):
            yield f"{os.path.relpath(str(trouble.filename), home)}: {trouble.strerror}"


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _add(archive: "_Archive", path: str, name: str, folder: int) -> Iterator[str]:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            target = os.readlink(name, dir_fd=folder)
            if leads_out(path, target):
                yield f"{path}: a link that leads out of its folder"
            else:
                archive.link(STATE + path, target, found)
        elif stat.S_ISREG(found.st_mode):
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with open(os.open(name, flags, dir_fd=folder), "rb") as file:  # noqa: PTH123 - a descriptor
                archive.file(STATE + path, file, os.fstat(file.fileno()))
    except FileNotFoundError:
        return  # somebody removed it: it is no part of this moment
    except OSError as error:
        if archive.broken:
            raise
        yield f"{path}: {error.strerror}"


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes:
        """Read on."""
        ...


class _Measured:
    """Reads exactly so many bytes of a file, whatever becomes of it meanwhile."""

    def __init__(self, file: _Readable, size: int) -> None:
        self._file = file
        self._left = size
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        piece = b""
        while len(piece) < wanted and (more := self._file.read(wanted - len(piece))):
            piece += more
        piece = piece.ljust(wanted, b"\0")  # it was cut while it was read
        self._left -= wanted
        self.digest.update(piece)
        return piece


class _Archive:
    """A tar archive that is written from its beginning to its end, and notes what goes in."""

    def __init__(self, stream: BinaryIO | gzip.GzipFile) -> None:
        self._tar = tarfile.open(  # noqa: SIM115 - closed by `close`
            fileobj=stream,
            mode="w|",
            format=tarfile.PAX_FORMAT,
            encoding="utf-8",
            errors="surrogateescape",
            bufsize=_PIECE,
        )
        self.members: list[Member] = []
        self.broken = False
        """Whether an error came from the archive itself, not from what was read."""

    def file(
        self, name: str, source: _Readable, state: os.stat_result | None, size: int = 0
    ) -> None:
        """Add a file as large as it is now."""
        size = state.st_size if state else size
        measured = _Measured(source, size)
        info = _info(name, state, tarfile.REGTYPE)
        info.size = size
        self._add(info, measured)
        self._note(name, "file", size, measured.digest.hexdigest())

    def folder(self, name: str, state: os.stat_result) -> None:
        """Add a folder."""
        self._add(_info(name, state, tarfile.DIRTYPE))
        self._note(name, "folder", 0, hashlib.sha256().hexdigest())

    def link(self, name: str, target: str, state: os.stat_result) -> None:
        """Add a link as it is."""
        info = _info(name, state, tarfile.SYMTYPE)
        info.linkname = target
        self._add(info)
        there = os.fsencode(target)
        self._note(name, "link", len(there), hashlib.sha256(there).hexdigest())

    def close(self) -> None:
        """Write the end."""
        self._tar.close()

    def _add(self, info: tarfile.TarInfo, source: _Measured | None = None) -> None:
        self.broken = True  # until it is known better
        self._tar.addfile(info, source)
        self.broken = False

    def _note(self, name: str, kind: str, size: int, digest: str) -> None:
        self.members.append(Member(name, kind, size, digest))


def _info(name: str, state: os.stat_result | None, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.mode = stat.S_IMODE(state.st_mode) & 0o777 if state else 0o600
    info.mtime = int(state.st_mtime) if state else 0
    return info
