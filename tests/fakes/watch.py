"""Watches a folder: what the kernel says happened to the names in it, nothing left out."""

import ctypes
import os
import struct
from pathlib import Path
from typing import Self

_EVENT = struct.Struct("iIII")
_NAMES = {
    0x00000002: "modified",
    0x00000004: "changed",
    0x00000008: "closed",
    0x00000040: "moved away",
    0x00000080: "moved here",
    0x00000100: "created",
    0x00000200: "deleted",
}
_OVERFLOW = 0x00004000


class Watch:
    """The events of a folder, from entering the block on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: list[tuple[str, str]] = []
        self._fd = -1

    def __enter__(self) -> Self:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        mask = sum(_NAMES)
        if self._fd < 0 or libc.inotify_add_watch(self._fd, bytes(self._folder), mask) < 0:
            raise OSError(ctypes.get_errno(), "cannot watch", str(self._folder))
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def of(self, name: str) -> list[str]:
        """What happened to a name so far."""
        self._read()
        return [what for each, what in self._seen if each == name]

    def _read(self) -> None:
        while True:
            try:
                raw = os.read(self._fd, 1 << 20)
            except BlockingIOError:
                return
            at = 0
            while at < len(raw):
                _, mask, _, size = _EVENT.unpack_from(raw, at)
                assert not mask & _OVERFLOW, "events were lost"
                name = raw[at + _EVENT.size : at + _EVENT.size + size].rstrip(b"\0").decode()
                self._seen += [(name, what) for bit, what in _NAMES.items() if mask & bit]
                at += _EVENT.size + size
