"""The web page: a chat platform of our own, served by the daemon's HTTP port.

`door` lets the owner in, `wire` says what travels, `scene` what a chat shows beyond the archive,
`attachments` keeps what people attach, `hub` tells the open pages about it, `stream` writes it to them, `api` answers requests, `adapter`
is the platform as the gateway knows it, and `page/` are the files the browser loads.
"""

from typing import Any

import msgspec

from platforms.core.contract import PlatformSpec, Surroundings
from platforms.web.adapter import WebAdapter

__all__ = ["SPEC", "WebAdapter", "WebConfig"]


class WebConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[platforms.web]`: nothing to configure here; see `[http]`."""


def _build(_: Any, surroundings: Surroundings) -> WebAdapter:  # noqa: ANN401 - the registry knows no config type
    return WebAdapter(surroundings)


SPEC = PlatformSpec(name="web", config=WebConfig, build=_build)
