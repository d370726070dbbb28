"""Sans-IO: our chunks from the events of the Messages API.

An answer is a list of blocks; events with the index of a block start, extend and stop the block.
The arguments of a call arrive as pieces of JSON and are passed on unchanged. Only the stop of the
block seals a call.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from agent.model.contract import (
    CallChunk,
    Chunk,
    FinishChunk,
    OpaqueChunk,
    ReasoningChunk,
    TextChunk,
    UsageChunk,
)
from agent.providers.anthropic.refusals import classify_error_event
from agent.providers.transport.body import (
    BEAT,
    DONE,
    PING,
    BodyReader,
    read_json,
    unreadable_event_error,
)
from agent.providers.transport.sse import SseComment, SseEvent

_EMPTY_OBJECT = msgspec.Raw(b"{}")


class _TextBlock(msgspec.Struct, tag="text"):
    text: str | None = None


class _ThinkingBlock(msgspec.Struct, tag="thinking"):
    thinking: str | None = None
    signature: str | None = None


class _RedactedBlock(msgspec.Struct, tag="redacted_thinking"):
    data: str | None = None


class _ToolUseBlock(msgspec.Struct, tag="tool_use"):
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = _EMPTY_OBJECT


_Block = _TextBlock | _ThinkingBlock | _RedactedBlock | _ToolUseBlock


class _TextDelta(msgspec.Struct, tag="text_delta"):
    text: str | None = None


class _ArgumentsDelta(msgspec.Struct, tag="input_json_delta"):
    partial_json: str | None = None


class _ThinkingDelta(msgspec.Struct, tag="thinking_delta"):
    thinking: str | None = None


class _SignatureDelta(msgspec.Struct, tag="signature_delta"):
    signature: str | None = None


_Delta = _TextDelta | _ArgumentsDelta | _ThinkingDelta | _SignatureDelta


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _MessageInfo(msgspec.Struct):
    usage: _Usage | None = None


class _MessageEnd(msgspec.Struct):
    stop_reason: str | None = None


class _MessageStart(msgspec.Struct, tag="message_start"):
    message: _MessageInfo | None = None


class _BlockStart(msgspec.Struct, tag="content_block_start"):
    content_block: _Block
    index: int = 0


class _BlockDelta(msgspec.Struct, tag="content_block_delta"):
    delta: _Delta
    index: int = 0


class _BlockStop(msgspec.Struct, tag="content_block_stop"):
    index: int = 0


class _MessageDelta(msgspec.Struct, tag="message_delta"):
    delta: _MessageEnd | None = None
    usage: _Usage | None = None


class _MessageStop(msgspec.Struct, tag="message_stop"):
    pass


class _Ping(msgspec.Struct, tag="ping"):
    pass


class _ErrorEvent(msgspec.Struct, tag="error"):
    error: Any = None


class _WholeMessage(msgspec.Struct, tag="message"):
    """A response without streaming."""

    content: list[msgspec.Raw] = []
    stop_reason: str | None = None
    usage: _Usage | None = None


_StreamEvent = (
    _BlockDelta
    | _BlockStart
    | _BlockStop
    | _MessageStart
    | _MessageDelta
    | _MessageStop
    | _Ping
    | _ErrorEvent
    | _WholeMessage
)
_decode = msgspec.json.Decoder(_StreamEvent).decode
_decode_block = msgspec.json.Decoder(_Block).decode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

_COMPLETE_STOP_REASONS = frozenset({"tool_use", "end_turn", "stop_sequence"})
"""Stop reasons after which the last block is complete."""


class MessageReader(BodyReader):
    """A reader for the body of one response."""

    def __init__(self) -> None:
        super().__init__(_EventReader().read)


class _EventReader:
    """Converts events to chunks."""

    def __init__(self) -> None:
        self._pending_inputs: dict[int, msgspec.Raw] = {}  # initial input of each open call
        self._usage = _Usage()

    def read(self, event: SseEvent | SseComment) -> Iterable[Chunk]:
        """Convert one event to chunks; raises the `ProviderError` for an error inside the stream."""
        if isinstance(event, SseComment):
            return (BEAT,)
        try:
            decoded = _decode(event.data)
        except msgspec.DecodeError:
            return self._read_unexpected(event)
        return self._event_chunks(decoded)

    def _read_unexpected(self, event: SseEvent) -> Iterable[Chunk]:
        """Convert an event that deviates from the protocol or is newer than this code."""
        if event.data.strip() == b"[DONE]":
            return (DONE,)
        try:
            fields = read_json(event.data, object)
        except msgspec.DecodeError:
            raise unreadable_event_error(event) from None
        error = fields.get("error") if isinstance(fields, dict) else None
        if error or event.name == "error":
            raise classify_error_event(error or fields)
        try:
            return self._event_chunks(
                msgspec.json.decode(msgspec.json.encode(fields), type=_StreamEvent)
            )
        except msgspec.ValidationError:
            return (PING,)

    def _event_chunks(self, event: _StreamEvent) -> Iterable[Chunk]:
        match event:
            case _BlockDelta(delta, index):
                return self._on_block_delta(index, delta)
            case _BlockStart(block, index):
                return self._on_block_start(index, block)
            case _BlockStop(index):
                return self._on_block_stop(index)
            case _MessageStart(message):
                return (self._usage_chunk(message.usage),) if message and message.usage else (PING,)
            case _MessageDelta(ending, usage):
                return tuple(self._end_chunks(ending.stop_reason if ending else None, usage)) or (
                    PING,
                )
            case _MessageStop():
                return (DONE,)
            case _Ping():
                return (BEAT,)
            case _ErrorEvent(error):
                raise classify_error_event(
                    error or "the model service reported an error without a message"
                )
            case _WholeMessage():
                return self._read_whole(event)

    def _on_block_delta(self, index: int, delta: _Delta) -> Iterable[Chunk]:
        match delta:
            case _TextDelta(text):
                return (TextChunk(text),) if text else (PING,)
            case _ArgumentsDelta(piece):
                if not piece or index not in self._pending_inputs:
                    return (PING,)
                self._pending_inputs[index] = _EMPTY_OBJECT
                return (CallChunk(index, arguments=piece),)
            case _ThinkingDelta(text):
                if not text:
                    return (PING,)
                return (ReasoningChunk(text), OpaqueChunk(index, {"thinking": text}))
            case _SignatureDelta(signature):
                return (OpaqueChunk(index, {"signature": signature}),) if signature else (PING,)

    def _on_block_start(self, index: int, block: _Block) -> Iterable[Chunk]:
        if isinstance(block, _ToolUseBlock):
            self._pending_inputs[index] = block.input
            return (CallChunk(index, block.id, block.name),)
        return _block_chunks(index, block)

    def _on_block_stop(self, index: int) -> Iterable[Chunk]:
        initial_input = self._pending_inputs.pop(index, None)
        if initial_input is None:
            return (PING,)
        return (CallChunk(index, arguments=_read_arguments(initial_input), ended=True),)

    def _read_whole(self, message: _WholeMessage) -> Iterator[Chunk]:
        last = len(message.content) - 1
        for index, raw in enumerate(message.content):
            try:
                block = _decode_block(raw)
            except msgspec.ValidationError:
                continue  # a type that our requests never lead to
            if isinstance(block, _ToolUseBlock):
                # A truncated input arrives as valid JSON; only the stop reason reveals it.
                ended = index < last or message.stop_reason in _COMPLETE_STOP_REASONS
                yield CallChunk(
                    index,
                    block.id,
                    name=block.name,
                    arguments=_read_arguments(block.input),
                    ended=ended,
                )
            else:
                yield from _block_chunks(index, block)
        yield from self._end_chunks(message.stop_reason, message.usage)
        yield DONE

    def _end_chunks(self, reason: str | None, usage: _Usage | None) -> Iterator[Chunk]:
        if reason:
            yield FinishChunk(reason)
        if usage:
            yield self._usage_chunk(usage)

    def _usage_chunk(self, usage: _Usage) -> UsageChunk:
        """Merge the counts, because the last event does not repeat all counts of the first one."""
        present = {k: v for k, v in msgspec.structs.asdict(usage).items() if v is not None}
        self._usage = merged = msgspec.structs.replace(self._usage, **present)
        cached = merged.cache_read_input_tokens or 0
        uncached = (merged.input_tokens or 0) + (merged.cache_creation_input_tokens or 0)
        return UsageChunk(uncached + cached, merged.output_tokens or 0, cached_tokens=cached)


def _block_chunks(
    index: int, block: _TextBlock | _ThinkingBlock | _RedactedBlock
) -> tuple[Chunk, ...]:
    match block:
        case _TextBlock(text):
            return (TextChunk(text),) if text else (PING,)
        case _ThinkingBlock(text, signature):
            fields = {"type": "thinking", "thinking": text or "", "signature": signature or ""}
            opaque = OpaqueChunk(index, fields)
            return (ReasoningChunk(text), opaque) if text else (opaque,)
        case _RedactedBlock(data):
            return (OpaqueChunk(index, {"type": "redacted_thinking", "data": data or ""}),)


def _read_arguments(raw: msgspec.Raw) -> str | None:
    """Return the text of an object; None if empty, because `{}` may be a mere placeholder."""
    try:
        fields = _decode_fields(raw)
    except msgspec.DecodeError:
        return None
    return bytes(raw).decode() if fields else None
