"""Sans-IO: the events of the Messages protocol as our chunks.

An answer is a row of blocks, each begun, added to and ended by events with its index. Arguments of
a call come as pieces of JSON and are passed on as they are; only the end of its block seals a call.
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
from agent.providers.anthropic.refusals import failed_with
from agent.providers.transport.body import BEAT, DONE, PING, BodyReader, not_json, read_json
from agent.providers.transport.sse import SseComment, SseEvent

_NOTHING = msgspec.Raw(b"{}")


class _Text(msgspec.Struct, tag="text"):
    text: str | None = None


class _Thinking(msgspec.Struct, tag="thinking"):
    thinking: str | None = None
    signature: str | None = None


class _Redacted(msgspec.Struct, tag="redacted_thinking"):
    data: str | None = None


class _ToolUse(msgspec.Struct, tag="tool_use"):
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = _NOTHING


_Block = _Text | _Thinking | _Redacted | _ToolUse


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


class _Beginning(msgspec.Struct):
    usage: _Usage | None = None


class _Ending(msgspec.Struct):
    stop_reason: str | None = None


class _MessageStart(msgspec.Struct, tag="message_start"):
    message: _Beginning | None = None


class _BlockStart(msgspec.Struct, tag="content_block_start"):
    content_block: _Block
    index: int = 0


class _BlockDelta(msgspec.Struct, tag="content_block_delta"):
    delta: _Delta
    index: int = 0


class _BlockStop(msgspec.Struct, tag="content_block_stop"):
    index: int = 0


class _MessageDelta(msgspec.Struct, tag="message_delta"):
    delta: _Ending | None = None
    usage: _Usage | None = None


class _MessageStop(msgspec.Struct, tag="message_stop"):
    pass


class _Ping(msgspec.Struct, tag="ping"):
    pass


class _Error(msgspec.Struct, tag="error"):
    error: Any = None


class _Whole(msgspec.Struct, tag="message"):
    """An answer that was not streamed."""

    content: list[msgspec.Raw] = []
    stop_reason: str | None = None
    usage: _Usage | None = None


_Event = (
    _BlockDelta
    | _BlockStart
    | _BlockStop
    | _MessageStart
    | _MessageDelta
    | _MessageStop
    | _Ping
    | _Error
    | _Whole
)
_decode = msgspec.json.Decoder(_Event).decode
_decode_block = msgspec.json.Decoder(_Block).decode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

_WHOLE = frozenset({"tool_use", "end_turn", "stop_sequence"})
"""Reasons to stop that leave the last block as it was meant."""


class MessageReader(BodyReader):
    """Reads the body of one answer: a stream of events, or one piece of JSON all the same."""

    def __init__(self) -> None:
        super().__init__(_Events().read)


class _Events:
    """Reads one event after the other."""

    def __init__(self) -> None:
        self._unsaid: dict[int, msgspec.Raw] = {}  # calls under way: what they began with
        self._usage = _Usage()

    def read(self, event: SseEvent | SseComment) -> Iterable[Chunk]:
        """Read one event; raises the `ProviderError` that the service put into the stream."""
        if isinstance(event, SseComment):
            return (BEAT,)
        try:
            decoded = _decode(event.data)
        except msgspec.DecodeError:
            return self._read_odd(event)
        return self._chunks(decoded)

    def _read_odd(self, event: SseEvent) -> Iterable[Chunk]:
        """Read what is not as the protocol says, or newer than what we know of it."""
        if event.data.strip() == b"[DONE]":
            return (DONE,)
        try:
            fields = read_json(event.data, object)
        except msgspec.DecodeError:
            raise not_json(event) from None
        error = fields.get("error") if isinstance(fields, dict) else None
        if error or event.name == "error":
            raise failed_with(error or fields)
        try:
            return self._chunks(msgspec.json.decode(msgspec.json.encode(fields), type=_Event))
        except msgspec.ValidationError:
            return (PING,)

    def _chunks(self, event: _Event) -> Iterable[Chunk]:
        match event:
            case _BlockDelta(delta, index):
                return self._added(index, delta)
            case _BlockStart(block, index):
                return self._begun(index, block)
            case _BlockStop(index):
                return self._ended(index)
            case _MessageStart(message):
                return (self._used(message.usage),) if message and message.usage else (PING,)
            case _MessageDelta(ending, usage):
                return tuple(self._over(ending.stop_reason if ending else None, usage)) or (PING,)
            case _MessageStop():
                return (DONE,)
            case _Ping():
                return (BEAT,)
            case _Error(error):
                raise failed_with(error or "the model service reports an error without a word")
            case _Whole():
                return self._whole(event)

    def _added(self, index: int, delta: _Delta) -> Iterable[Chunk]:
        match delta:
            case _TextDelta(text) if text:
                return (TextChunk(text),)
            case _ArgumentsDelta(piece) if piece and index in self._unsaid:
                self._unsaid[index] = _NOTHING
                return (CallChunk(index, arguments=piece),)
            case _ThinkingDelta(thought) if thought:
                return (ReasoningChunk(thought), OpaqueChunk(index, {"thinking": thought}))
            case _SignatureDelta(signature) if signature:
                return (OpaqueChunk(index, {"signature": signature}),)
            case _:
                return (PING,)

    def _begun(self, index: int, block: _Block) -> Iterable[Chunk]:
        if isinstance(block, _ToolUse):
            self._unsaid[index] = block.input
            return (CallChunk(index, block.id, block.name),)
        return _said(index, block)

    def _ended(self, index: int) -> Iterable[Chunk]:
        unsaid = self._unsaid.pop(index, None)
        if unsaid is None:
            return (PING,)
        return (CallChunk(index, arguments=_arguments(unsaid), ended=True),)

    def _whole(self, message: _Whole) -> Iterator[Chunk]:
        last = len(message.content) - 1
        for index, raw in enumerate(message.content):
            try:
                block = _decode_block(raw)
            except msgspec.ValidationError:
                continue  # of a kind that we never ask for
            if isinstance(block, _ToolUse):
                # An input that was cut is closed all the same before it is sent.
                ended = index < last or message.stop_reason in _WHOLE
                yield CallChunk(index, block.id, block.name, _arguments(block.input), ended=ended)
            else:
                yield from _said(index, block)
        yield from self._over(message.stop_reason, message.usage)
        yield DONE

    def _over(self, reason: str | None, usage: _Usage | None) -> Iterator[Chunk]:
        if reason:
            yield FinishChunk(reason)
        if usage:
            yield self._used(usage)

    def _used(self, usage: _Usage) -> UsageChunk:
        """Count; the end of an answer does not repeat all that its beginning said."""
        said = {k: v for k, v in msgspec.structs.asdict(usage).items() if v is not None}
        self._usage = now = msgspec.structs.replace(self._usage, **said)
        cached = now.cache_read_input_tokens or 0
        fresh = (now.input_tokens or 0) + (now.cache_creation_input_tokens or 0)
        return UsageChunk(fresh + cached, now.output_tokens or 0, cached_tokens=cached)


def _said(index: int, block: _Text | _Thinking | _Redacted) -> tuple[Chunk, ...]:
    match block:
        case _Text(text):
            return (TextChunk(text),) if text else (PING,)
        case _Thinking(thought, signature):
            fields = {"type": "thinking", "thinking": thought or "", "signature": signature or ""}
            opaque = OpaqueChunk(index, fields)
            return (ReasoningChunk(thought), opaque) if thought else (opaque,)
        case _Redacted(data):
            return (OpaqueChunk(index, {"type": "redacted_thinking", "data": data or ""}),)


def _arguments(given: msgspec.Raw) -> str | None:
    """Give the text of an object; an empty one may be just a beginning, and says nothing."""
    try:
        fields = _decode_fields(given)
    except msgspec.DecodeError:
        return None
    return bytes(given).decode() if fields else None
