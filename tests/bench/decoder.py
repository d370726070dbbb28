"""Our decoding of streams against the iterators of the official SDKs, over the same bytes.

`python -m tests.bench.decoder` prints for each protocol how much CPU time ours takes of theirs;
`tests/bench/test_decoder.py` holds the limits. Both sides get their bytes from memory through the
SDK's own HTTP client, take turns in one process, and are measured from the open response to the end
of the answer: ours is the provider's whole stream of chunks, as the agent reads it.
"""

import argparse
import asyncio
import gc
import statistics
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

import anthropic
import httpx2
import msgspec
import openai

from agent.model.contract import (
    CallChunk,
    Chunk,
    FinishChunk,
    ModelRequest,
    OpaqueChunk,
    Provider,
    ReasoningChunk,
    TextChunk,
    UsageChunk,
)
from agent.providers.registry import build_provider
from sessions.records import Message
from tests.bench.corpus import Recording, as_received, recordings
from tests.fakes.agent_kit import settings_for
from tests.fakes.dialects.steps import PROTOCOLS, ProtocolName

LIMITS: dict[ProtocolName, float] = {"chat": 1 / 4, "responses": 1 / 4, "anthropic": 1 / 2}
"""The share of the SDK's CPU time that ours may take."""

ROUNDS = 15

Piece = tuple[Any, ...]
"""What an event says, in no library's words."""

_ASKED = ModelRequest("scripted", "", (Message("user", "go"),), max_output_tokens=4096)
_URL = "http://127.0.0.1:9/v1"


# --- where the bytes come from ---------------------------------------------------------------


class _Body(httpx2.AsyncByteStream):
    def __init__(self, reads: list[bytes]) -> None:
        self._reads = reads

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for read in self._reads:
            yield read


class _Memory(httpx2.AsyncBaseTransport):
    """Answers every request with the same reads."""

    def __init__(self, reads: list[bytes]) -> None:
        self._reads = reads

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        headers = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=headers, stream=_Body(self._reads))


# --- the two sides ---------------------------------------------------------------------------


class Sides:
    """Both ways to read one answer."""

    def __init__(self, recording: Recording, reads: list[bytes]) -> None:
        self._protocol = recording.protocol
        self._http = httpx2.AsyncClient(transport=_Memory(reads))
        options: dict[str, Any] = {
            "api_key": "sk-test",
            "max_retries": 0,
            "http_client": self._http,
        }
        self._openai = openai.AsyncOpenAI(base_url=_URL, **options)
        self._anthropic = anthropic.AsyncAnthropic(base_url=_URL, open_telemetry=False, **options)
        self._ours: Any = build_provider(settings_for(self._protocol, _URL))
        self._over(self._ours)

    def _over(self, provider: Any) -> None:
        """Let our provider read from memory as well."""
        clients = provider._clients
        pool = getattr(clients, "_pool", clients)
        chosen = self._anthropic if self._protocol == "anthropic" else self._openai
        pool._stream_counts.clear()
        pool._make_client = lambda: chosen

    @asynccontextmanager
    async def theirs(self) -> AsyncIterator[AsyncIterator[Any]]:
        """The SDK's own iterator."""
        said: list[Any] = [{"role": "user", "content": "go"}]
        stream: Any
        match self._protocol:
            case "chat":
                stream = await self._openai.chat.completions.create(
                    model="scripted", messages=said, stream=True
                )
            case "responses":
                stream = await self._openai.responses.create(
                    model="scripted", input=said, stream=True
                )
            case "anthropic":
                stream = await self._anthropic.messages.create(
                    model="scripted", messages=said, max_tokens=4096, stream=True
                )
        async with stream:
            yield stream

    def ours(self) -> AbstractAsyncContextManager[AsyncIterator[Chunk]]:
        """Our provider's stream."""
        provider: Provider = self._ours
        return provider.stream(_ASKED)

    async def aclose(self) -> None:
        await self._http.aclose()


# --- what was said ---------------------------------------------------------------------------


async def said_by_ours(sides: Sides) -> tuple[list[Piece], Piece]:
    """What our chunks say, piece by piece, and what it cost in the end."""
    pieces: list[Piece] = []
    usage: Piece = ()
    async with sides.ours() as chunks:
        async for chunk in chunks:
            match chunk:
                case TextChunk(text):
                    pieces.append(("text", text))
                case ReasoningChunk(text):
                    pieces.append(("reasoning", text))
                case CallChunk(index, id_, name, arguments) if id_ or name or arguments:
                    pieces.append(("call", index, id_, name, arguments or None))
                case OpaqueChunk(index, fields) if sealed := _sealed(fields):
                    pieces.append(("sealed", index, sealed))
                case FinishChunk(reason):
                    pieces.append(("finish", reason))
                case UsageChunk(spent_in, spent_out):
                    usage = (spent_in, spent_out)
                case _:
                    pass
    return pieces, usage


def _sealed(fields: dict[str, Any]) -> Any:
    return fields.get("signature") or fields.get("encrypted_content")


async def said_by_theirs(sides: Sides, protocol: ProtocolName) -> tuple[list[Piece], Piece]:
    """The same of the SDK's events."""
    read: dict[ProtocolName, Callable[[Any], list[Piece]]] = {
        "chat": _in_chat,
        "responses": _in_responses,
        "anthropic": _in_anthropic,
    }
    pieces: list[Piece] = []
    usage: Piece = ()
    async with sides.theirs() as events:
        async for event in events:
            for piece in read[protocol](event):
                if piece[0] == "usage":
                    usage = piece[1:]
                else:
                    pieces.append(piece)
    return pieces, usage


def _in_chat(event: Any) -> list[Piece]:
    pieces: list[Piece] = []
    for choice in event.choices:
        delta = choice.delta
        if thought := getattr(delta, "reasoning_content", None):
            pieces.append(("reasoning", thought))
        if delta.content:
            pieces.append(("text", delta.content))
        for call in delta.tool_calls or ():
            function = call.function
            arguments = function.arguments or None
            pieces.append(("call", call.index, call.id, function.name, arguments))
        if choice.finish_reason:
            pieces.append(("finish", choice.finish_reason))
    if event.usage:
        pieces.append(("usage", event.usage.prompt_tokens, event.usage.completion_tokens))
    return pieces


def _in_responses(event: Any) -> list[Piece]:
    match event.type:
        case "response.output_text.delta":
            return [("text", event.delta)]
        case "response.reasoning_summary_text.delta":
            return [("reasoning", event.delta)]
        case "response.output_item.added" if event.item.type == "function_call":
            return [("call", event.output_index, event.item.call_id, event.item.name, None)]
        case "response.function_call_arguments.delta" if event.delta:
            return [("call", event.output_index, None, None, event.delta)]
        case "response.output_item.done" if event.item.type == "reasoning":
            return [("sealed", event.output_index, event.item.encrypted_content)]
        case "response.completed":
            called = any(item.type == "function_call" for item in event.response.output)
            counted = event.response.usage
            return [
                ("usage", counted.input_tokens, counted.output_tokens),
                ("finish", "tool_calls" if called else "stop"),
            ]
        case _:
            return []


def _in_anthropic(event: Any) -> list[Piece]:
    match event.type:
        case "content_block_start" if event.content_block.type == "tool_use":
            block = event.content_block
            return [("call", event.index, block.id, block.name, None)]
        case "content_block_delta":
            return _in_anthropic_delta(event.index, event.delta)
        case "message_delta":
            counted = event.usage
            cached = (counted.cache_read_input_tokens or 0) + (
                counted.cache_creation_input_tokens or 0
            )
            return [
                ("finish", event.delta.stop_reason),
                ("usage", (counted.input_tokens or 0) + cached, counted.output_tokens),
            ]
        case _:
            return []


def _in_anthropic_delta(index: int, delta: Any) -> list[Piece]:
    match delta.type:
        case "text_delta":
            return [("text", delta.text)]
        case "thinking_delta":
            return [("reasoning", delta.thinking)]
        case "signature_delta":
            return [("sealed", index, delta.signature)]
        case "input_json_delta" if delta.partial_json:
            return [("call", index, None, None, delta.partial_json)]
        case _:
            return []


# --- measuring -------------------------------------------------------------------------------


class Measured(msgspec.Struct, frozen=True):
    """CPU seconds for one answer, round by round."""

    name: str
    protocol: ProtocolName
    events: int
    ours: list[float]
    theirs: list[float]

    @property
    def ratio(self) -> float:
        """What ours takes of theirs: the middle of all rounds."""
        return statistics.median(a / b for a, b in zip(self.ours, self.theirs, strict=True))


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Have no collection look at older things, and no coverage look at ours alone."""
    gc.freeze()
    tracing = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracing)
        gc.unfreeze()


async def _seconds(opened: AbstractAsyncContextManager[AsyncIterator[Any]]) -> float:
    async with opened as events:
        gc.collect()  # nobody pays for what another left behind
        began = time.process_time()
        async for _ in events:
            pass
        return time.process_time() - began


async def measure(recording: Recording, rounds: int = ROUNDS) -> Measured:
    """Read one answer both ways, taking turns."""
    async with _opened(recording) as sides:
        ours: list[float] = []
        theirs: list[float] = []
        await _seconds(sides.ours())  # the first time, much is set up that later stands ready
        await _seconds(sides.theirs())
        with _undisturbed():
            for _ in range(rounds):
                theirs.append(await _seconds(sides.theirs()))
                ours.append(await _seconds(sides.ours()))
        events = recording.body.count(b"\n\n")
        return Measured(recording.name, recording.protocol, events, ours, theirs)


@asynccontextmanager
async def _opened(recording: Recording) -> AsyncGenerator[Sides]:
    sides = Sides(recording, as_received(recording.body))
    try:
        yield sides
    finally:
        await sides.aclose()


async def both_say(
    recording: Recording,
) -> tuple[tuple[list[Piece], Piece], tuple[list[Piece], Piece]]:
    """What each side reads in an answer, ours first."""
    async with _opened(recording) as sides:
        return await said_by_ours(sides), await said_by_theirs(sides, recording.protocol)


def line(measured: Measured) -> str:
    """One measurement in words."""
    ours, theirs = (statistics.median(each) for each in (measured.ours, measured.theirs))
    per_event = 1e6 / measured.events
    return (
        f"{measured.protocol:<10} {measured.name:<10} {measured.events:>6} events"
        f"  ours {ours * per_event:6.2f} µs  SDK {theirs * per_event:6.2f} µs each"
        f"  ratio {measured.ratio:.3f} (at most {LIMITS[measured.protocol]:.2f})"
    )


def main() -> int:
    """Print all ratios; fail when one is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    chosen = parser.parse_args()
    over = False
    for protocol in PROTOCOLS:
        for recording in recordings(protocol):
            measured = asyncio.run(measure(recording, chosen.rounds))
            over = over or measured.ratio > LIMITS[protocol]
            sys.stdout.write(line(measured) + "\n")
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
