"""The manifest of a backup: the archive's last member, so a truncated archive has none."""

import json

import msgspec

from gateway.errors import ConfigError, HoldfastError
from gateway.operate.backup.contents import MemberKind

_FORMAT_VERSION = 1


class InvalidBackup(HoldfastError):
    """The file is damaged, or not a Holdfast backup."""


class BackupMember(msgspec.Struct, frozen=True):
    """A member of the archive; size and digest of a link are those of its target path."""

    name: str
    kind: MemberKind
    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything needed to check a backup before a restore."""

    version: str  # of Holdfast
    schema: str  # database revision
    engine: str  # source of the rows: "sqlite" or "postgresql"
    made_at: str  # RFC 3339
    home: str  # the state folder; some rows contain paths below it
    secrets: bool
    members: tuple[BackupMember, ...]
    left_out: tuple[str, ...] = ()
    format: int = _FORMAT_VERSION


def encode_manifest(manifest: Manifest) -> bytes:
    """Encode a manifest as ASCII JSON, because file names need not be valid UTF-8."""
    return json.dumps(msgspec.to_builtins(manifest), indent=1).encode()


def decode_manifest(text: bytes) -> Manifest:
    """Decode a manifest; raise `InvalidBackup`, or `ConfigError` if a newer version wrote it."""
    try:
        found = json.loads(text)
        newer = found["format"] > _FORMAT_VERSION
        if not newer:
            return msgspec.convert(found, Manifest)
    except (ValueError, KeyError, TypeError) as error:
        msg = "its manifest cannot be read"
        raise InvalidBackup(msg) from error
    msg = "was written by a newer version of Holdfast; install that version"
    raise ConfigError(msg)
