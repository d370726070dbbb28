"""The installed program: packages shadowed by another distribution, broken plugins, SQLite bugs."""

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

_PACKAGES = ("gateway", "platforms", "agent", "sessions")
_DISTRIBUTION_NAME = "holdfast"
_ENTRY_POINT_GROUPS = ("holdfast.platforms", "holdfast.providers", "holdfast.tools")

_OWN_ENVIRONMENT_HINT = (
    "Install Holdfast in its own environment: `pipx install holdfast`, or a new .venv."
)


async def check_packages(_: DoctorContext) -> Sequence[Finding]:
    """Check that each of the four generic package names belongs to this distribution."""
    return await asyncio.to_thread(lambda: [*_package_findings()])


def _package_findings(names: Sequence[str] = _PACKAGES) -> Iterator[Finding]:
    try:
        this_distribution = distribution(_DISTRIBUTION_NAME)
    except PackageNotFoundError:
        yield warn(
            "packages",
            "this program runs from its files and is not installed as a package",
            f"{_OWN_ENVIRONMENT_HINT} Until then, plugins are not found and the version is unknown.",
        )
        return
    wrong = [*_find_foreign_packages(this_distribution, names)]
    yield from wrong
    if not wrong:
        yield ok(
            "packages", f"Holdfast {this_distribution.version}; {', '.join(names)} belong to it"
        )


def _find_foreign_packages(
    this_distribution: Distribution, names: Sequence[str]
) -> Iterator[Finding]:
    root = _package_root(this_distribution)
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
        others = sorted(set(owners.get(name, ())) - {this_distribution.name, _DISTRIBUTION_NAME})
        if others or not _is_unchanged(this_distribution, name):
            who = f"{', '.join(others)} installs" if others else "another program has installed"
            yield fail(
                "packages",
                f"{who} a package named {name} over Holdfast's own",
                _OWN_ENVIRONMENT_HINT,
            )


def _package_root(this_distribution: Distribution) -> Path:
    """Return the folder of the packages; for an editable installation, the source folder."""
    written = this_distribution.read_text("direct_url.json")
    origin = msgspec.json.decode(written) if written else {}
    if origin.get("dir_info", {}).get("editable"):
        return Path(unquote(urlsplit(origin["url"]).path))
    return Path(str(this_distribution.locate_file("")))


def _is_unchanged(this_distribution: Distribution, name: str) -> bool:
    """Compare the hash recorded at installation; always true for an editable installation."""
    for file in this_distribution.files or ():
        if str(file) == f"{name}/__init__.py" and file.hash and file.hash.mode == "sha256":
            digest = hashlib.sha256(file.read_binary()).digest()
            return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == file.hash.value
    return True


async def check_plugins(_: DoctorContext) -> Sequence[Finding]:
    """Load the plugins of other distributions, because a broken plugin prevents the start."""
    found = [entry for group in _ENTRY_POINT_GROUPS for entry in entry_points(group=group)]
    findings = await asyncio.to_thread(
        lambda: [finding for entry in found for finding in _load_entry_point(entry)]
    )
    if found and not findings:
        named = ", ".join(entry.name for entry in found)
        return [ok("additions", f"plugins: {named}")]
    return findings


def _load_entry_point(entry: EntryPoint) -> Iterator[Finding]:
    broken = DaemonThreadExecutor().submit(entry.load).exception()
    if broken is not None:
        owner = entry.dist.name if entry.dist else entry.value
        yield fail(
            "additions",
            f"{entry.group.partition('.')[2]}: {entry.name} from {owner} cannot be loaded: "
            f"{type(broken).__name__}: {broken}",
            f"Update {owner}, or uninstall it.",
        )


async def check_sqlite(context: DoctorContext) -> Sequence[Finding]:
    """Warn about SQLite versions with the write-ahead log bug."""
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
            f"version {written} can damage a database when two connections write at once (a bug of "
            "3.7.0 to 3.51.2); Holdfast itself writes through one connection only",
            "Let no other program write to holdfast.db, or use a Python with SQLite 3.51.3.",
        )
    ]
