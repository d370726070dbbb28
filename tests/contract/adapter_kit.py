"""The adapters on which the contract is tried, each with a way to play a person on its platform."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from platforms.core.contract import Accepted, Adapter, Live, Repeat
from platforms.memory import MemoryAdapter


@dataclass
class Stage:
    """An adapter, and the other side of it."""

    adapter: Adapter
    chat: str
    screen: Callable[[], list[str]]
    """What a person sees of us in the chat now, oldest first."""
    say: Callable[[str], Awaitable[Accepted]]
    """Let a person say something; returns when the platform was told that it arrived."""
    violations: Callable[[], list[str]]
    """What the platform would mind about us."""


def _memory(live: Live, repeat: Repeat) -> Callable[[], AbstractAsyncContextManager[Stage]]:
    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[Stage]:
        adapter = MemoryAdapter(live=live, repeat=repeat, burst=1000, account="second")
        yield Stage(
            adapter,
            "1001",
            lambda: adapter.screen("1001"),
            lambda text: adapter.say("1001", text),
            adapter.violations,
        )

    return opened


def available() -> dict[str, Callable[[], AbstractAsyncContextManager[Stage]]]:
    """Name every adapter that can be tried here, and how its stage is opened."""
    variants = {
        "final only": (Live.NONE, Repeat.MARK),
        "edits": (Live.EDIT, Repeat.NONCE),
        "streams": (Live.STREAM, Repeat.LOOKUP),
        "drafts": (Live.DRAFT, Repeat.ALWAYS),
    }
    return {f"memory: {name}": _memory(*variant) for name, variant in variants.items()}
