"""Factory of Telegram adapters that talk to the fake server."""

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from platforms.core.contract import MenuEntry, Surroundings
from platforms.telegram.adapter import TelegramAdapter
from platforms.telegram.config import TelegramConfig
from platforms.telegram.polling import PollTiming
from sessions.values.clock import Clock
from sessions.values.ids import Ids
from sessions.values.secret import Secret
from tests.fakes.archive import MemoryArchive, MemoryShelf
from tests.fakes.quick_time import clock_here
from tests.fakes.telegram.server import TOKEN, TelegramServer


def config(server: TelegramServer, **more: Any) -> TelegramConfig:
    return TelegramConfig(token=Secret(TOKEN), base_url=server.url, **more)


@contextlib.asynccontextmanager
async def telegram(
    server: TelegramServer,
    *,
    shelf: Any = None,
    clock: Clock | None = None,
    commands: Any = (),
    prompts: Callable[[], tuple[MenuEntry, ...]] = tuple,
    patience: float = 5.0,
    grace: float = 5.0,
    joining: float = 0.05,
    trouble: Callable[[str], None] = lambda _: None,
    memberships: bool = True,
    **configured: Any,
) -> AsyncIterator[TelegramAdapter]:
    used = clock or clock_here()
    surroundings = Surroundings(
        used,
        Ids(used),
        shelf=shelf if shelf is not None else MemoryShelf(),
        archive=MemoryArchive(),
        commands=commands,
        prompts=prompts,
        trouble=trouble,
        memberships=memberships,
    )
    adapter = TelegramAdapter(
        config(server, **configured),
        surroundings,
        poll_timing=PollTiming(poll=patience, grace=grace, conflict_pause=0.05, conflict_over=0.5),
        join_scale=joining,
    )
    try:
        yield adapter
    finally:
        await adapter.aclose()
