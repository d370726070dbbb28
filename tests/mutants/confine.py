"""Limits the files that a process can change, with Landlock.

Changed code may write anywhere: a mutant that switches off a check of paths would otherwise overwrite
files of the machine. An attack that gets through may do the same.
"""

import ctypes
import os
import struct
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_QUERY_VERSION = 1
_PATH_BENEATH = 1
_NO_NEW_PRIVILEGES = 38

_WRITE_FILE = 1 << 1
_REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13))  # files, folders, links, devices
_REFER, _TRUNCATE = 1 << 13, 1 << 14  # since versions 2 and 3
_SIGNALS = 1 << 1  # scope, since version 6

_libc = ctypes.CDLL(None, use_errno=True)


def can_confine() -> bool:
    """Return True if this machine can limit truncation too."""
    return _version() >= 3


def confine_writes(*folders: Path) -> None:
    """Refuse this process and its children all changes of files except below the folders.

    Reading stays allowed, and so does writing to the null device. Signals reach only processes that
    are confined by the same call. Other threads of this process stay as they are.
    """
    version = _version()
    rights = _WRITE_FILE | _REMOVE_AND_MAKE | _REFER | _TRUNCATE
    attributes = struct.pack("=QQQ", rights, 0, _SIGNALS if version >= 6 else 0)
    size = len(attributes) if version >= 6 else 8
    rules = _call(_CREATE_RULESET, ctypes.c_char_p(attributes), ctypes.c_size_t(size), 0)
    try:
        for folder in folders:
            _allow(rules, folder, rights)
        _allow(rules, Path(os.devnull), _WRITE_FILE | _TRUNCATE)
        if _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")
        _call(_RESTRICT_SELF, rules, 0)
    finally:
        os.close(rules)


def _allow(rules: int, place: Path, rights: int) -> None:
    opened = os.open(place, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = struct.pack("=Qi", rights, opened)
        _call(_ADD_RULE, rules, _PATH_BENEATH, ctypes.c_char_p(rule), 0)
    finally:
        os.close(opened)


def _version() -> int:
    """Return the version of Landlock, or -1 without it."""
    return int(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _QUERY_VERSION))


def _call(number: int, *arguments: object) -> int:
    result: int = _libc.syscall(number, *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
