"""Sans-IO: which configuration changes apply without a restart.

Settings that turns and commands read each time they begin are replaced. Settings of objects built
at the start, such as the store, the HTTP port and platform connections, keep their values until
the next start, so that the settings in force always describe the running gateway.
"""

from collections.abc import Iterator

from msgspec import Struct, structs

from gateway.settings import Settings

RESTART_TABLES = frozenset({"store", "platforms", "http", "bus", "mcp", "voice", "media"})
"""Tables whose changes take effect at the next start."""

RESTART_GATEWAY_KEYS = frozenset({"disk_low", "log_format", "reactions"})
"""Keys of `[gateway]` whose changes take effect at the next start."""


class ReloadPlan(Struct, frozen=True):
    """The effect of reloading the configuration."""

    settings: Settings  # in force from now on
    changed: tuple[str, ...]  # keys with a new value now
    after_restart: tuple[str, ...]  # keys with a new value at the next start

    @property
    def summary(self) -> str:
        """Summary for the person who requested the reload."""
        if not self.changed and not self.after_restart:
            return "Nothing has changed."
        sentences = []
        if self.changed:
            sentences.append(f"Changed: {', '.join(self.changed)}.")
        if self.after_restart:
            sentences.append(f"Needs a restart: {', '.join(self.after_restart)}.")
        return " ".join(sentences)


def plan_reload(old: Settings, new: Settings) -> ReloadPlan:
    """Return the plan for replacing the settings in force with new ones."""
    kept = {name: getattr(old, name) for name in RESTART_TABLES}
    gateway = {name: getattr(old.gateway, name) for name in RESTART_GATEWAY_KEYS}
    settings = structs.replace(new, gateway=structs.replace(new.gateway, **gateway), **kept)
    return ReloadPlan(
        settings, tuple(_changed_keys(old, settings)), tuple(_changed_keys(settings, new))
    )


def _changed_keys(old: Struct, new: Struct, path: str = "") -> Iterator[str]:
    """Yield the changed keys in the form in which the file names them."""
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
