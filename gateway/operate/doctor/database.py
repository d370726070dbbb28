"""The database: there, sound, of a version that is known, and not larger than it must be."""

import asyncio
from collections.abc import Iterator, Sequence

from gateway.operate.doctor.context import DoctorContext
from gateway.operate.doctor.report import VERSION_SUBJECT
from sessions.store.inspect import DatabaseInspection, inspect_database
from sessions.values.finding import Finding, fail, ok, warn
from sessions.values.size import format_size

TIMEOUT_SECONDS = 8.0
_LARGE_WAL_BYTES = 256 * 1024 * 1024
_LARGE_FREE_BYTES = 256 * 1024 * 1024


async def check_database(context: DoctorContext) -> Sequence[Finding]:
    """Look at it from outside; nothing is written."""
    return [
        *_findings(
            await asyncio.to_thread(
                inspect_database, context.database, timeout_seconds=TIMEOUT_SECONDS
            )
        )
    ]


def _findings(found: DatabaseInspection) -> Iterator[Finding]:
    if not found.exists:
        yield ok("database", f"{found.name} is made at the first start")
        return
    if found.error:
        yield fail("database", found.error, _suggest_fix(found.error))
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
            VERSION_SUBJECT,
            f"a newer Holdfast wrote it ({found.version}; this one knows {found.expected_version})",
            "Install that version again, or restore a backup made with this one.",
        )
    elif found.is_older:
        yield ok(
            VERSION_SUBJECT,
            f"of version {found.version}; the next start makes it {found.expected_version}",
        )
    if found.incomplete:
        yield warn(
            "integrity",
            f"{format_size(found.size_bytes)} could not all be looked at within {TIMEOUT_SECONDS:g} s",
            "Run `holdfast db check`, which takes the time it needs.",
        )
    elif not found.damage:
        yield ok("integrity", f"sound, {format_size(found.size_bytes)} ({found.name})")
    yield from _size_findings(found)


def _size_findings(found: DatabaseInspection) -> Iterator[Finding]:
    if found.wal_bytes > _LARGE_WAL_BYTES:
        yield warn(
            "size",
            f"its write-ahead log has grown to {format_size(found.wal_bytes)}",
            "End programs that have kept the database open for long, then restart Holdfast.",
        )
    if found.free_bytes > _LARGE_FREE_BYTES and found.free_bytes > found.size_bytes / 2:
        yield ok("size", f"{format_size(found.free_bytes)} of it are free, and will be used again")


def _suggest_fix(trouble: str) -> str:
    if "holdfast[pg]" in trouble:
        return "Run `pip install holdfast[pg]` in Holdfast's own environment."
    return "See that store.url is right, that the server runs, and that this user may read it."
