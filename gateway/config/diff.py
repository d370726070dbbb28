"""Sans-IO: what of a changed configuration can take effect while the gateway runs.

What turns and commands look at each time they begin is exchanged. What was built at the start, as
the store, the HTTP port and the platforms' connections, stays until the next one; then the
settings in force go on saying what is really so.
"""

from collections.abc import Iterator

from msgspec import Struct, structs

from gateway.settings import Settings

NEXT_START = frozenset({"store", "platforms", "http", "bus", "mcp", "voice", "media"})
"""Tables whose keys count from the next start on."""

GATEWAY_NEXT_START = frozenset({"disk_low", "log_format", "reactions"})
"""Keys of `[gateway]` that do so."""


class Reloaded(Struct, frozen=True):
    """What a new reading of the configuration came to."""

    settings: Settings  # in force from now on
    changed: tuple[str, ...]  # keys that count now
    later: tuple[str, ...]  # keys that count from the next start on

    @property
    def summary(self) -> str:
        """What somebody who asked for it is told."""
        if not self.changed and not self.later:
            return "Nothing has changed."
        said = []
        if self.changed:
            said.append(f"Changed: {', '.join(self.changed)}.")
        if self.later:
            said.append(f"Only at the next start: {', '.join(self.later)}.")
        return " ".join(said)


def reload(old: Settings, new: Settings) -> Reloaded:
    """Compare what is in force with what is written by now."""
    kept = {name: getattr(old, name) for name in NEXT_START}
    gateway = {name: getattr(old.gateway, name) for name in GATEWAY_NEXT_START}
    settings = structs.replace(new, gateway=structs.replace(new.gateway, **gateway), **kept)
    return Reloaded(
        settings, tuple(_differences(old, settings)), tuple(_differences(settings, new))
    )


def _differences(old: Struct, new: Struct, path: str = "") -> Iterator[str]:
    """Name the keys that are not the same, as they are written in the file."""
    for name in old.__struct_fields__:
        before, after = getattr(old, name), getattr(new, name)
        if before == after:
            continue
        here = f"{path}{name}"
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _entries(before, after, here)
        elif isinstance(before, Struct) and type(before) is type(after):
            yield from _differences(before, after, f"{here}.")
        else:
            yield here


def _entries(old: dict[str, object], new: dict[str, object], path: str) -> Iterator[str]:
    for name in sorted({*old, *new}):
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        here = f"{path}.{name}"
        if isinstance(before, Struct) and type(before) is type(after):
            yield from _differences(before, after, f"{here}.")
        else:
            yield here
