"""Sans-IO: values that services encode in different ways."""

from collections.abc import Collection
from typing import Any

from agent.model.contract import UsageChunk

_LEAST_EFFORTS = {"none": None, "minimal": "low"}
"""Replacements of efforts that not all services know."""


def flatten_text(content: object) -> str:
    """Return the text of content that is a string, a part with a `text`, or a list of these."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return flatten_text(content.get("text") or "")
    if isinstance(content, list):
        return "".join(map(flatten_text, content))
    return ""


def known_effort(effort: str, omitted_features: Collection[str]) -> str | None:
    """Return the effort, or the nearest one if the service does not know it; None leaves it out."""
    if effort == "xhigh" and "xhigh" in omitted_features:
        return "high"
    if effort in _LEAST_EFFORTS and "least_effort" in omitted_features:
        return _LEAST_EFFORTS[effort]
    return effort


def parse_index(value: object) -> int | None:
    """Read an index that may be a number or a string; None for anything else."""
    try:
        return int(str(value))
    except ValueError:
        return None


def read_usage(usage: dict[str, Any], field_names: tuple[str, str], *, alone: bool) -> UsageChunk:
    """Read the token usage; `field_names` are the protocol's names for input and output tokens."""
    input_name, output_name = field_names
    details = usage.get(f"{input_name}_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    output_details = usage.get(f"{output_name}_details")
    reasoning = output_details.get("reasoning_tokens") if isinstance(output_details, dict) else None
    cost = usage.get("cost")
    return UsageChunk(
        _as_count(usage.get(input_name)),
        _as_count(usage.get(output_name)),
        alone=alone,
        cached_tokens=_as_count(cached) or _as_count(usage.get("prompt_cache_hit_tokens")),
        cost=float(cost) if isinstance(cost, int | float) else None,
        reasoning_tokens=_as_count(reasoning),
    )


def _as_count(value: object) -> int:
    return value if isinstance(value, int) else 0
