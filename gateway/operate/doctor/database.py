"""The database: present, undamaged, of a known version, and of a reasonable size."""

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
    """Inspect the database read-only."""
    return [
        *_findings(
            await asyncio.to_thread(
                inspect_database, context.database, timeout_seconds=TIMEOUT_SECONDS
            )
        )
    ]


def _findings(found: DatabaseInspection) -> Iterator[Finding]:
    if not found.exists:
        yield ok("database", f"{found.name} is created at the first start")
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
        yield ok("database", f"{found.name} is empty; its tables are created at the first start")
        return
    if found.is_newer:
        yield fail(
            VERSION_SUBJECT,
            f"written by a newer Holdfast (version {found.version}; this one supports up to "
            f"{found.expected_version})",
            "Install that version again, or restore a backup made with this one.",
        )
    elif found.is_older:
        yield ok(
            VERSION_SUBJECT,
            f"version {found.version}; the next start upgrades it to {found.expected_version}",
        )
    if found.incomplete:
        yield warn(
            "integrity",
            f"checking all {format_size(found.size_bytes)} takes longer than {TIMEOUT_SECONDS:g} s",
            "Run `holdfast db check`, which has no time limit.",
        )
    elif not found.damage:
        yield ok("integrity", f"no damage, {format_size(found.size_bytes)} ({found.name})")
    yield from _size_findings(found)


def _size_findings(found: DatabaseInspection) -> Iterator[Finding]:
    if found.wal_bytes > _LARGE_WAL_BYTES:
        yield warn(
            "size",
            f"the write-ahead log has grown to {format_size(found.wal_bytes)}",
            "End other programs that keep the database open, then restart Holdfast.",
        )
    if found.free_bytes > _LARGE_FREE_BYTES and found.free_bytes > found.size_bytes / 2:
        yield ok("size", f"{format_size(found.free_bytes)} of the file are free and will be reused")


def _suggest_fix(error: str) -> str:
    if "holdfast[pg]" in error:
        return "Run `pip install holdfast[pg]` in Holdfast's own environment."
    return "Check that store.url is right, the server runs, and this user may read the database."
