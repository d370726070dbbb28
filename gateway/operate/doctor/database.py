"""The database: there, sound, of a version that is known, and not larger than it must be."""

import asyncio
from collections.abc import Iterator, Sequence

from gateway.operate.doctor.context import Case
from gateway.operate.doctor.report import NEWER
from sessions.store.inspect import Examined, examine
from sessions.values.finding import Finding, fail, ok, warn
from sessions.values.size import in_words

SECONDS = 8.0
_LARGE_LOG = 256 * 1024 * 1024
_MUCH_FREE = 256 * 1024 * 1024


async def database(case: Case) -> Sequence[Finding]:
    """Look at it from outside; nothing is written."""
    return [*_judged(await asyncio.to_thread(examine, case.database, seconds=SECONDS))]


def _judged(found: Examined) -> Iterator[Finding]:
    if not found.there:
        yield ok("database", f"{found.name} is made at the first start")
        return
    if found.trouble:
        yield fail("database", found.trouble, _fix_of(found.trouble))
        return
    if found.damage:
        yield fail(
            "integrity",
            f"{found.name} is damaged: {found.damage}",
            "Stop Holdfast and restore a backup: `holdfast restore FILE`.",
        )
        if found.version is None:
            return
    if found.version is None:
        yield ok("database", f"{found.name} is empty; its tables are made at the first start")
        return
    if found.is_newer:
        yield fail(
            NEWER,
            f"a newer Holdfast wrote it ({found.version}; this one knows {found.head})",
            "Install that version again, or restore a backup made with this one.",
        )
    elif found.is_older:
        yield ok(NEWER, f"of version {found.version}; the next start makes it {found.head}")
    if found.unfinished:
        yield warn(
            "integrity",
            f"{in_words(found.size)} could not all be looked at within {SECONDS:g} s",
            "Run `holdfast db check`, which takes the time it needs.",
        )
    elif not found.damage:
        yield ok("integrity", f"sound, {in_words(found.size)} ({found.name})")
    yield from _sizes(found)


def _sizes(found: Examined) -> Iterator[Finding]:
    if found.log_size > _LARGE_LOG:
        yield warn(
            "size",
            f"its write-ahead log has grown to {in_words(found.log_size)}",
            "End programs that have kept the database open for long, then restart Holdfast.",
        )
    if found.free > _MUCH_FREE and found.free > found.size / 2:
        yield ok("size", f"{in_words(found.free)} of it are free, and will be used again")


def _fix_of(trouble: str) -> str:
    if "holdfast[pg]" in trouble:
        return "Run `pip install holdfast[pg]` in Holdfast's own environment."
    return "See that store.url is right, that the server runs, and that this user may read it."
