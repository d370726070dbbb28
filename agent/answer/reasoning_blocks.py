"""Sans-IO: what a model thought, kept so that its service can be given it back.

Services that let a model think across several requests want its thoughts returned as they were:
signed, encrypted or in parts of their own making. Only the service and model that made them can
read them, so they are kept under its name and given to nobody else.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

_APPENDED_FIELDS = frozenset({"text", "thinking", "summary", "data", "signature"})
"""Fields of which a stream sends pieces; any other field replaces what was there."""


class ReasoningBlocks(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was thought in one answer."""

    by: str  # the target's label: who can read it
    text: str = ""  # as people may see it
    parts: tuple[dict[str, Any], ...] = ()  # as the service wants them back


def encode_reasoning(thoughts: ReasoningBlocks) -> bytes | None:
    """Write for `Message.reasoning`; None when there is nothing to keep."""
    if not thoughts.text and not thoughts.parts:
        return None
    return msgspec.json.encode(thoughts)


def decode_reasoning(row: bytes | None, by: str) -> ReasoningBlocks | None:
    """Read what this very target thought; None for thoughts of others, and for none."""
    if row is None:
        return None
    thoughts = msgspec.json.decode(row, type=ReasoningBlocks)
    return thoughts if thoughts.by == by else None


def merge_part(parts: dict[int, dict[str, Any]], index: int, fields: Mapping[str, Any]) -> None:
    """Add a piece to the part that it belongs to."""
    part = parts.setdefault(index, {})
    for name, value in fields.items():
        before = part.get(name)
        grows = name in _APPENDED_FIELDS and isinstance(before, str) and isinstance(value, str)
        part[name] = before + value if grows else value
