"""Sans-IO: what a model takes, by its name, and what to leave out once it was refused.

Claude models differ most in how they are told to think. Up to 3.5 they do not; up to 4.5 they take
a budget of tokens; from 4.6 on they are told an effort and decide for themselves; from 5 on they
think unless told not to, and some cannot be told. Other models behind the same protocol are taken
to be like 4.5, but to think as they please.
"""

import enum
import re
from collections.abc import Iterator
from typing import Any

import msgspec

BINDING_BETA = "thinking-binding-controls-2026-08-01"


class ThinkingMode(enum.Enum):
    """How a model is told to think."""

    ADAPTIVE = "adaptive"
    BUDGET = "budget"
    NONE = "none"  # it is not told


class ThinkingOffMode(enum.Enum):
    """How a model is told not to think."""

    SILENT = "silent"  # by saying nothing
    DISABLED = "disabled"
    BETWEEN_TOOLS = "between_tools"  # but for short notes between its tool calls
    LOW = "low"  # it cannot be stopped, only slowed


class AnthropicDialect(msgspec.Struct, frozen=True, kw_only=True):
    """What one model of one service is sent."""

    form: ThinkingMode = ThinkingMode.BUDGET
    off: ThinkingOffMode = ThinkingOffMode.SILENT
    unasked: bool = True  # it thinks when nothing is said about it
    signed: bool = False  # it takes thoughts back only with their signature
    summary: bool = False  # its thoughts stay hidden unless a summary is asked for
    effort: bool = True  # takes an effort, where it is told one at all
    xhigh: bool = True  # knows the effort of that name
    binding: bool = False  # its thoughts hold only for what stood before them
    temperature: bool = True
    eager: bool = True  # streams a call's arguments as they are made
    cache: bool = True  # keeps what it read, when asked to
    schemas: bool = True  # takes schemas of tools with all that they say
    pictures: bool = True  # looks at pictures
    # Not of the model but of one conversation, and so not remembered:
    replay: bool = True  # its earlier thoughts are sent back
    think: bool = True
    these_pictures: bool = True


_NAME = re.compile(
    r"claude-(?:(?P<old>\d(?:[-.]\d)?)-)?(?P<family>[a-z]+)(?:-(?P<new>\d{1,2}(?:[-.]\d{1,2})?)(?!\d))?"
)
_NEWEST = (99, 0)
_ALWAYS_THINKING = frozenset({"fable", "mythos"})


def dialect_for(model: str) -> AnthropicDialect:
    """Say what is known of a model; prefixes and dates in its name do not matter."""
    name = _NAME.search(model.lower())
    if name is None:
        return AnthropicDialect()
    family, version = name["family"], _parse_version(name["old"] or name["new"])
    always = family in _ALWAYS_THINKING
    return AnthropicDialect(
        form=_thinking_mode((5, 0) if always else version),
        off=_thinking_off_mode(family, version),
        unasked=always or version >= (5, 0),
        signed=True,
        summary=always or version >= (4, 7),
        xhigh=always or version >= (4, 7),
        binding=version >= (5, 1),
        temperature=not always and version < (4, 7),
    )


def simpler_dialects(dialect: AnthropicDialect, complaint: str) -> Iterator[AnthropicDialect]:
    """Say what could be sent instead after such a refusal, the likeliest first."""
    said = complaint.lower()
    for words, sent, instead in _RULES:
        asked = all(getattr(dialect, field) == value for field, value in sent.items())
        if asked and any(word in said for word in words):
            yield msgspec.structs.replace(dialect, **instead)


def persistent_dialect(dialect: AnthropicDialect) -> AnthropicDialect:
    """Keep what will be true of the next conversation, too."""
    return msgspec.structs.replace(dialect, replay=True, think=True, these_pictures=True)


_Fields = dict[str, Any]
_RULES: tuple[tuple[tuple[str, ...], _Fields, _Fields], ...] = (
    (
        ("support image", "image input", "vision", "multimodal", "image content"),
        {"pictures": True, "these_pictures": True},
        {"pictures": False},
    ),
    (("image",), {"pictures": True, "these_pictures": True}, {"these_pictures": False}),
    (("eager_input_streaming",), {"eager": True}, {"eager": False}),
    (("grammar", "schema conversion"), {"schemas": True}, {"schemas": False}),
    (("cache_control",), {"cache": True}, {"cache": False}),
    (("temperature",), {"temperature": True}, {"temperature": False}),
    (("block_binding", "anthropic-beta", BINDING_BETA), {"binding": True}, {"binding": False}),
    (("display",), {"summary": True}, {"summary": False}),
    (("expected `thinking`",), {"think": True}, {"think": False}),
    (
        ("signature", "cannot be modified", "different conversation", "redacted_thinking"),
        {"replay": True},
        {"replay": False},
    ),
    (("between_tools",), {"off": ThinkingOffMode.DISABLED}, {"off": ThinkingOffMode.BETWEEN_TOOLS}),
    (("disabled",), {"off": ThinkingOffMode.DISABLED}, {"off": ThinkingOffMode.LOW}),
    (("between_tools",), {"off": ThinkingOffMode.BETWEEN_TOOLS}, {"off": ThinkingOffMode.LOW}),
    (("type.enabled", "budget"), {"form": ThinkingMode.BUDGET}, {"form": ThinkingMode.ADAPTIVE}),
    (("adaptive",), {"form": ThinkingMode.ADAPTIVE}, {"form": ThinkingMode.BUDGET}),
    (("xhigh",), {"xhigh": True}, {"xhigh": False}),
    (("effort", "output_config"), {"effort": True}, {"effort": False}),
    (("thinking",), {"form": ThinkingMode.ADAPTIVE}, {"form": ThinkingMode.NONE}),
    (("thinking",), {"form": ThinkingMode.BUDGET}, {"form": ThinkingMode.NONE}),
)
"""Words of a refusal; what must have been sent for them to be about it; what to send instead."""


def _parse_version(written: str | None) -> tuple[int, int]:
    if written is None:  # an alias for the latest one
        return _NEWEST
    major, _, minor = written.replace("-", ".").partition(".")
    return int(major), int(minor or 0)


def _thinking_mode(version: tuple[int, int]) -> ThinkingMode:
    if version < (3, 7):
        return ThinkingMode.NONE
    return ThinkingMode.BUDGET if version < (4, 6) else ThinkingMode.ADAPTIVE


def _thinking_off_mode(family: str, version: tuple[int, int]) -> ThinkingOffMode:
    if family in _ALWAYS_THINKING or (family == "opus" and version >= (5, 5)):
        return ThinkingOffMode.LOW
    if version < (5, 0):
        return ThinkingOffMode.SILENT
    return (
        ThinkingOffMode.BETWEEN_TOOLS
        if family == "sonnet" and version >= (5, 5)
        else ThinkingOffMode.DISABLED
    )
