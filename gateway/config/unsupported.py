"""Sans-IO: what the configuration already names, and this version cannot do yet."""

from collections.abc import Iterable

UNSUPPORTED_KEYS = frozenset(
    {
        "bus.url",
        "tools.shell",
        "voice.speech_model",
        "voice.speech_url",
    }
)
"""Keys of the fixed interface whose feature is still to be built."""

SUPPORTED_TOOL_FAMILIES = frozenset({"files"})
"""Families of tools that are there; the others that may be named are still to be built."""


def is_unsupported(path: Iterable[str | int]) -> bool:
    """Whether a key, or a table it stands in, has no effect yet."""
    words = [str(part) for part in path]
    starts = (".".join(words[:length]) for length in range(1, len(words) + 1))
    return not UNSUPPORTED_KEYS.isdisjoint({words[-1], *starts})
