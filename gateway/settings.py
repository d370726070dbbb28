"""Settings of the daemon, and `Settings`, the root of the whole configuration.

A settings struct can have a method `conflicts` that checks rules across several keys. The method
yields the path of a key inside the struct, and the problem.
"""

import ipaddress
import math
import re
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
from gateway.access.entries import PersonEntry, parse_entry
from gateway.access.settings import AccessSettings, parse_error
from sessions.key import parse_key
from sessions.settings import POSTGRESQL, SessionSettings, StoreSettings
from sessions.values.duration import Duration
from sessions.values.loopback import is_loopback
from sessions.values.secret import Secret
from sessions.values.size import Size

KeyPath = tuple[str | int, ...]


_AFTER_DRAIN_SECONDS = 30.0
"""Seconds between the end of the drain and the kill by systemd: time to deliver pending messages,
close connections and write to the database."""


_MAX_PORT = 65_535
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?:\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?")
"""A web origin: scheme, host and port, in lower case. Browser extensions have schemes of their own."""


class GatewaySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Handling of messages, shutdown and logs."""

    drain_seconds: Annotated[
        float,
        Meta(ge=0, description="Seconds that running turns get to finish when the daemon stops."),
    ] = 60.0
    busy: Annotated[
        Literal["queue", "steer", "interrupt", "collect"],
        Meta(
            description="What happens to a message that arrives while a turn runs. `queue`: it is "
            "answered afterwards. `steer`: it is given to the model after the next tool result, "
            "if it comes from the person whose turn it is. `interrupt`: it cancels a turn of the "
            "same person and starts a new one. `collect`: queued messages of the same person are "
            "joined into one."
        ),
    ] = "queue"
    queue_limit: Annotated[
        int, Meta(ge=1, description="Maximum number of queued messages in one conversation.")
    ] = 20
    reactions: Annotated[
        bool,
        Meta(
            description="React to each message when it was received (👀), and when its turn was "
            "done (✅) or failed (❌), on platforms with reactions."
        ),
    ] = True
    stale_after: Annotated[
        Duration,
        Meta(description="Messages older than this on arrival are not answered."),
    ] = Duration(86400)
    disk_low: Annotated[
        Size,
        Meta(
            description="Free space of the state folder's disk below which `/readyz` reports that "
            "the disk is nearly full; `0`: never."
        ),
    ] = Size(200_000_000)
    log_format: Annotated[
        Literal["text", "json"], Meta(description="Log format: text for people, JSON for programs.")
    ] = "text"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="Lowest level that is logged."),
    ] = "info"


class MediaSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Attachments of people, which are saved in the folder `received` of the workspace."""

    largest: Annotated[
        Size,
        Meta(
            description="Maximum size of a file. Larger files are not downloaded, and the model "
            "and the person are told. Telegram bots can download at most 20 MB."
        ),
    ] = Size(20_000_000)
    keep: Annotated[
        Duration,
        Meta(description="Files older than this are removed from the workspace; `0s`: never."),
    ] = Duration(30 * 86400)


ClientToolPolicy = Literal["pass", "ignore", "refuse"]


class HttpSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP port: web page, API, webhooks, health."""

    host: Annotated[
        str,
        Meta(
            min_length=1,
            description="Address to listen on. A public address requires an `api_key`.",
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int, Meta(ge=0, le=65535, description="Port to listen on; 0 takes any free one.")
    ] = 8420
    api_key: Annotated[
        Secret | None,
        Meta(
            description="API key of clients. Default: a random key, generated at the first start; "
            "`holdfast config show --secrets` prints the key."
        ),
    ] = None
    allowed_hosts: Annotated[
        tuple[str, ...],
        Meta(
            description="Host names that are accepted besides those of this machine, for example "
            'behind a proxy: `"chat.example.org"`.'
        ),
    ] = ()
    cors_origins: Annotated[
        tuple[str, ...],
        Meta(
            description="Origins of other web pages that may call the API from a browser, with the "
            'API key: `"https://app.example.org"`.'
        ),
    ] = ()
    ui: Annotated[bool, Meta(description="Serve the web page.")] = True
    open_metrics: Annotated[
        bool,
        Meta(
            description="Serve `/metrics` without the API key to programs on this machine. Tools "
            "that run here, such as MCP servers, can then read it too."
        ),
    ] = False
    trust_user_header: Annotated[
        bool,
        Meta(
            description="Believe API clients which user a request is for (`X-OpenWebUI-User-Id`, "
            "else `user`): `[limits]` then counts for each user below the key. Set it only if "
            "every client with a key tells the truth."
        ),
    ] = False
    user_token_secret: Annotated[
        Secret | None,
        Meta(
            description="Secret with which front ends sign the user of a request "
            "(`X-OpenWebUI-User-Jwt`; in Open WebUI `FORWARD_USER_INFO_HEADER_JWT_SECRET`). With it "
            "`trust_user_header` believes only signed users."
        ),
    ] = None
    sse_keepalive: Annotated[
        float,
        Meta(gt=0, description="Seconds without output after which a stream gets a keepalive."),
    ] = 15.0
    early_headers_after: Annotated[
        float,
        Meta(
            ge=0,
            description="Seconds after which an API answer that is not streamed sends its headers, "
            "and white space as keepalive, so that proxies keep the connection. A later failure then "
            "has the status 200. `0`: never.",
        ),
    ] = 50.0
    client_tools: Annotated[
        ClientToolPolicy,
        Meta(
            description="Tools in API requests: `pass` offers them to the model, and the client "
            "runs the calls; `ignore` leaves them out; `refuse` refuses such requests."
        ),
    ] = "pass"
    max_requests: Annotated[
        int,
        Meta(
            ge=1,
            description="Maximum number of concurrent requests; further ones get 429. Streamed "
            "answers count, open pages do not.",
        ),
    ] = 512
    slow_after: Annotated[
        Duration,
        Meta(
            description="A client is disconnected if it sends nothing of its request, or reads "
            "nothing of the answer, for this long."
        ),
    ] = Duration(30)
    fetch_pictures: Annotated[
        bool,
        Meta(
            description="Fetch pictures that an API request gives by address (`https://…`) from "
            "the public internet; otherwise such requests are refused."
        ),
    ] = False
    fetch_pictures_from: Annotated[
        tuple[str, ...],
        Meta(
            description="Servers in the private network from which such pictures may be fetched "
            'too, each an address and a port: `"10.0.0.5:8080"`.'
        ),
    ] = ()

    @property
    def picture_addresses(self) -> tuple[tuple[str, int], ...]:
        """Addresses and ports of `fetch_pictures_from`."""
        return tuple(filter(None, map(_parse_address, self.fetch_pictures_from)))

    def conflicts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """See the module docstring."""
        for index, text in enumerate(self.fetch_pictures_from):
            if _parse_address(text) is None:
                example = "10.0.0.5:8080 or [fd00::5]:8080"
                yield (
                    ("fetch_pictures_from", index),
                    f'"{text}" is not an address and a port, such as {example}',
                )
        for index, text in enumerate(self.cors_origins):
            if not _ORIGIN.fullmatch(text):
                yield (
                    ("cors_origins", index),
                    f'"{text}" is not an origin in lower case, such as https://app.example.org',
                )
        if not is_loopback(self.host) and self.api_key is None:
            yield (
                ("host",),
                f"{self.host} is not a local address; set http.api_key, or use 127.0.0.1",
            )
        if self.api_key and not _is_header_value(self.api_key.reveal()):
            yield (
                ("api_key",),
                "must consist of printable ASCII characters, because clients send it in a header",
            )
        if self.slow_after <= 0:
            yield ("slow_after",), "must be greater than 0"


def _parse_address(text: str) -> tuple[str, int] | None:
    """Parse `IP:PORT`; None if the text is malformed."""
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
    """A daily budget that several people share."""

    tokens_per_day: Annotated[
        Tokens | None, Meta(description="Model tokens per day. Default: no limit.")
    ] = None
    usd_per_day: Annotated[
        Dollars | None, Meta(description="Dollars per day. Default: no limit.")
    ] = None


class UserLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of one person; keys that are left out have the values of `[limits]`."""

    messages_per_minute: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="Messages and commands per minute.")
    ] = None
    tokens_per_day: Annotated[Tokens | None, Meta(description="Model tokens per day.")] = None
    usd_per_day: Annotated[Dollars | None, Meta(description="Dollars per day.")] = None


class LimitSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of each person; days follow the machine's clock. See docs/budgets.md."""

    messages_per_minute: Annotated[
        int,
        Meta(
            ge=1,
            description="Messages and commands per minute, except /stop and answers to approval "
            "requests. The owner at this machine (page, terminal) has no limit.",
        ),
    ] = 20
    tokens_per_day: Annotated[
        Tokens | None,
        Meta(
            description="Model tokens per day for each person. Default: no limit. The owner at this "
            "machine and clients of the API are limited only by `[limits.users]`, but count in "
            "`[limits.all]`."
        ),
    ] = None
    usd_per_day: Annotated[
        Dollars | None,
        Meta(
            description="Dollars per day for each person. The price of every model in use must be "
            "known: `model.price`, or the extra `prices`. Default: no limit."
        ),
    ] = None
    all: Annotated[
        BudgetSettings, Meta(description="Budget of all people together: `[limits.all]`.")
    ] = BudgetSettings()
    chats: Annotated[
        dict[str, BudgetSettings],
        Meta(
            description="Budget of all people of one chat together: "
            '`[limits.chats."telegram:-100123"]`.'
        ),
    ] = {}
    users: Annotated[
        dict[str, UserLimits],
        Meta(description='Limits of one person: `[limits.users."telegram:1001"]`.'),
    ] = {}

    def conflicts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """See the module docstring."""
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
        """Key of the first limit in dollars; empty if there is none."""
        tables: dict[str, LimitSettings | BudgetSettings | UserLimits] = {
            "limits": self,
            "limits.all": self.all,
            **{f'limits.chats."{chat}"': table for chat, table in self.chats.items()},
            **{f'limits.users."{user}"': table for user, table in self.users.items()},
        }
        given = (name for name, table in tables.items() if table.usd_per_day is not None)
        return next((f"{name}.usd_per_day" for name in given), "")


def _chat_key_error(text: str) -> str:
    try:
        key = parse_key(text)
    except ValueError:
        return "is not a chat, such as telegram:-100123 or slack:T1/C1"
    if key.thread or key.user:
        return "must be a chat without a thread or a person"
    return ""


class BusSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The message bus between several machines of one deployment."""

    url: Annotated[
        str,
        Meta(
            pattern=r"^(local|(nats|tls)://[^\s]+)$",
            extra={"form": '"local" or a nats:// address'},
            description="`local` on one machine, `nats://HOST` on several.",
        ),
    ] = "local"


class RouteSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of single chats; the first matching route applies."""

    match: Annotated[
        str,
        Meta(
            min_length=1,
            description="Pattern of chats; `*` matches anything: `telegram:-100*`, `slack:T1/C1`.",
        ),
    ]
    model: Annotated[
        str | None,
        Meta(description="Name of another model; a choice by `/model` takes precedence."),
    ] = None
    system_prompt: Annotated[str | None, Meta(description="Another system prompt.")] = None
    tools: Annotated[
        tuple[str, ...] | None, Meta(description="Other families of tools; `[]` for no tools.")
    ] = None


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole configuration."""

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
    platforms: dict[str, Struct] = {}  # structs of type PlatformSpec.config
    http: HttpSettings = HttpSettings()
    bus: BusSettings = BusSettings()
    route: tuple[RouteSettings, ...] = ()

    def conflicts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """See the module docstring."""
        if self.bus.url != "local" and self.store.engine != POSTGRESQL:
            yield ("bus", "url"), "needs a store that several machines can share: postgresql://…"
        names = [server.name for server in self.mcp]
        for index, name in enumerate(names):
            if name in names[:index]:
                yield ("mcp", index, "name"), f'"{name}" is already the name of another [[mcp]]'


def max_stop_seconds(drain_seconds: float) -> int:
    """Return the maximum number of seconds that a stop takes."""
    return math.ceil(drain_seconds + _AFTER_DRAIN_SECONDS)
