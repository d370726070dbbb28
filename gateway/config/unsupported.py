"""Sans-IO: configuration keys that are defined but have no effect in this version."""

from collections.abc import Iterable

_UNSUPPORTED_KEYS = frozenset(
    {
        "bus.url",
        "tools.shell",
        "voice.speech_model",
        "voice.speech_url",
    }
)
"""Keys whose feature is not implemented yet."""

SUPPORTED_TOOL_FAMILIES = frozenset({"files"})
"""Families of tools that are implemented; the configuration accepts names of others."""


def is_unsupported(path: Iterable[str | int]) -> bool:
    """Return True if a key or an enclosing table has no effect yet."""
    words = [str(part) for part in path]
    starts = (".".join(words[:length]) for length in range(1, len(words) + 1))
    return not _UNSUPPORTED_KEYS.isdisjoint({words[-1], *starts})
