"""Configuration of the Slack platform."""

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct

from sessions.values.secret import Secret


class SlackConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An app in a Slack workspace."""

    bot_token: Annotated[Secret, Meta(description="Bot token of the app (`xoxb-…`).")]
    app_token: Annotated[
        Secret | None, Meta(description="App-level token (`xapp-…`), for Socket Mode.")
    ] = None
    base_url: Annotated[
        str,
        Meta(
            pattern=r"^https?://[^\s]+$",
            extra={"form": "an http:// or https:// address"},
            description="Address of Slack's Web API.",
        ),
    ] = "https://slack.com/api/"
    mode: Annotated[
        Literal["socket", "http"],
        Meta(
            description="How events arrive: over a connection that Holdfast opens (Socket Mode), or "
            "as requests from Slack to `/slack/events` on the HTTP port."
        ),
    ] = "socket"
    signing_secret: Annotated[
        Secret | None,
        Meta(description='Secret that Slack signs requests with, for `mode = "http"`.'),
    ] = None
    require_mention: Annotated[
        bool, Meta(description="In channels, answer only messages that mention the app.")
    ] = True

    def conflicts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """See `gateway.settings`."""
        if self.mode == "socket" and self.app_token is None:
            yield ("app_token",), "is missing; set it, or SLACK_APP_TOKEN in the environment"
        if self.mode == "http" and self.signing_secret is None:
            yield ("signing_secret",), 'is missing, and mode = "http" needs it'
