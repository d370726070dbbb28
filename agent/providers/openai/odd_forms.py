"""Sans-IO: values that services write in more forms than one."""

from typing import Any

from agent.model.contract import UsageChunk


def flat(content: object) -> str:
    """Content may be text, a part with a text, or a list of such."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return flat(content.get("text") or "")
    if isinstance(content, list):
        return "".join(map(flat, content))
    return ""


def whole_number(value: object) -> int | None:
    """Read an index, which may be written as text."""
    try:
        return int(str(value))
    except ValueError:
        return None


def usage_chunk(usage: dict[str, Any], words: tuple[str, str], *, alone: bool) -> UsageChunk:
    """Read what was used; `words` are the protocol's names for input and output."""
    sent, made = words
    details = usage.get(f"{sent}_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    cost = usage.get("cost")
    return UsageChunk(
        _count(usage.get(sent)),
        _count(usage.get(made)),
        alone,
        _count(cached) or _count(usage.get("prompt_cache_hit_tokens")),
        float(cost) if isinstance(cost, int | float) else None,
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
