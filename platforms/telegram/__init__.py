"""Telegram, through python-telegram-bot's `Bot`.

  config        `[platforms.telegram]`; guide: how somebody gets a bot
  capabilities  what Telegram can do, in private chats and in groups
  adapter       the platform as the gateway knows it
coming in
  polling       asks for updates, and acknowledges what is stored
  webhook       is sent updates, and answers when they are stored
  intake        from raw updates to the inbox, in order
  joining       several messages that are one: albums, pasted texts, forwards
  reading       what an update says
  wire          how Telegram writes it
  files         what people attach, piece by piece
going out
  showing       ops as calls: the best form first, then plainer ones
  rich          a Markdown text as a rich message
  entities      ... as text with entities
between
  request       connections, in several pools
  errors        what can go wrong, as the contract's errors
  probe         whether the bot can work, asked without connecting it
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
    with _left_out("cryptography"):  # 7 MB, with which the library reads passports; we do not
        from platforms.telegram.adapter import TelegramAdapter  # noqa: PLC0415 - loads the library

    return TelegramAdapter(config, surroundings)


async def _probe(config: Any, *, alone: bool = False) -> ProbeResult:  # noqa: ANN401 - as above
    with _left_out("cryptography"):
        from platforms.telegram.probe import probe  # noqa: PLC0415 - loads the library

    return await probe(config, alone=alone)


async def _mend(config: Any, mend: str) -> str:  # noqa: ANN401 - as above
    with _left_out("cryptography"):
        from platforms.telegram import probe  # noqa: PLC0415 - loads the library

    return await probe.mend(config, mend)


@contextlib.contextmanager
def _left_out(name: str) -> Iterator[None]:
    """Have what is loaded here do without a module as if it were not installed."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # so Python itself marks what is not there
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
