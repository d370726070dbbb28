"""Crash-safe replacement of the state, for a restore.

The list of moves is written to disk first. A completed move is recognizable by the positions of the
files, so the list can be repeated from the beginning. After a crash the next process that holds the
lock of the state folder finishes the moves before reading anything.

The content of a PostgreSQL database is replaced between the list and the moves, in one transaction
that also stores a mark. After a crash the mark tells whether the moves belong to the database.
"""

import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec

from gateway.errors import CannotStart
from sessions.errors import StoreError

_PLAN_FILE = "plan.json"
_WORK_FOLDER = ".restore"
ASIDE_PREFIX = "before-restore-"


class Move(msgspec.Struct, frozen=True):
    """One rename inside a file system."""

    source: str
    target: str


class Plan(msgspec.Struct, frozen=True):
    """Moves of a restore; with a `mark`, only if the database contains the mark."""

    moves: list[Move]
    mark: str = ""


def work_folder(home: Path) -> Path:
    """Return the folder in which a new state is prepared."""
    return home / _WORK_FOLDER


def apply_moves(
    home: Path, moves: list[Move], replace_database: Callable[[str], object] | None = None
) -> None:
    """Carry out all moves; after a crash `finish_moves` completes them.

    `replace_database` first replaces the content of a database server and stores the mark that it is
    called with, in one transaction.
    """
    mark = secrets.token_hex(8) if replace_database else ""
    _write_plan(home, Plan(moves, mark))
    if replace_database:
        replace_database(mark)
    finish_moves(home, lambda _: True)


def has_plan(home: Path) -> bool:
    """Return True if a restore was begun and not finished."""
    return (work_folder(home) / _PLAN_FILE).exists()


def _write_plan(home: Path, planned: Plan) -> None:
    plan = work_folder(home) / _PLAN_FILE
    unfinished = plan.with_suffix(".new")
    _copy_owner(work_folder(home), home)
    with unfinished.open("wb") as file:
        file.write(msgspec.json.encode(planned))
        file.flush()
        os.fsync(file.fileno())
    _sync_tree(work_folder(home))
    unfinished.replace(plan)
    _sync_folder(plan.parent)


def finish_moves(home: Path, has_mark: Callable[[str], bool]) -> None:
    """Finish or undo an interrupted restore and remove its work folder; raises `CannotStart`.

    `has_mark` looks for a mark in the database.
    """
    work = work_folder(home)
    if not work.exists():
        return
    plan = work / _PLAN_FILE
    try:
        if plan.exists():
            planned = msgspec.json.decode(plan.read_bytes(), type=Plan | list[Move])
            moves = planned.moves if isinstance(planned, Plan) else planned  # of older versions
            if isinstance(planned, Plan) and planned.mark and not has_mark(planned.mark):
                moves = []
            for move in moves:
                _apply_move(Path(move.source), Path(move.target))
            for folder in {Path(place).parent for m in moves for place in (m.source, m.target)}:
                if folder.exists():
                    _sync_folder(folder)
            plan.unlink()
            _sync_folder(work)
        shutil.rmtree(work)
    except OSError as error:
        msg = (
            f"An interrupted restore cannot be finished: {error.strerror} ({error.filename}). "
            "Fix that and start again."
        )
        raise CannotStart(msg) from error
    except StoreError as error:
        msg = f"An interrupted restore cannot be finished: {error}. Fix that and start again."
        raise CannotStart(msg) from error


def _apply_move(source: Path, target: Path) -> None:
    # A completed move has no source any more, or has its target already.
    if os.path.lexists(source) and not os.path.lexists(target):
        new_folder = not target.parent.exists()
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if new_folder:
            _copy_owner(target.parent, source.parent)
        source.rename(target)


def _copy_owner(tree: Path, like: Path) -> None:
    """As root, give a tree the owner of the state folder, because the service is not root."""
    owner = like.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        return
    os.chown(tree, owner.st_uid, owner.st_gid)
    for root, folders, files in os.walk(tree):
        for name in (*folders, *files):
            path = os.path.join(root, name)  # noqa: PTH118 - names may not be text
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _sync_tree(folder: Path) -> None:
    for root, _, _ in os.walk(folder):
        _sync_folder(Path(root))


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
