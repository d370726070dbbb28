"""Telegram adapter, built on python-telegram-bot's `Bot`.

`adapter` implements the platform contract; `config`, `capabilities` and `guide` describe it, and
`probe` checks the bot without starting the adapter.
Inbound: `polling` and `webhook` get raw updates; `receive` stores them in order, using `decode`
(updates to events), `payloads` (Telegram's objects), `join` (albums, split texts, forwards) and
`room_context` (earlier messages in a room). `held` keeps events of people whose membership in a
group is not known yet. `files` downloads attachments.
Outbound: `send` carries out ops; `format_rich` and `format_entities` render Markdown.
Both: `http` holds the connections, `errors` translates library errors into contract errors.
"""

import contextlib
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from platforms.core.contract import Adapter, PlatformSpec, Surroundings
from platforms.core.probed import ProbeResult
from platforms.telegram.config import TelegramConfig
from platforms.telegram.guide import GUIDE

__all__ = ["SPEC", "TelegramConfig"]

_LIBRARY = "telegram"

if find_spec(_LIBRARY) is None:
    msg = "python-telegram-bot is not installed"
    raise ModuleNotFoundError(msg, name=_LIBRARY)


def _build(config: Any, surroundings: Surroundings) -> Adapter:  # noqa: ANN401 - the registry knows no config type
    with _left_out("cryptography"):  # 7 MB, used only for Telegram Passport
        from platforms.telegram.adapter import TelegramAdapter

    return TelegramAdapter(config, surroundings)


async def _probe(config: Any, *, alone: bool = False) -> ProbeResult:  # noqa: ANN401 - as above
    with _left_out("cryptography"):
        from platforms.telegram.probe import probe

    return await probe(config, alone=alone)


async def _mend(config: Any, mend: str) -> str:  # noqa: ANN401 - as above
    with _left_out("cryptography"):
        from platforms.telegram import probe

    return await probe.mend(config, mend)


@contextlib.contextmanager
def _left_out(name: str) -> Iterator[None]:
    """Make imports inside the block see module `name` as not installed."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # Python then raises ModuleNotFoundError
    try:
        yield
    finally:
        del sys.modules[name]


SPEC = PlatformSpec(
    name="telegram",
    config=TelegramConfig,
    build=_build,
    secrets={"token": "TELEGRAM_BOT_TOKEN"},
    guide=GUIDE,
    probe=_probe,
    mend=_mend,
)
