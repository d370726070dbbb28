"""Sans-IO: what of a changed configuration can take effect while the gateway runs.

What turns and commands look at each time they begin is exchanged. What was built at the start, as
the store, the HTTP port and the platforms' connections, stays until the next one; then the
settings in force go on saying what is really so.
"""

from collections.abc import Iterator

from msgspec import Struct, structs

from gateway.settings import Settings

RESTART_TABLES = frozenset({"store", "platforms", "http", "bus", "mcp", "voice", "media"})
"""Tables whose keys count from the next start on."""

RESTART_GATEWAY_KEYS = frozenset({"disk_low", "log_format", "reactions"})
"""Keys of `[gateway]` that do so."""


class ReloadPlan(Struct, frozen=True):
    """What a new reading of the configuration came to."""

    settings: Settings  # in force from now on
    changed: tuple[str, ...]  # keys that count now
    after_restart: tuple[str, ...]  # keys that count from the next start on

    @property
    def summary(self) -> str:
        """What somebody who asked for it is told."""
        if not self.changed and not self.after_restart:
            return "Nothing has changed."
        said = []
        if self.changed:
            said.append(f"Changed: {', '.join(self.changed)}.")
        if self.after_restart:
            said.append(f"Only at the next start: {', '.join(self.after_restart)}.")
        return " ".join(said)


def plan_reload(old: Settings, new: Settings) -> ReloadPlan:
    """Compare what is in force with what is written by now."""
    kept = {name: getattr(old, name) for name in RESTART_TABLES}
    gateway = {name: getattr(old.gateway, name) for name in RESTART_GATEWAY_KEYS}
    settings = structs.replace(new, gateway=structs.replace(new.gateway, **gateway), **kept)
    return ReloadPlan(
        settings, tuple(_changed_keys(old, settings)), tuple(_changed_keys(settings, new))
    )


def _changed_keys(old: Struct, new: Struct, path: str = "") -> Iterator[str]:
    """Name the keys that are not the same, as they are written in the file."""
    for name in old.__struct_fields__:
        before, after = getattr(old, name), getattr(new, name)
        if before == after:
            continue
        here = f"{path}{name}"
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _changed_entries(before, after, here)
        elif isinstance(before, Struct) and type(before) is type(after):
            yield from _changed_keys(before, after, f"{here}.")
        else:
            yield here


def _changed_entries(old: dict[str, object], new: dict[str, object], path: str) -> Iterator[str]:
    for name in sorted({*old, *new}):
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        here = f"{path}.{name}"
        if isinstance(before, Struct) and type(before) is type(after):
            yield from _changed_keys(before, after, f"{here}.")
        else:
            yield here
