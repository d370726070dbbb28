"""The built-in demo provider, with scripted answers instead of a model.

A fresh installation can be tried at once: streaming, Markdown and tool calls go through the same
code as with a real model.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager

from agent.model.contract import (
    CallChunk,
    Chunk,
    DoneChunk,
    FinishChunk,
    ModelRequest,
    OpenedChunk,
    TextChunk,
    UsageChunk,
)
from agent.settings import TargetSettings
from sessions.records import Message, MessageRole

WORD_SECONDS = 0.03
"""Seconds between words, about reading speed."""

Sleep = Callable[[float], Awaitable[None]]

_TOOL = "current_time"
_ASKS_FOR_TOOL = re.compile(r"\b(time|clock|tools?|date|hour)\b", re.IGNORECASE)
_ADDED_PREFIX = re.compile(r"\A\[[^\]\n]+\]\s+")  # a name or note added by the request builder
_MAX_ECHO_LENGTH = 2000

_ANSWER = """\
**This is the demo: there is no model behind it.** It shows that everything else works.

You wrote:

> {echo}

That was message number {count} of this conversation. To talk to a real model, either

- start with an API key: `OPENAI_API_KEY=… make run`
- or set a model in `holdfast.toml`; any OpenAI-compatible server works:

```toml
[model]
provider = "openai"
name = "gpt-5.5"
# base_url = "http://127.0.0.1:11434/v1"   # your own server
```

{hint}
"""
_HINT = "Ask me for the *time* to see a tool call."
_BEFORE_TOOL = "I'm only a demo without a model, but I can show you a tool call. "
_AFTER_TOOL = """\
The tool `{tool}` returned:

```text
{result}
```

A real model would use this result in its answer. This is the **demo: there is no model behind it**; add one \
with `OPENAI_API_KEY=… make run`, or under `[model]` in `holdfast.toml`.
"""


def build(settings: TargetSettings) -> "DemoProvider":
    """Build the provider, which has no settings."""
    del settings
    return DemoProvider()


class DemoProvider:
    """A provider with scripted answers."""

    name = "demo"

    def __init__(self, sleep: Sleep = asyncio.sleep, word_seconds: float = WORD_SECONDS) -> None:
        self._sleep = sleep
        self._word_seconds = word_seconds

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[Chunk]]:
        """See `Provider`."""
        return self._stream(request)

    async def aclose(self) -> None:
        """See `Provider`; nothing is open."""

    @asynccontextmanager
    async def _stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[Chunk]]:
        async with aclosing(self._chunks(request)) as chunks:
            yield chunks

    async def _chunks(self, request: ModelRequest) -> AsyncGenerator[Chunk]:
        yield OpenedChunk()
        output_tokens = 0
        for chunk in answer_chunks(request):
            output_tokens += 1
            yield chunk
            if isinstance(chunk, TextChunk):
                await self._sleep(self._word_seconds)
        yield UsageChunk(sum(len(row.content.split()) for row in request.messages), output_tokens)
        yield DoneChunk()


def answer_chunks(request: ModelRequest) -> Iterator[Chunk]:
    """Return the text, tool call and finish reason of the answer to a request."""
    last = request.messages[-1] if request.messages else Message(MessageRole.USER)
    can_call = any(tool.name == _TOOL for tool in request.tools)
    if last.role == MessageRole.TOOL:
        yield from _word_chunks(_AFTER_TOOL.format(tool=_TOOL, result=last.content))
    elif can_call and _ASKS_FOR_TOOL.search(last.content):
        yield from _word_chunks(_BEFORE_TOOL)
        yield CallChunk(index=0, name=_TOOL, arguments='{"timezone":"UTC"}')
        yield FinishChunk("tool_calls")
        return
    else:
        count = sum(row.role == MessageRole.USER for row in request.messages)
        hint = _HINT if can_call else ""
        yield from _word_chunks(_ANSWER.format(echo=_quote(last.content), count=count, hint=hint))
    yield FinishChunk("stop")


def _word_chunks(text: str) -> Iterator[TextChunk]:
    return map(TextChunk, re.findall(r"\S+\s*", text.rstrip()))


def _quote(text: str) -> str:
    own = _ADDED_PREFIX.sub("", text).strip()
    shown = own if len(own) <= _MAX_ECHO_LENGTH else f"{own[:_MAX_ECHO_LENGTH]}…"
    return "\n> ".join(shown.splitlines()) or "(nothing)"
