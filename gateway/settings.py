"""What can be configured about the daemon itself, and `Settings`, which holds everything.

A settings struct may have a method `conflicts`: it yields a key's path inside the struct, and what
is wrong with that key in view of the others.
"""

import ipaddress
import math
from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct

from agent.settings import (
    AgentSettings,
    McpSettings,
    ModelSettings,
    ToolSettings,
    VoiceSettings,
)
from gateway.access.policy import PersonEntry, parse_entry
from gateway.access.settings import AccessSettings, parse_error
from sessions.key import parse_key
from sessions.settings import POSTGRESQL, SessionSettings, StoreSettings
from sessions.values.duration import Duration
from sessions.values.loopback import is_loopback
from sessions.values.secret import Secret
from sessions.values.size import Size

KeyPath = tuple[str | int, ...]


AFTER_DRAIN_SECONDS = 30.0
"""Seconds from the end of the wait for running turns until systemd kills: what is to be shown gets
out, connections close, the database takes its last writes."""


_MAX_PORT = 65_535


class GatewaySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the daemon treats messages, stops and logs."""

    drain_seconds: Annotated[
        float, Meta(ge=0, description="How long running turns may finish when the daemon stops.")
    ] = 60.0
    busy: Annotated[
        Literal["queue", "steer", "interrupt", "collect"],
        Meta(
            description="A message that comes while a turn runs: waits its turn, is given to the "
            "model after the next tool result, cancels the turn and starts anew, or joins what "
            "waits into one message."
        ),
    ] = "queue"
    queue_limit: Annotated[
        int, Meta(ge=1, description="Messages that may wait in one conversation.")
    ] = 20
    reactions: Annotated[
        bool,
        Meta(
            description="Show by a sign on each message that it was taken in (👀), and that its "
            "turn is done (✅) or was not finished (❌), where a platform has such signs."
        ),
    ] = True
    stale_after: Annotated[
        Duration,
        Meta(description="Messages older than this when they reach us are not answered."),
    ] = Duration(86400)
    disk_low: Annotated[
        Size,
        Meta(
            description="With less room than this left where the state folder is, `/readyz` says "
            "that the disk is nearly full; `0`: never."
        ),
    ] = Size(200_000_000)
    log_format: Annotated[
        Literal["text", "json"], Meta(description="Lines for people or for programs.")
    ] = "text"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="Least level written.")
    ] = "info"


class MediaSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What people attach: it is put into the workspace, in the folder `received`."""

    largest: Annotated[
        Size,
        Meta(
            description="Larger files are not taken; the model and the person are told. Telegram "
            "gives a bot at most 20 MB."
        ),
    ] = Size(20_000_000)
    keep: Annotated[
        Duration,
        Meta(description="Files older than this are removed from the workspace; `0s`: never."),
    ] = Duration(30 * 86400)


class HttpSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP port: web page, API, webhooks, health."""

    host: Annotated[
        str,
        Meta(
            min_length=1,
            description="Address to listen on; one that others can reach needs an `api_key`.",
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int, Meta(ge=0, le=65535, description="Port to listen on; 0 takes any free one.")
    ] = 8420
    api_key: Annotated[
        Secret | None,
        Meta(
            description="Key that clients of the API show. Left out: a random one is made at the "
            "first start; `holdfast config show --secrets` prints it."
        ),
    ] = None
    allowed_hosts: Annotated[
        tuple[str, ...],
        Meta(
            description="Names under which the page may be reached besides this machine's own, as "
            'behind a proxy: `"chat.example.org"`.'
        ),
    ] = ()
    ui: Annotated[bool, Meta(description="Serve the web page.")] = True
    sse_keepalive: Annotated[
        float,
        Meta(gt=0, description="Seconds of silence after which a stream gets a sign of life."),
    ] = 15.0
    max_requests: Annotated[
        int,
        Meta(
            ge=1,
            description="Requests that may be at work at once; beyond that the answer is 429. "
            "Answers that are being streamed count, pages that are only open do not.",
        ),
    ] = 512
    slow_after: Annotated[
        Duration,
        Meta(
            description="A client is cut off when it goes no further with its request, or takes "
            "nothing of the answer, for this long."
        ),
    ] = Duration(30)
    fetch_pictures: Annotated[
        bool,
        Meta(
            description="Fetch pictures that a request of the API only points at (`https://…`), "
            "from the public internet; otherwise they are refused."
        ),
    ] = False
    fetch_pictures_from: Annotated[
        tuple[str, ...],
        Meta(
            description="Places of your own network that such pictures may come from as well, "
            'each an address and a port: `"10.0.0.5:8080"`.'
        ),
    ] = ()

    @property
    def picture_addresses(self) -> tuple[tuple[str, int], ...]:
        """The places of `fetch_pictures_from`."""
        return tuple(filter(None, map(_parse_address, self.fetch_pictures_from)))

    def conflicts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """See the module."""
        for index, text in enumerate(self.fetch_pictures_from):
            if _parse_address(text) is None:
                example = "10.0.0.5:8080 or [fd00::5]:8080"
                yield (
                    ("fetch_pictures_from", index),
                    f'"{text}" is no address and port, as {example}',
                )
        if not is_loopback(self.host) and self.api_key is None:
            yield (
                ("host",),
                f"{self.host} can be reached by others; set http.api_key, or use 127.0.0.1",
            )
        if self.api_key and not _is_header_value(self.api_key.reveal()):
            yield (
                ("api_key",),
                "may have only printable ASCII characters: clients send it in a header",
            )
        if self.slow_after <= 0:
            yield ("slow_after",), "must be longer than nothing, or every client would be cut off"


def _parse_address(text: str) -> tuple[str, int] | None:
    """Read an address, as numbers, and a port."""
    host, _, port = text.rpartition(":")
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
    fits = port.isascii() and port.isdigit() and 0 < int(port) <= _MAX_PORT
    return (str(address), int(port)) if fits else None


def _is_header_value(key: str) -> bool:
    return key.isascii() and key.isprintable()


Tokens = Annotated[int, Meta(ge=0)]
Dollars = Annotated[float, Meta(ge=0, le=1_000_000)]


class BudgetSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be spent on a day by several people together."""

    tokens_per_day: Annotated[
        Tokens | None, Meta(description="Model tokens a day. Left out: no limit.")
    ] = None
    usd_per_day: Annotated[
        Dollars | None, Meta(description="Dollars a day. Left out: no limit.")
    ] = None


class UserLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one person may use; what is left out is as for everybody."""

    messages_per_minute: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="Messages a minute.")
    ] = None
    tokens_per_day: Annotated[Tokens | None, Meta(description="Model tokens a day.")] = None
    usd_per_day: Annotated[Dollars | None, Meta(description="Dollars a day.")] = None


class LimitSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What each person may use; a day is one of the machine's clock. See docs/budgets.md."""

    messages_per_minute: Annotated[
        int,
        Meta(
            ge=1,
            description="Messages a minute. The owner at this machine (page, terminal) is not "
            "counted.",
        ),
    ] = 20
    tokens_per_day: Annotated[
        Tokens | None,
        Meta(
            description="Model tokens a day for each person. Left out: no limit. The owner at this "
            "machine, and whoever has the key of the API, has a limit only in `[limits.users]`, and "
            "counts in `[limits.all]`."
        ),
    ] = None
    usd_per_day: Annotated[
        Dollars | None,
        Meta(
            description="Dollars a day, likewise. The price of every model in use must be known: "
            "`model.price`, or the extra `prices`. Left out: no limit."
        ),
    ] = None
    all: Annotated[
        BudgetSettings, Meta(description="What everybody together may spend: `[limits.all]`.")
    ] = BudgetSettings()
    chats: Annotated[
        dict[str, BudgetSettings],
        Meta(
            description="What all people of one chat together may spend there: "
            '`[limits.chats."telegram:-100123"]`.'
        ),
    ] = {}
    users: Annotated[
        dict[str, UserLimits],
        Meta(description='Other limits for one person: `[limits.users."telegram:1001"]`.'),
    ] = {}

    def conflicts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """See the module."""
        for text in self.users:
            problem = parse_error(parse_entry, text)
            if problem:
                yield ("users", text), problem
            elif not isinstance(parse_entry(text), PersonEntry):
                yield ("users", text), "must be one person, such as telegram:1001"
        for text in self.chats:
            if problem := _chat_key_error(text):
                yield ("chats", text), problem

    @property
    def dollar_limit_key(self) -> str:
        """The first of the limits in dollars, as its key is called here; empty: there is none."""
        tables: dict[str, LimitSettings | BudgetSettings | UserLimits] = {
            "limits": self,
            "limits.all": self.all,
            **{f'limits.chats."{chat}"': found for chat, found in self.chats.items()},
            **{f'limits.users."{user}"': found for user, found in self.users.items()},
        }
        given = (name for name, table in tables.items() if table.usd_per_day is not None)
        return next((f"{name}.usd_per_day" for name in given), "")


def _chat_key_error(text: str) -> str:
    try:
        key = parse_key(text)
    except ValueError:
        return "is no chat; one looks like telegram:-100123 or slack:T1/C1"
    if key.thread or key.user:
        return "must be a whole chat, without a thread or a person in it"
    return ""


class BusSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What connects several machines of one deployment."""

    url: Annotated[
        str,
        Meta(
            pattern=r"^(local|(nats|tls)://[^\s]+)$",
            extra={"form": '"local" or a nats:// address'},
            description="`local` on one machine, `nats://HOST` on several.",
        ),
    ] = "local"


class RouteSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of single chats; the first route that matches counts."""

    match: Annotated[
        str,
        Meta(
            min_length=1,
            description="Chats it is for; `*` stands for anything: `telegram:-100*`, `slack:T1/C1`.",
        ),
    ]
    model: Annotated[
        str | None,
        Meta(description="Name of another model; what people choose by `/model` counts more."),
    ] = None
    system_prompt: Annotated[str | None, Meta(description="Another system prompt.")] = None
    tools: Annotated[
        tuple[str, ...] | None, Meta(description="Other families of tools; an empty list: none.")
    ] = None


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be configured."""

    gateway: GatewaySettings = GatewaySettings()
    store: StoreSettings = StoreSettings()
    model: ModelSettings = ModelSettings()
    agent: AgentSettings = AgentSettings()
    voice: VoiceSettings = VoiceSettings()
    media: MediaSettings = MediaSettings()
    tools: ToolSettings = ToolSettings()
    mcp: tuple[McpSettings, ...] = ()
    sessions: SessionSettings = SessionSettings()
    access: AccessSettings = AccessSettings()
    limits: LimitSettings = LimitSettings()
    platforms: dict[str, Struct] = {}  # each decoded by its PlatformSpec.config
    http: HttpSettings = HttpSettings()
    bus: BusSettings = BusSettings()
    route: tuple[RouteSettings, ...] = ()

    def conflicts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """See the module."""
        if self.bus.url != "local" and self.store.engine != POSTGRESQL:
            yield ("bus", "url"), "needs a store that several machines share: a postgresql:// url"
        names = [server.name for server in self.mcp]
        for index, name in enumerate(names):
            if name in names[:index]:
                yield ("mcp", index, "name"), f'"{name}" is taken by another [[mcp]]'


def max_stop_seconds(drain_seconds: float) -> int:
    """How long a daemon may take to stop, at most."""
    return math.ceil(drain_seconds + AFTER_DRAIN_SECONDS)
