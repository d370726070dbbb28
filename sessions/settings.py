"""Configuration of the store and of conversations.

A settings struct may have a method `conflicts`: it yields the path of a key inside the struct, and
the reason why that key contradicts the others.
"""

from collections.abc import Iterator
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from sessions.values.secret import Secret

_SQLITE = "sqlite"
POSTGRESQL = "postgresql"

IGNORED_RETENTION_DAYS = 7
"""Days for which entries of ignored messages are kept."""

MAX_RESUMES = 3
"""Times that a turn is resumed, so that a turn that crashes the process does not do so forever."""


class StoreSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The database that holds conversations and all other durable state."""

    url: Annotated[
        Secret | None,
        Meta(
            description="`sqlite:///FILE` or `postgresql://USER:PASSWORD@HOST/NAME`. "
            "Left out: `holdfast.db` in the state folder."
        ),
    ] = None

    @property
    def engine(self) -> str:
        """Kind of database: `sqlite` or `postgresql`."""
        scheme = urlsplit(self.url.reveal()).scheme if self.url else _SQLITE
        return scheme.partition("+")[0]  # `postgresql+psycopg` names the driver as well

    def conflicts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield an unsupported URL scheme."""
        if self.engine not in {_SQLITE, POSTGRESQL}:
            yield ("url",), "must begin with sqlite:/// or postgresql://"


class SessionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When conversations are reset, and who shares one."""

    reset: Annotated[
        Literal["none", "idle", "daily", "both"],
        Meta(
            description="When a conversation is reset automatically: never, "
            "after `idle_minutes` of silence, every day at `daily_at`, or both."
        ),
    ] = "none"
    idle_minutes: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description='Minutes of silence; needed by `reset = "idle"` and `"both"`.'),
    ] = None
    daily_at: Annotated[
        Annotated[
            str,
            Meta(
                pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$",
                extra={"form": 'a time of day such as "04:00"'},
            ),
        ]
        | None,
        Meta(
            description="Time of day on this machine's clock; "
            'needed by `reset = "daily"` and `"both"`.'
        ),
    ] = None
    group_scope: Annotated[
        Literal["user", "shared"],
        Meta(description="In a room: one conversation for each person, or one for all."),
    ] = "user"
    on_interrupted: Annotated[
        Literal["suspend", "resume"],
        Meta(
            description="After a restart during a turn: notify the user and wait, "
            f"or resume the turn (at most {MAX_RESUMES} times)."
        ),
    ] = "suspend"
    keep_days: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(
            description="Days after which an unused conversation that is closed or suspended is deleted "
            "with all its data. A conversation that continues keeps its history, but older records of "
            "received messages, shown messages and tool runs are deleted. Left out: never."
        ),
    ] = None

    def conflicts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield reset keys that are missing or have no effect."""
        for key, value, users in (
            ("idle_minutes", self.idle_minutes, ("idle", "both")),
            ("daily_at", self.daily_at, ("daily", "both")),
        ):
            if self.reset in users and value is None:
                yield ("reset",), f'is "{self.reset}", which needs sessions.{key} as well'
            if self.reset not in users and value is not None:
                wanted = " or ".join(f'"{user}"' for user in users)
                yield (key,), f"has no effect unless sessions.reset is {wanted}"
