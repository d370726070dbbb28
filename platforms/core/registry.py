"""Which platforms there are: modules of this package, and what other distributions offer.

A module is found by its name and offers `SPEC`; other distributions name theirs as entry points of
the group `holdfast.platforms`. A platform whose library is not installed is left out.
"""

import logging
import pkgutil
from importlib import import_module
from importlib.metadata import entry_points

import platforms
from platforms.core.contract import PlatformSpec

log = logging.getLogger(__name__)

GROUP = "holdfast.platforms"


def specs() -> dict[str, PlatformSpec]:
    """Give every platform that can be used, by name; imports them, which may take a while."""
    found: dict[str, PlatformSpec] = {}
    for module in pkgutil.iter_modules(platforms.__path__):
        if module.name != "core":
            _add(found, f"platforms.{module.name}")
    for entry in entry_points(group=GROUP):
        spec: PlatformSpec = entry.load()
        found.setdefault(spec.name, spec)
    return found


def _add(found: dict[str, PlatformSpec], module: str) -> None:
    try:
        spec: PlatformSpec | None = getattr(import_module(module), "SPEC", None)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "platforms":
            raise
        log.debug("%s is left out: %s is not installed", module, error.name)
        return
    if spec:  # the in-memory platform of the test kit offers none: nobody configures it
        found[spec.name] = spec
