"""Puts a new state in the place of an old one: whole, or, after a crash, at the next start.

What is to be moved is written down first. A move that was done is known by where things lie, so the
list can be gone through again from its beginning: whoever next holds the lock of the state folder
does that, before anything is read.
"""

import os
import shutil
from pathlib import Path

import msgspec

from gateway.errors import CannotStart

_PLAN_FILE = "plan.json"


class Move(msgspec.Struct, frozen=True):
    """One thing that goes from one place to another of the same file system."""

    source: str
    target: str


def work_folder(home: Path) -> Path:
    """Where a new state is prepared."""
    return home / WORK_FOLDER


def apply_moves(home: Path, moves: list[Move]) -> None:
    """Do all moves; from now on a crash does not stop them."""
    plan = work_folder(home) / _PLAN_FILE
    unfinished = plan.with_suffix(".new")
    _copy_owner(work_folder(home), home)
    with unfinished.open("wb") as file:
        file.write(msgspec.json.encode(moves))
        file.flush()
        os.fsync(file.fileno())
    _sync_tree(work_folder(home))
    unfinished.replace(plan)
    _sync_folder(plan.parent)
    finish_moves(home)


def finish_moves(home: Path) -> None:
    """Do what a restore had begun, and clear up behind it; raises `CannotStart`."""
    work = work_folder(home)
    if not work.exists():
        return
    plan = work / _PLAN_FILE
    try:
        if plan.exists():
            moves = msgspec.json.decode(plan.read_bytes(), type=list[Move])
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
            f"A restore that was begun cannot be finished: {error.strerror} ({error.filename}); "
            "mend that and start again."
        )
        raise CannotStart(msg) from error


def _apply_move(source: Path, target: Path) -> None:
    # Done before: what went away lies at its target, what came in has left its source.
    if os.path.lexists(source) and not os.path.lexists(target):
        aside = not target.parent.exists()
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if aside:
            _copy_owner(target.parent, source.parent)
        source.rename(target)


def _copy_owner(tree: Path, like: Path) -> None:
    """What root puts there belongs to whoever the state belongs to: the service is not root."""
    owner = like.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        return
    os.chown(tree, owner.st_uid, owner.st_gid)
    for root, folders, files in os.walk(tree):
        for name in (*folders, *files):
            each = os.path.join(root, name)  # noqa: PTH118 - names may be no text
            os.chown(each, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _sync_tree(folder: Path) -> None:
    for root, _, _ in os.walk(folder):
        _sync_folder(Path(root))


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


WORK_FOLDER = ".restore"


ASIDE_PREFIX = "before-restore-"
