"""The settings of a whole gateway in front of a scripted model."""

from collections.abc import Mapping
from typing import Any

import msgspec

from agent.settings import ModelSettings, Timeouts
from gateway.access.settings import AccessSettings
from gateway.settings import GatewaySettings, HttpSettings, LimitSettings, Settings
from sessions.values.secret import Secret
from tests.fakes.model_server import ModelServer


def scripted_model(server: ModelServer, **changes: Any) -> ModelSettings:
    """Settings of a model that the server plays, with short pauses between attempts."""
    settings = ModelSettings(
        provider="openai",
        name="scripted",
        base_url=server.url,
        api_key=Secret("sk-none"),
        timeouts=Timeouts(backoff=0.01),
    )
    return msgspec.structs.replace(settings, **changes)


def scripted(
    model: ModelServer,
    platforms: Mapping[str, msgspec.Struct],
    access: AccessSettings,
    /,
    **changes: Any,
) -> Settings:
    """One model, nothing to wait for at the end, any free port, as many messages as one likes.

    `changes` are settings that take the place of these, whatever their names.
    """
    settings = Settings(
        gateway=GatewaySettings(drain_seconds=0),
        model=scripted_model(model),
        access=access,
        http=HttpSettings(port=0),
        limits=LimitSettings(messages_per_minute=10_000),
        platforms=dict(platforms),
    )
    return msgspec.structs.replace(settings, **changes)
