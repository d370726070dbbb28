"""Search for secrets in files that are not text, such as archives, office documents and programs.

Such a file cannot be masked without damage, so a file with a secret is not sent. Looked at are the
readable characters of the file, and the members of ZIP archives, which office documents are as
well, and of gzip files. Other compressed, encrypted or nested content is not looked at.
"""

import gzip
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Protocol

_CHUNK_BYTES = 1 << 20
_OVERLAP_BYTES = 4_096  # a secret at the edge of a chunk is found in the next one
_MAX_UNPACKED_BYTES = 100_000_000  # of one file
_READABLE = re.compile(rb"[\x20-\x7e\r\n\t]{6,}")
_TAG = re.compile(rb"<[^<>]{0,2000}>")
_MARKUP = (".xml", ".rels", ".html", ".xhtml", ".svg")
_GZIP_SIGNATURE = b"\x1f\x8b"
_UNREADABLE = (
    OSError,
    EOFError,
    RuntimeError,  # an encrypted member
    NotImplementedError,  # an unknown compression
    zipfile.BadZipFile,
    zlib.error,
)


class _Content(Protocol):
    def read(self, size: int, /) -> bytes: ...


def find_secret(path: Path, redact: Callable[[str], str]) -> str | None:
    """Return the name of the file, or of the archive's member, with a secret; None without one."""
    with path.open("rb") as file:
        if _has_secret(file, redact, _MAX_UNPACKED_BYTES):
            return path.name
        file.seek(0)
        if file.read(len(_GZIP_SIGNATURE)) == _GZIP_SIGNATURE:
            file.seek(0)
            with gzip.GzipFile(fileobj=file) as content:
                return path.name if _member_has_secret(content, path.name, redact) else None
        if zipfile.is_zipfile(file):
            return _find_in_archive(file, redact)
    return None


def _find_in_archive(file: IO[bytes], redact: Callable[[str], str]) -> str | None:
    room = _MAX_UNPACKED_BYTES
    try:
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                if redact(member.filename) != member.filename:
                    return redact(member.filename)
                room -= member.file_size
                if room < 0:
                    return None
                try:
                    with archive.open(member) as content:
                        if _member_has_secret(content, member.filename, redact):
                            return member.filename
                except _UNREADABLE:
                    continue
    except _UNREADABLE:
        pass
    return None


def _member_has_secret(content: _Content, name: str, redact: Callable[[str], str]) -> bool:
    is_markup = name.lower().endswith(_MARKUP)
    try:
        return _has_secret(content, redact, _MAX_UNPACKED_BYTES, is_markup=is_markup)
    except _UNREADABLE:
        return False


def _has_secret(
    content: _Content, redact: Callable[[str], str], room: int, *, is_markup: bool = False
) -> bool:
    for chunk in _chunks(content, room):
        # UTF-16 has a NUL beside each ASCII character.
        plain = chunk.replace(b"\0", b"")
        forms = (plain, _TAG.sub(b"", plain)) if is_markup else (plain,)
        for form in forms:
            text = "\0".join(run.decode() for run in _READABLE.findall(form))
            if redact(text) != text:
                return True
    return False


def _chunks(content: _Content, room: int) -> Iterator[bytes]:
    end = b""
    while room > 0 and (piece := content.read(min(_CHUNK_BYTES, room))):
        room -= len(piece)
        yield end + piece
        end = piece[-_OVERLAP_BYTES:]
