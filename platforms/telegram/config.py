"""Sans-IO: configuration of Telegram (`[platforms.telegram]`)."""

import re
from collections.abc import Iterator
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from sessions.values.secret import Secret

_MAX_SECRET_LENGTH = 256
_SECRET = re.compile(rf"[A-Za-z0-9_-]{{1,{_MAX_SECRET_LENGTH}}}")
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}


class TelegramConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Telegram bot."""

    token: Annotated[Secret, Meta(description="The bot's token, as @BotFather gave it.")]
    base_url: Annotated[
        str,
        Meta(
            pattern=r"^https?://[^\s]+$",
            extra={"form": "an address, such as https://api.telegram.org"},
            description="Address of the Bot API.",
        ),
    ] = "https://api.telegram.org"
    mode: Annotated[
        Literal["polling", "webhook"],
        Meta(
            description="How messages arrive: `polling` works everywhere, `webhook` lets Telegram "
            "send them to `webhook_url`."
        ),
    ] = "polling"
    webhook_url: Annotated[
        str,
        Meta(
            description="The public address at which Telegram reaches the HTTP port, with a path "
            "of its own: `https://bot.example.org/telegram`."
        ),
    ] = ""
    webhook_secret: Annotated[
        Secret | None,
        Meta(
            description="Secret that Telegram sends with each message to prove its origin; by "
            "default derived from the token."
        ),
    ] = None
    require_mention: Annotated[
        bool,
        Meta(
            description="In groups, answer only mentions, replies and commands; if false, every "
            "message in a group counts as addressed to the bot."
        ),
    ] = True

    def conflicts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """See `gateway.settings`."""
        if self.mode == "webhook":
            url = urlsplit(self.webhook_url)
            is_local = url.scheme == "http" and url.hostname in _LOOPBACK
            if not self.webhook_url:
                yield ("webhook_url",), "is missing; Telegram needs an address to send to"
            elif not is_local and url.scheme != "https":
                yield ("webhook_url",), "must begin with https://; Telegram accepts nothing else"
            elif not url.path.strip("/"):
                yield ("webhook_url",), "needs a path, such as /telegram at the end"
        if self.webhook_secret and not _SECRET.fullmatch(self.webhook_secret.reveal()):
            problem = f"may contain only letters, digits, _ and -, at most {_MAX_SECRET_LENGTH}"
            yield ("webhook_secret",), problem
