"""What a backup says of itself; it is the last thing in the archive, so a cut one has none."""

import json

import msgspec

from gateway.errors import ConfigError, HoldfastError

FORMAT_VERSION = 1


class InvalidBackup(HoldfastError):
    """This is no backup of Holdfast, or a damaged one."""


class BackupMember(msgspec.Struct, frozen=True):
    """Something in the archive; of a link it is its target that has size and digest."""

    name: str
    kind: str  # "file", "folder", "link"
    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """All that must be known before a backup is restored."""

    version: str  # of the program
    schema: str  # the step of the database
    engine: str  # where its rows came from: "sqlite", "postgresql"
    made_at: str  # RFC 3339
    home: str  # the state folder; some rows name files in it
    secrets: bool
    members: tuple[BackupMember, ...]
    left_out: tuple[str, ...] = ()
    format: int = FORMAT_VERSION


def encode_manifest(manifest: Manifest) -> bytes:
    """Write it down; a file's name need not be UTF-8, so all signs are escaped."""
    return json.dumps(msgspec.to_builtins(manifest), indent=1).encode()


def decode_manifest(text: bytes) -> Manifest:
    """Read it; raises `InvalidBackup`, or `ConfigError` when a newer version wrote it."""
    try:
        found = json.loads(text)
        newer = found["format"] > FORMAT_VERSION
        if not newer:
            return msgspec.convert(found, Manifest)
    except (ValueError, KeyError, TypeError) as error:
        msg = "what it says of itself cannot be read"
        raise InvalidBackup(msg) from error
    msg = "was written by a newer version of Holdfast; install that version"
    raise ConfigError(msg)
