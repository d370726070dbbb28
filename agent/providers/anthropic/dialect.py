"""Sans-IO: features of models by name, and simpler variants after an error.

Claude models differ most in the control of thinking. Models up to 3.5 do not think; models up to
4.5 take a budget of tokens; models from 4.6 on take an effort and decide themselves; models from 5
on think by default, and some cannot stop. Other models behind this protocol are treated like 4.5,
except that they may think without being asked.
"""

import enum
import re
from collections.abc import Iterator
from typing import Any

import msgspec

BINDING_BETA = "thinking-binding-controls-2026-08-01"
_NAME = re.compile(
    r"claude-(?:(?P<old>\d(?:[-.]\d)?)-)?(?P<family>[a-z]+)(?:-(?P<new>\d{1,2}(?:[-.]\d{1,2})?)(?!\d))?"
)
_NEWEST = (99, 0)
_ALWAYS_THINKING = frozenset({"fable", "mythos"})


class ThinkingMode(enum.Enum):
    """Ways to turn thinking on."""

    ADAPTIVE = "adaptive"
    BUDGET = "budget"
    NONE = "none"  # the request has no such field


class ThinkingOffMode(enum.Enum):
    """Ways to turn thinking off."""

    SILENT = "silent"  # the request has no such field
    DISABLED = "disabled"
    BETWEEN_TOOLS = "between_tools"  # off except for short notes between tool calls
    LOW = "low"  # thinking cannot be turned off, only reduced


class AnthropicDialect(msgspec.Struct, frozen=True, kw_only=True):
    """Features of one model at one service."""

    form: ThinkingMode = ThinkingMode.BUDGET
    off: ThinkingOffMode = ThinkingOffMode.SILENT
    unasked: bool = True  # thinks by default
    signed: bool = False  # accepts earlier thinking only with a signature
    summary: bool = False  # hides all thinking unless a summary is requested
    effort: bool = True  # accepts `output_config.effort`
    xhigh: bool = True  # accepts the effort "xhigh"
    binding: bool = False  # accepts earlier thinking only after unchanged messages
    temperature: bool = True
    eager: bool = True  # accepts `eager_input_streaming`
    cache: bool = True  # accepts `cache_control`
    schemas: bool = True  # accepts full tool schemas
    formats: bool = True  # accepts `output_config.format`
    forced: bool = True  # accepts a `tool_choice` that demands a call
    pictures: bool = True
    # Properties of one conversation, which are not remembered for the model:
    replay: bool = True  # earlier thinking is sent back
    think: bool = True
    these_pictures: bool = True


def dialect_for(model: str) -> AnthropicDialect:
    """Return the dialect of a model by name; prefixes and dates in the name do not matter."""
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
    """Yield dialects that may work after this error, the most likely one first."""
    message = complaint.lower()
    for phrases, sent, instead in _RULES:
        was_sent = all(getattr(dialect, field) == value for field, value in sent.items())
        if was_sent and any(phrase in message for phrase in phrases):
            yield msgspec.structs.replace(dialect, **instead)


def persistent_dialect(dialect: AnthropicDialect) -> AnthropicDialect:
    """Return the dialect without the restrictions that concern one conversation only."""
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
    (
        ("output_config.format", "output_format", "json_schema"),
        {"formats": True},
        {"formats": False},
    ),
    (("tool_choice",), {"forced": True}, {"forced": False}),
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
    (("output_config",), {"formats": True}, {"formats": False}),
    (("thinking",), {"form": ThinkingMode.ADAPTIVE}, {"form": ThinkingMode.NONE}),
    (("thinking",), {"form": ThinkingMode.BUDGET}, {"form": ThinkingMode.NONE}),
)
"""Phrases of an error; the fields to which they can refer; the fields to send instead."""


def _parse_version(written: str | None) -> tuple[int, int]:
    if written is None:  # an alias for the latest version
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
