"""Public name of the provider contract, which is defined in `agent.model.contract`."""

from agent.model.contract import (
    CallChunk,
    Chunk,
    DoneChunk,
    FinishChunk,
    ModelRequest,
    OpaqueChunk,
    OpenedChunk,
    Picture,
    PingChunk,
    Provider,
    ReasoningChunk,
    TextChunk,
    ToolSchema,
    UsageChunk,
    WholeChunk,
)

__all__ = [
    "CallChunk",
    "Chunk",
    "DoneChunk",
    "FinishChunk",
    "ModelRequest",
    "OpaqueChunk",
    "OpenedChunk",
    "Picture",
    "PingChunk",
    "Provider",
    "ReasoningChunk",
    "TextChunk",
    "ToolSchema",
    "UsageChunk",
    "WholeChunk",
]
