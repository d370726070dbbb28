"""Lookup of platforms: modules of this package and entry points of other distributions.

A module is found by name and exports `SPEC`; other distributions register theirs in the entry
point group `holdfast.platforms`. A platform is imported only on lookup.
"""

import logging
import pkgutil
from importlib import import_module
from importlib.metadata import EntryPoint

import platforms
from platforms.core.contract import PlatformSpec
from sessions.values.entry_points import entry_points_of
from sessions.values.spelling import similar_words

log = logging.getLogger(__name__)

_ENTRY_POINT_GROUP = "holdfast.platforms"

_NOT_PLATFORMS = {"core", "memory"}  # shared code and the test kit


class UnknownPlatform(LookupError):
    """There is no platform with this name."""


class PlatformNotInstalled(LookupError):
    """The platform exists, but a required library is not installed."""


def known_names() -> tuple[str, ...]:
    """Return the names of all platforms in order, without importing them."""
    return tuple(sorted({*_modules(), *_entry_points()}))


def find_platform(name: str) -> PlatformSpec:
    """Import a platform and return the spec; raise `UnknownPlatform` or `PlatformNotInstalled`."""
    try:
        if name in _modules():
            spec: PlatformSpec = import_module(f"platforms.{name}").SPEC
        elif entry := _entry_points().get(name):
            spec = entry.load()
        else:
            raise UnknownPlatform(_unknown_message(name))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "platforms":
            raise
        msg = f"{name} needs {error.name}, which is not installed; install holdfast[{name}]."
        raise PlatformNotInstalled(msg) from error
    return spec


def load_specs() -> dict[str, PlatformSpec]:
    """Import all installed platforms; skip those whose library is missing."""
    found = {}
    for name in known_names():
        try:
            found[name] = find_platform(name)
        except PlatformNotInstalled as error:
            log.debug("%s", error)
    return found


def _modules() -> list[str]:
    names = [module.name for module in pkgutil.iter_modules(platforms.__path__)]
    return [name for name in names if name not in _NOT_PLATFORMS]


def _entry_points() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points_of(_ENTRY_POINT_GROUP)}


def _unknown_message(name: str) -> str:
    near = similar_words(name, known_names(), most=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"There is no platform {name!r}.{hint} Available platforms: {', '.join(known_names())}."
