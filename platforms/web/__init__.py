"""The web page: a chat platform served by the daemon's HTTP port.

adapter      the platform as the gateway sees it
api, door    HTTP endpoints; sign-in by one-time link and cookie
hub, scene   open pages and their wake-ups; drafts and edits that the archive does not have
stream       server-sent events of one page; wire: names, bodies and events of both directions
attachments  uploads; files: static files of the page, which are in `page/`
"""

from typing import Any

import msgspec

from platforms.core.contract import PlatformSpec, Surroundings
from platforms.web.adapter import WebAdapter

__all__ = ["SPEC", "WebAdapter", "WebConfig"]


class WebConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[platforms.web]`; has no keys, see `[http]`."""


def _build(_: Any, surroundings: Surroundings) -> WebAdapter:  # noqa: ANN401 - the registry knows no config type
    return WebAdapter(surroundings)


SPEC = PlatformSpec(name="web", config=WebConfig, build=_build)
