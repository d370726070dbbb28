"""Sans-IO: configuration of Discord (`[platforms.discord]`)."""

from typing import Annotated

import msgspec
from msgspec import Meta

from sessions.values.secret import Secret


class DiscordConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Discord bot."""

    token: Annotated[Secret, Meta(description="The bot's token.")]
    base_url: Annotated[
        str,
        Meta(
            pattern=r"^https?://[^\s]+$",
            extra={"form": "an http:// or https:// address"},
            description="Root of the REST API, including the version; the gateway's address comes "
            "from this API.",
        ),
    ] = "https://discord.com/api/v10"
    require_mention: Annotated[
        bool,
        Meta(description="In servers, answer only when mentioned, replied to or commanded."),
    ] = True
