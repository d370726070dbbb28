"""Sans-IO: storage format of a model's reasoning, for replay to the same service.

Services that support reasoning across several requests expect it back unchanged: signed,
encrypted or in parts of their own format. Only the service and model that produced the reasoning
can use it, so it is stored under the target's label and replayed to no other target.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

_APPENDED_FIELDS = frozenset({"text", "thinking", "summary", "data", "signature"})
"""Fields that a stream sends in pieces; other fields replace the previous value."""


class ReasoningBlocks(msgspec.Struct, frozen=True, omit_defaults=True):
    """Reasoning of one answer."""

    by: str  # label of the target that produced the reasoning and can read it
    text: str = ""  # for display
    parts: tuple[dict[str, Any], ...] = ()  # for replay, in the service's format


def encode_reasoning(thoughts: ReasoningBlocks) -> bytes | None:
    """Encode for `Message.reasoning`; None if there is no reasoning."""
    if not thoughts.text and not thoughts.parts:
        return None
    return msgspec.json.encode(thoughts)


def decode_reasoning(row: bytes | None, by: str) -> ReasoningBlocks | None:
    """Decode `Message.reasoning`; None if absent or produced by another target."""
    if row is None:
        return None
    thoughts = msgspec.json.decode(row, type=ReasoningBlocks)
    return thoughts if thoughts.by == by else None


def merge_part(parts: dict[int, dict[str, Any]], index: int, fields: Mapping[str, Any]) -> None:
    """Merge a streamed piece into the part with this index."""
    part = parts.setdefault(index, {})
    for name, value in fields.items():
        before = part.get(name)
        grows = name in _APPENDED_FIELDS and isinstance(before, str) and isinstance(value, str)
        part[name] = before + value if grows else value
