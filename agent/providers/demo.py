"""The built-in demo: answers without any model, and says so.

It lets a fresh installation be tried at once: streaming, Markdown and a tool call all take the same
way through the program as a real model's.
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
from sessions.records import Message

WORD_SECONDS = 0.03
"""Seconds between words, about as fast as people read along."""

Sleep = Callable[[float], Awaitable[None]]

_TOOL = "current_time"
_ASKS_FOR_TOOL = re.compile(r"\b(time|clock|tools?|date|hour)\b", re.IGNORECASE)
_ADDED_PREFIX = re.compile(r"\A\[[^\]\n]+\]\s+")  # a name or note that the request put in front
_MAX_ECHO_LENGTH = 2000

_ANSWER = """\
**This is the demo: there is no model behind it.** It shows that everything else works.

You wrote:

> {echo}

That was message number {count} of this conversation. To talk to a real model, either

- start it with a key: `OPENAI_API_KEY=… make run`
- or name a model in `holdfast.toml`; any server that speaks OpenAI's protocol will do:

```toml
[model]
provider = "openai"
name = "gpt-5.5"
# base_url = "http://127.0.0.1:11434/v1"   # a server of your own
```

{hint}
"""
_HINT = "Ask me for the *time* to see a tool at work."
_BEFORE_TOOL = "I am only a demo without a model, but I can show you a tool at work. "
_AFTER_TOOL = """\
The tool `{tool}` answered:

```text
{result}
```

A real model would make something of it. This is the **demo: there is no model behind it**; add one \
with `OPENAI_API_KEY=… make run`, or under `[model]` in `holdfast.toml`.
"""


def build(settings: TargetSettings) -> "DemoProvider":
    """Make the provider; there is nothing to configure."""
    del settings
    return DemoProvider()


class DemoProvider:
    """Plays a model."""

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
        made = 0
        for chunk in answer_chunks(request):
            made += 1
            yield chunk
            if isinstance(chunk, TextChunk):
                await self._sleep(self._word_seconds)
        yield UsageChunk(sum(len(row.content.split()) for row in request.messages), made)
        yield DoneChunk()


def answer_chunks(request: ModelRequest) -> Iterator[Chunk]:
    """Everything that the answer to this request says."""
    last = request.messages[-1] if request.messages else Message("user")
    can_call = any(tool.name == _TOOL for tool in request.tools)
    if last.role == "tool":
        yield from _word_chunks(_AFTER_TOOL.format(tool=_TOOL, result=last.content))
    elif can_call and _ASKS_FOR_TOOL.search(last.content):
        yield from _word_chunks(_BEFORE_TOOL)
        yield CallChunk(index=0, name=_TOOL, arguments='{"timezone":"UTC"}')
        yield FinishChunk("tool_calls")
        return
    else:
        said = sum(row.role == "user" for row in request.messages)
        hint = _HINT if can_call else ""
        yield from _word_chunks(_ANSWER.format(echo=_quote(last.content), count=said, hint=hint))
    yield FinishChunk("stop")


def _word_chunks(text: str) -> Iterator[TextChunk]:
    return map(TextChunk, re.findall(r"\S+\s*", text.rstrip()))


def _quote(text: str) -> str:
    own = _ADDED_PREFIX.sub("", text).strip()
    shown = own if len(own) <= _MAX_ECHO_LENGTH else f"{own[:_MAX_ECHO_LENGTH]}…"
    return "\n> ".join(shown.splitlines()) or "(nothing)"
