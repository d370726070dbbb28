"""Sans-IO: values that services write in more forms than one."""

from typing import Any

from agent.model.contract import UsageChunk


def flatten_text(content: object) -> str:
    """Content may be text, a part with a text, or a list of such."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return flatten_text(content.get("text") or "")
    if isinstance(content, list):
        return "".join(map(flatten_text, content))
    return ""


def parse_index(value: object) -> int | None:
    """Read an index, which may be written as text."""
    try:
        return int(str(value))
    except ValueError:
        return None


def read_usage(usage: dict[str, Any], field_names: tuple[str, str], *, alone: bool) -> UsageChunk:
    """Read what was used; `words` are the protocol's names for input and output."""
    sent, made = field_names
    details = usage.get(f"{sent}_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    cost = usage.get("cost")
    return UsageChunk(
        _as_count(usage.get(sent)),
        _as_count(usage.get(made)),
        alone=alone,
        cached_tokens=_as_count(cached) or _as_count(usage.get("prompt_cache_hit_tokens")),
        cost=float(cost) if isinstance(cost, int | float) else None,
    )


def _as_count(value: object) -> int:
    return value if isinstance(value, int) else 0
