"""Options of an API client for the answer to one request; stored with the request."""

import enum

import msgspec

from agent.model.contract import AnswerFormat, SamplingOptions, ToolSchema


class ToolMode(enum.StrEnum):
    """Use of tools that a client asks for."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"


class ClientToolChoice(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The `tool_choice` of a request."""

    mode: ToolMode = ToolMode.AUTO
    names: tuple[str, ...] = ()  # client tools that may be called; empty: all of them


class AnswerOptions(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Options for one answer."""

    tools: tuple[ToolSchema, ...] = ()  # run by the client
    tool_choice: ClientToolChoice = ClientToolChoice()
    parallel_tool_calls: bool | None = None
    sampling: SamplingOptions = SamplingOptions()
    format: AnswerFormat | None = None
