"""`GatewayRunner`: what exists, and in which order it starts and stops.

Nesting order is shutdown order. Outside is the store; inside it delivery, the platforms and the
HTTP port; innermost the conversations. So at the end conversations finish first, while platforms
still receive and deliver; then what is to be shown gets out; then connections close.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path

import msgspec
from starlette.applications import Starlette

from agent.settings import VoiceSettings
from agent.tools.contract import Tool
from agent.tools.mcp.servers import McpServers
from gateway.access.people import People
from gateway.access.policy import by_membership
from gateway.alerts.admins import Trouble
from gateway.alerts.watch import Vigil
from gateway.commands.registry import COMMANDS
from gateway.connections.adapter_store import StoreArchive, StoreShelf
from gateway.connections.directory import Adapters
from gateway.connections.supervision import Standing
from gateway.conversations import Conversations, Ground
from gateway.delivery.outbox import Delivery
from gateway.errors import CannotStart, ConfigError
from gateway.http import api_key, openapi
from gateway.http.api.adapter import ApiAdapter
from gateway.http.app import build_app
from gateway.http.client_timeouts import Patience
from gateway.http.concurrency import Crowd
from gateway.http.server import HttpServer, PortTaken
from gateway.media.speech import Listener
from gateway.notices.compose import Announcer
from gateway.observe import loop_lag
from gateway.observe.disk import Gauge
from gateway.observe.log import set_level
from gateway.observe.metrics import Ledger
from gateway.observe.metrics_page import Figures
from gateway.observe.redact import Redactor
from gateway.process.handover import PORT
from gateway.process.health import Condition, Signals
from gateway.process.operations import Operation
from gateway.process.reload import Reload
from gateway.process.safe_mode import safe_mode
from gateway.process.successor import Successor
from gateway.settings import Settings
from gateway.turns.feeds import Feeds
from gateway.turns.models import Models, open_models
from platforms.core.contract import Adapter, OffersLinks, PlatformSpec, Surroundings
from sessions.errors import StoreError, StoreTooNew
from sessions.store.store import SessionStore
from sessions.values.clock import Clock, SystemClock
from sessions.values.ids import Ids
from sessions.values.secret import Secret

log = logging.getLogger(__name__)

SETTLE_SECONDS = 5.0
FIRST_CHANCE_SECONDS = 1.0


class GatewayRunner:
    """The daemon as a whole."""

    def __init__(
        self,
        settings: Settings,
        home: Path,
        *,
        specs: Mapping[str, PlatformSpec],
        clock: Clock | None = None,
        http: bool = True,
        redactor: Redactor | None = None,
        tools: Iterable[Tool] = (),
        successor: Successor | None = None,
        reread: Callable[[], Settings] | None = None,
    ) -> None:
        self._settings = settings
        self._reread = reread  # the configuration, from where it came; None: it cannot change
        self._home = home
        self._successor = successor  # none: it cannot restart itself
        self._specs = specs
        self._clock = clock or SystemClock()
        self._started_at = self._clock.now()
        self._ids = Ids(self._clock)
        self._ledger = Ledger()
        self._redactor = redactor or Redactor()
        self._tools = tuple(tools)  # besides ours and those of installed distributions
        self._feeds = Feeds()
        self._news = asyncio.Event()  # a platform stands otherwise, or an admin was told something
        self._adapters = Adapters(self._news.set)
        self._gauge = Gauge(home, settings.gateway.disk_low)
        self._http = self._door() if http else None
        self._crowd = Crowd(settings.http.max_requests, lambda: self._ledger.cut.add("busy"))
        self._signals = Signals()
        self.ready, self.stopping = self._signals.ready, self._signals.stopping
        self.restarting, self.hurry = self._signals.restarting, self._signals.hurry
        self.condition = Condition(
            self._signals, lambda: self._settings, self._adapters, self._gauge, self._crowd
        )
        self.operations: dict[str, Operation] = {}
        self._store: SessionStore | None = None
        self._people: People | None = None
        self._listener: Listener | None = None
        self._api: ApiAdapter | None = None
        self._key: Secret | None = None
        self.made_key = False
        """Whether the API's key was made by this start, because none is configured."""

    # --- starting and stopping ------------------------------------------------------------------

    def be_careful(self, crashes: int) -> None:
        """Run in safe mode: so many starts in a row have crashed; to be said before `run`."""
        log.error("%s", safe_mode(crashes))
        self.condition.crashes = crashes
        self._settings = _without_resuming(msgspec.structs.replace(self._settings, mcp=()))

    async def run(self) -> None:
        """Live until `stopping` is set and everything is drained."""
        if self._http:
            self._take_port(self._http)
        async with self._opened_store() as store:
            store.witness = self._ledger
            if self._http:
                self._key = self._settings.http.api_key or self._own_key()
            models = await open_models(self._settings, self._home, self._tools, clock=self._clock)
            models.offers_tools = not self.condition.crashes
            self._listener = _listener(self._settings.voice)
            servers = McpServers(self._settings.mcp, self._clock, taken=models.tool_names)
            models.more_tools = servers.tools
            try:
                async with servers.running():
                    await self._serve(store, models)
            finally:
                await models.aclose()
                if self._listener:
                    await self._listener.aclose()

    @contextlib.asynccontextmanager
    async def _opened_store(self) -> AsyncIterator[SessionStore]:
        url = self._settings.store.url
        where = url.reveal() if url else f"sqlite:///{self._home / 'holdfast.db'}"
        try:
            store = await SessionStore.open(
                where, clock=self._clock, keep_in=self._home / "backups"
            )
        except StoreTooNew as error:
            raise ConfigError(str(error)) from error
        except StoreError as error:
            raise CannotStart(str(error)) from error
        self._store = self.condition.store = store
        try:
            yield store
        finally:
            await store.close()

    async def _serve(self, store: SessionStore, models: Models) -> None:
        ground = await self._ground(store, models)
        delivery = ground.delivery
        self._build_adapters(store, delivery)
        recovered = await delivery.recover()
        if recovered:
            log.info("%d things are still to be shown from before the start", recovered)
        async with asyncio.TaskGroup() as connections:
            tasks = [connections.create_task(delivery.run(), name="delivery")]
            async with asyncio.TaskGroup() as tasks_of_conversations:
                conversations = Conversations(ground, tasks_of_conversations)
                self._conversations, self.condition.pool = conversations, conversations.pool
                self.operations.update(conversations.operations(self._status, self._new_link))
                reception = await conversations.reception()
                await conversations.take_up(reception)
                if self._api:
                    conversations.open_api(self._api, reception)
                tasks.append(connections.create_task(conversations.tidy(), name="tidy"))
                vigil = await self._open_vigil(conversations, ground)
                tasks.append(connections.create_task(vigil.run(), name="vigil"))
                tasks += [
                    connections.create_task(each.run(reception.receive), name=each.name)
                    for each in self._adapters
                ]
                if self._http:
                    app = self._app(store)
                    tasks.append(connections.create_task(self._http.serve(app), name="http"))
                    late = loop_lag.feel(self._ledger.lag.saw)
                    tasks.append(connections.create_task(late, name="pulse"))
                with conversations.closing():
                    await self._first_chances()
                    await conversations.tell_of_restart()
                    self.ready.set()
                    await self.stopping.wait()
                    await conversations.drain()
                    self._feeds.close()
            await delivery.settle(SETTLE_SECONDS)
            if self.restarting.is_set():
                self._leave_port()
            for task in reversed(tasks):
                task.cancel()

    async def _ground(self, store: SessionStore, models: Models) -> Ground:
        self._people = people = People(store, self._clock, self._settings.access)
        await people.open()
        if self._reread:
            self.operations["reload"] = Reload(
                self._reread,
                current=lambda: self._settings,
                use=self._use,
                models=models,
                people=people,
                redactor=self._redactor,
            )
        return Ground(
            settings=lambda: self._settings,
            home=self._home,
            clock=self._clock,
            ids=self._ids,
            store=store,
            models=models,
            delivery=Delivery(
                store,
                self._clock,
                clean=self._redactor.clean,
                on_refused=self._adapters.refused,
                noted=self._ledger.delivered,
            ),
            announcer=Announcer(self._ids, self._clock, self._adapters.capabilities),
            people=people,
            adapters=self._adapters,
            feeds=self._feeds,
            ledger=self._ledger,
            listener=self._listener,
            news=self._news.set,
            signals=self._signals,
            successor=self._successor,
            crashes=self.condition.crashes,
        )

    def _use(self, settings: Settings) -> None:
        """Go by other settings from now on; see `gateway.config.diff` for what they may change."""
        self._settings = _without_resuming(settings) if self.condition.crashes else settings
        set_level(settings.gateway.log_level)
        self._conversations.budgets.adopt(settings.limits)

    async def _open_vigil(self, conversations: Conversations, ground: Ground) -> Vigil:
        vigil = Vigil(
            ground.store,
            self._clock,
            conversations.operators,
            ground.delivery,
            platforms=lambda: {
                each.name: Trouble(each.problem, each.standing is Standing.CONNECTED)
                for each in self._adapters
            },
            gauge=self._gauge,
            budgets=conversations.budgets,
            news=self._news,
            crashes=ground.crashes,
        )
        await vigil.open()
        return vigil

    async def _first_chances(self) -> None:
        """Wait until every platform was connected, or could not be, for the first time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_CHANCE_SECONDS):
                await self._adapters.tried()

    # --- the HTTP port --------------------------------------------------------------------------

    def _door(self) -> HttpServer:
        http = self._settings.http
        patience = Patience(body=float(http.slow_after), reader=float(http.slow_after))
        return HttpServer(http.host, http.port, patience, self._ledger.cut.add)

    def _take_port(self, server: HttpServer) -> None:
        try:
            server.bind(self._successor.handover.take(PORT) if self._successor else None)
        except PortTaken as error:
            raise CannotStart(str(error)) from error
        http = self._settings.http
        if http.api_key is None and not server.is_private:  # a name may mean what nobody expects
            msg = (
                f"http.host {http.host} is {server.listens_at} here, which others can reach; "
                "set http.api_key, or use 127.0.0.1"
            )
            server.close()
            raise ConfigError(msg)

    def _leave_port(self) -> None:
        port = self._http.file if self._http else None
        if self._successor and port is not None:
            self._successor.handover.keep(PORT, port)

    def _app(self, store: SessionStore) -> Starlette:
        http = self._settings.http
        return build_app(
            self._adapters.routes(),
            health=self.condition,
            allowed_hosts=(*http.allowed_hosts, http.host),
            hosts_of=self._adapters.hosts_of(),
            key=self._key,
            crowd=self._crowd,
            figures=Figures(self._ledger, self.condition, store, self._clock, self._gauge).page,
            document=openapi.page,
            status=self.condition.manner,
        )

    def _own_key(self) -> Secret:
        """The one that was made here; known before anything is shown, so that it never is."""
        key = api_key.take(self._home)
        self._redactor.add(key.secret)
        self.made_key = key.made
        return key.secret

    # --- platforms ------------------------------------------------------------------------------

    def _build_adapters(self, store: SessionStore, delivery: Delivery) -> None:
        if self._http:
            http, folder = self._settings.http, self._home / "platforms" / "api"
            self._api = ApiAdapter(
                self._feeds,
                self._clock,
                folder,
                api_key=self._key,
                keepalive=http.sse_keepalive,
                redactor=self._redactor,
            )
            self._adapters.add(self._api, delivery)
        archive, access = StoreArchive(store), self._settings.access
        for name, spec in self._specs.items():
            config = self._settings.platforms.get(name)
            if config is None:
                if name not in self._always_there():
                    continue
                config = spec.config()
            shelf = StoreShelf(store, f"platform:{name}")
            surroundings = Surroundings(
                clock=self._clock,
                ids=self._ids,
                shelf=shelf,
                archive=archive,
                keepalive=self._settings.http.sse_keepalive,
                commands=COMMANDS.menu(),
                folder=self._home / "platforms" / name,
                trouble=partial(self._complaint, name),
                memberships=by_membership((*access.allow, *access.admins), name),
            )
            self._adapters.add(spec.build(config, surroundings), delivery)

    def _complaint(self, platform: str, text: str) -> None:
        self._adapters.complaint(platform, text)

    def _always_there(self) -> frozenset[str]:
        """Platforms that need no configuration."""
        page = self._http is not None and self._settings.http.ui
        return frozenset({"console", "web"} if page else {"console"})

    def adapter(self, name: str, account: str = "") -> Adapter | None:
        """One of the adapters in use."""
        return self._adapters.get(name, account)

    # --- what others ask ------------------------------------------------------------------------

    @property
    def url(self) -> str | None:
        """The address of the page, when there is one."""
        return self._http.url if self._http and self._settings.http.ui else None

    @property
    def has_admin(self) -> bool:
        """Whether anybody on a platform is an admin, configured or by a claim."""
        return self._people is not None and self._people.has_admin

    def _status(self) -> dict[str, object]:
        version = self._successor.version if self._successor else None
        fixed = {"version": version, "started_at": self._started_at, "url": self.url}
        return self.condition.status() | fixed

    async def _new_link(self, base_url: str | None) -> str:
        page: object = self.adapter("web")
        if self._http is None or not isinstance(page, OffersLinks):
            msg = "The web page is switched off (http.ui)."
            raise CannotStart(msg)
        return await page.new_link(base_url or self._http.url)


def _listener(settings: VoiceSettings) -> Listener | None:
    if settings.transcription_url is None:
        return None
    made: Listener = import_module("gateway.media.transcription").Transcriber(settings)
    return made


def _without_resuming(settings: Settings) -> Settings:
    """What safe mode goes by: turns that were interrupted wait until somebody asks for them."""
    sessions = msgspec.structs.replace(settings.sessions, on_interrupted="suspend")
    return msgspec.structs.replace(settings, sessions=sessions)
