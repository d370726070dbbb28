"""Verifies a backup, and unpacks the archive into an empty folder.

The archive is untrusted: every name, link and digest is checked first, and each file is created
exclusively, so no member overwrites another.
"""

import gzip
import hashlib
import io
import os
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from gateway.errors import CannotStart, ConfigError
from gateway.operate.backup.contents import (
    DATABASE_NAME,
    MANIFEST_NAME,
    STATE_PREFIX,
    MemberKind,
    rejection_reason,
)
from gateway.operate.backup.manifest import BackupMember, InvalidBackup, Manifest, decode_manifest
from gateway.operate.progress import Progress

_CHUNK_BYTES = 1 << 20
_MAX_MANIFEST_BYTES = 1 << 28
_ARCHIVE_ERRORS = (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error)


def verify(file: Path, progress: Progress | None = None) -> Manifest:
    """Read and check a whole backup; raise `InvalidBackup` with the first problem."""
    return _read(file, None, "Verifying the backup", progress or Progress())


def unpack(file: Path, folder: Path, progress: Progress | None = None) -> Manifest:
    """Unpack a backup into a private folder, with the same checks and errors as `verify`."""
    return _read(file, folder, "Unpacking the backup", progress or Progress())


class _CountingReader(io.BufferedReader):
    """A file whose reading is progress."""

    def __init__(self, file: Path, progress: Progress) -> None:
        super().__init__(io.FileIO(file))
        self._progress = progress

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        self._progress.advance(len(found))
        return found


def _read(file: Path, folder: Path | None, label: str, progress: Progress) -> Manifest:
    try:
        with (
            _CountingReader(file, progress) as source,
            tarfile.open(
                fileobj=source, mode="r|*", encoding="utf-8", errors="surrogateescape"
            ) as archive,
        ):
            progress.begin(label, os.fstat(source.fileno()).st_size)
            return _check_members(_ArchiveReader(archive, folder))
    except _ARCHIVE_ERRORS as error:
        msg = f"{file} is not a Holdfast backup, or it is damaged: {error}."
        raise InvalidBackup(msg) from error
    except InvalidBackup as error:
        msg = f"{file} cannot be restored: {error}."
        raise InvalidBackup(msg) from error
    except ConfigError as error:
        msg = f"{file} {error}."
        raise ConfigError(msg) from error
    except OSError as error:
        msg = f"{file} cannot be unpacked: {error.strerror or error}."
        raise CannotStart(msg) from error


def _check_members(reader: "_ArchiveReader") -> Manifest:
    found = {member.name: member for member in reader.read_members()}
    if reader.manifest is None:
        msg = "it is truncated"
        raise InvalidBackup(msg)
    manifest = decode_manifest(reader.manifest)
    expected = {member.name: member for member in manifest.members}
    for name in (*expected, *found):
        if expected.get(name) != found.get(name):
            msg = f"{_printable(name)} has changed since the backup was made"
            raise InvalidBackup(msg)
    if DATABASE_NAME not in found:
        msg = "it contains no database"
        raise InvalidBackup(msg)
    return manifest


class _ArchiveReader:
    """Single pass over an archive."""

    def __init__(self, archive: tarfile.TarFile, folder: Path | None) -> None:
        self._archive = archive
        self._folder = folder
        self._links: set[str] = set()
        self._seen_names: set[str] = set()
        self.manifest: bytes | None = None

    def read_members(self) -> Iterator[BackupMember]:
        """Yield each member after the checks; with a folder, also unpack the member."""
        for info in self._archive:
            kind = _member_kind(info)
            if self.manifest is not None:
                msg = "it has data after its end"
                raise InvalidBackup(msg)
            reason = rejection_reason(info.name, kind, info.linkname, self._links)
            if not reason and info.name in self._seen_names:
                reason = "appears twice"
            if reason:
                msg = f"{_printable(info.name)} {reason}"
                raise InvalidBackup(msg)
            self._seen_names.add(info.name)
            if info.name == MANIFEST_NAME:
                self.manifest = self._read_manifest(info)
            else:
                yield self._unpack_member(info, kind)

    def _read_manifest(self, info: tarfile.TarInfo) -> bytes:
        source = self._archive.extractfile(info)
        if source is None or info.size > _MAX_MANIFEST_BYTES:
            msg = "its manifest cannot be read"
            raise InvalidBackup(msg)
        return source.read()

    def _unpack_member(self, info: tarfile.TarInfo, kind: MemberKind) -> BackupMember:
        target = None if self._folder is None else self._folder / info.name
        digest = hashlib.sha256()
        size = 0
        if target:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if kind is MemberKind.LINK:
            self._links.add(info.name.removeprefix(STATE_PREFIX))
            link_target = os.fsencode(info.linkname)
            digest.update(link_target)
            size = len(link_target)
            if target:
                target.symlink_to(info.linkname)
        elif kind is MemberKind.FOLDER:
            if target:
                target.mkdir(mode=0o700, exist_ok=True)
                target.chmod(info.mode & 0o777 | 0o700)
        else:
            size = self._unpack_file(info, target, digest)
        return BackupMember(info.name, kind, size, digest.hexdigest())

    def _unpack_file(
        self, info: tarfile.TarInfo, target: Path | None, digest: "hashlib._Hash"
    ) -> int:
        source = self._archive.extractfile(info)
        assert source is not None  # noqa: S101 - regular file
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(target, flags, 0o600) if target else None
        try:
            size = 0
            while piece := source.read(_CHUNK_BYTES):
                size += len(piece)
                digest.update(piece)
                if descriptor is not None:
                    _write_all(descriptor, piece)
            if descriptor is not None:
                os.fchmod(descriptor, info.mode & 0o777 | 0o600)
                os.utime(descriptor, (info.mtime, info.mtime))
                os.fsync(descriptor)
        finally:
            if descriptor is not None:
                os.close(descriptor)
        return size


def _write_all(descriptor: int, piece: bytes) -> None:
    rest = memoryview(piece)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _member_kind(info: tarfile.TarInfo) -> MemberKind:
    if info.isreg() and not info.issparse():
        return MemberKind.FILE
    if info.isdir():
        return MemberKind.FOLDER
    return MemberKind.LINK if info.issym() else MemberKind.OTHER


def _printable(name: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in name)[:200]
