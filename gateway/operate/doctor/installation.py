"""The program itself: that its packages are its own, and that what others add to it can be loaded."""

import asyncio
import base64
import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.metadata import (
    Distribution,
    EntryPoint,
    PackageNotFoundError,
    distribution,
    entry_points,
    packages_distributions,
)
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from gateway.operate.doctor.context import DoctorContext
from gateway.operate.doctor.run import DaemonThreadExecutor
from sessions.store.inspect import has_wal_bug
from sessions.values.finding import Finding, fail, ok, warn

PACKAGES = ("gateway", "platforms", "agent", "sessions")
DISTRIBUTION_NAME = "holdfast"
ENTRY_POINT_GROUPS = ("holdfast.platforms", "holdfast.providers", "holdfast.tools")

_OWN_ENVIRONMENT_HINT = (
    "Install Holdfast into an environment of its own: `pipx install holdfast`, or a new .venv."
)


async def check_packages(_: DoctorContext) -> Sequence[Finding]:
    """See that each of the four generic names means a package of this very distribution."""
    return await asyncio.to_thread(lambda: [*_package_findings()])


def _package_findings(names: Sequence[str] = PACKAGES) -> Iterator[Finding]:
    try:
        ours = distribution(DISTRIBUTION_NAME)
    except PackageNotFoundError:
        yield warn(
            "packages",
            "this program was not installed, only its files are there",
            f"{_OWN_ENVIRONMENT_HINT} Platforms of others and the version are unknown until then.",
        )
        return
    wrong = [*_find_foreign_packages(ours, names)]
    yield from wrong
    if not wrong:
        yield ok("packages", f"Holdfast {ours.version}; {', '.join(names)} are its own")


def _find_foreign_packages(ours: Distribution, names: Sequence[str]) -> Iterator[Finding]:
    root = _package_root(ours)
    owners = packages_distributions()
    for name in names:
        loaded = Path(import_module(name).__path__[0]).resolve()
        if loaded != (root / name).resolve():
            yield fail(
                "packages",
                f"{name} is loaded from {loaded}, not from {root}",
                _OWN_ENVIRONMENT_HINT,
            )
            continue
        others = sorted(set(owners.get(name, ())) - {ours.name, DISTRIBUTION_NAME})
        if others or not _is_unchanged(ours, name):
            who = f"{', '.join(others)} brings" if others else "something has put"
            yield fail(
                "packages",
                f"{who} a package called {name} in the place of ours",
                _OWN_ENVIRONMENT_HINT,
            )


def _package_root(ours: Distribution) -> Path:
    """The folder in which the packages lie; for an editable installation its source."""
    written = ours.read_text("direct_url.json")
    told = msgspec.json.decode(written) if written else {}
    if told.get("dir_info", {}).get("editable"):
        return Path(unquote(urlsplit(told["url"]).path))
    return Path(str(ours.locate_file("")))


def _is_unchanged(ours: Distribution, name: str) -> bool:
    """Compare with what was installed; an editable installation has nothing to compare with."""
    for file in ours.files or ():
        if str(file) == f"{name}/__init__.py" and file.hash and file.hash.mode == "sha256":
            digest = hashlib.sha256(file.read_binary()).digest()
            return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == file.hash.value
    return True


async def check_plugins(_: DoctorContext) -> Sequence[Finding]:
    """Load what other distributions offer; one that cannot be loaded stops the start."""
    found = [entry for group in ENTRY_POINT_GROUPS for entry in entry_points(group=group)]
    told = await asyncio.to_thread(
        lambda: [each for entry in found for each in _load_entry_point(entry)]
    )
    if found and not told:
        named = ", ".join(entry.name for entry in found)
        return [ok("additions", f"others offer {named}")]
    return told


def _load_entry_point(entry: EntryPoint) -> Iterator[Finding]:
    broken = DaemonThreadExecutor().submit(entry.load).exception()
    if broken is not None:
        owner = entry.dist.name if entry.dist else entry.value
        yield fail(
            "additions",
            f"{entry.group.partition('.')[2]}: {entry.name} of {owner} cannot be loaded: "
            f"{type(broken).__name__}: {broken}",
            f"Update {owner}, or uninstall it.",
        )


async def check_sqlite(context: DoctorContext) -> Sequence[Finding]:
    """Name the version of SQLite where it has the fault of write-ahead logs."""
    if context.settings.store.engine != "sqlite":
        return []
    return _sqlite_findings(sqlite3.sqlite_version_info)


def _sqlite_findings(version: tuple[int, ...]) -> Sequence[Finding]:
    written = ".".join(map(str, version))
    if not has_wal_bug(version):
        return [ok("SQLite", f"SQLite {written}")]
    return [
        warn(
            "SQLite",
            f"version {written} can damage a database into which two connections write at once "
            "(3.7.0 to 3.51.2); Holdfast writes through one alone",
            "Let nothing else write to holdfast.db; a Python with SQLite 3.51.3 is free of it.",
        )
    ]
