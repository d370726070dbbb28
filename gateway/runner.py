"""`GatewayRunner`: the composition root, and the order of start and shutdown.

Nesting order is shutdown order. The store is outermost; inside it are delivery, the platforms and
the HTTP port; the conversations are innermost. So conversations finish first, while platforms still
receive and deliver; then delivery is flushed; then connections close.
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
from gateway.access.entries import has_membership_entries
from gateway.access.people import People
from gateway.alerts.admins import PlatformStatus
from gateway.alerts.watch import AlertWatch
from gateway.commands.registry import COMMANDS
from gateway.connections.adapter_store import StoreArchive, StoreShelf
from gateway.connections.directory import AdapterDirectory
from gateway.connections.supervision import ConnectionState
from gateway.conversations import Conversations, Services
from gateway.delivery.outbox import Delivery
from gateway.errors import CannotStart, ConfigError
from gateway.http import api_key, openapi
from gateway.http.api.adapter import ApiAdapter
from gateway.http.app import build_app
from gateway.http.client_timeouts import ClientTimeouts
from gateway.http.concurrency import ConcurrencyLimit
from gateway.http.server import HttpServer, PortTaken
from gateway.media.speech import SpeechToText
from gateway.notices.catalogue import safe_mode_text
from gateway.notices.compose import NoticeComposer
from gateway.observe import loop_lag
from gateway.observe.disk import DiskGauge
from gateway.observe.log import set_level
from gateway.observe.metrics import Metrics
from gateway.observe.metrics_page import MetricsPage
from gateway.observe.redact import Redactor
from gateway.process.handover import PORT
from gateway.process.health import GatewayHealth, LifecycleEvents
from gateway.process.operations import Operation
from gateway.process.reload import ConfigReloader
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

FLUSH_SECONDS = 5.0
FIRST_CONNECT_SECONDS = 1.0


class GatewayRunner:
    """The daemon as a whole."""

    def __init__(
        self,
        settings: Settings,
        home: Path,
        *,
        specs: Mapping[str, PlatformSpec],
        clock: Clock | None = None,
        serve_http: bool = True,
        redactor: Redactor | None = None,
        tools: Iterable[Tool] = (),
        successor: Successor | None = None,
        read_settings: Callable[[], Settings] | None = None,
    ) -> None:
        self._settings = settings
        self._read_settings = read_settings  # reads the configuration again; None: no reload
        self._home = home
        self._successor = successor  # None: this process cannot restart itself
        self._specs = specs
        self._clock = clock or SystemClock()
        self._started_at = self._clock.now()
        self._ids = Ids(self._clock)
        self._metrics = Metrics()
        self._redactor = redactor or Redactor()
        self._tools = tuple(tools)  # in addition to built-in tools and those of entry points
        self._feeds = Feeds()
        self._alert_wakeup = asyncio.Event()  # set when the alert watch must check now
        self._adapters = AdapterDirectory(self._alert_wakeup.set)
        self._disk_gauge = DiskGauge(home, settings.gateway.disk_low)
        self._http_server = self._create_http_server() if serve_http else None
        self._concurrency_limit = ConcurrencyLimit(
            settings.http.max_requests, lambda: self._metrics.http_refused.add("busy")
        )
        self._lifecycle = LifecycleEvents()
        self.ready, self.stopping = self._lifecycle.ready, self._lifecycle.stopping
        self.restarting, self.skip_drain = self._lifecycle.restarting, self._lifecycle.skip_drain
        self.condition = GatewayHealth(
            self._lifecycle,
            lambda: self._settings,
            self._adapters,
            self._disk_gauge,
            self._concurrency_limit,
        )
        self.operations: dict[str, Operation] = {}
        self._store: SessionStore | None = None
        self._people: People | None = None
        self._transcriber: SpeechToText | None = None
        self._api: ApiAdapter | None = None
        self._api_key: Secret | None = None
        self.created_api_key = False
        """True if this start created the API key, because none is configured."""

    # --- start and shutdown ---------------------------------------------------------------------

    def enter_safe_mode(self, crashes: int) -> None:
        """Switch to safe mode after `crashes` crashes in a row; call this before `run`."""
        log.error("%s", safe_mode_text(crashes))
        self.condition.crash_count = crashes
        self._settings = _safe_mode_settings(msgspec.structs.replace(self._settings, mcp=()))

    async def run(self) -> None:
        """Run until `stopping` is set and everything is drained.

        Raises `ConfigError` or `CannotStart` if the gateway cannot start.
        """
        if self._http_server:
            self._bind_port(self._http_server)
        async with self._open_store() as store:
            store.observer = self._metrics
            if self._http_server:
                self._api_key = self._settings.http.api_key or self._load_api_key()
            models = await open_models(self._settings, self._home, self._tools, clock=self._clock)
            models.tools_enabled = not self.condition.crash_count
            self._transcriber = _create_transcriber(self._settings.voice)
            servers = McpServers(self._settings.mcp, self._clock, taken_names=models.tool_names)
            models.extra_tools = servers.tools
            try:
                async with servers.running():
                    await self._serve(store, models)
            finally:
                await models.aclose()
                if self._transcriber:
                    await self._transcriber.aclose()

    @contextlib.asynccontextmanager
    async def _open_store(self) -> AsyncIterator[SessionStore]:
        url = self._settings.store.url
        where = url.reveal() if url else f"sqlite:///{self._home / 'holdfast.db'}"
        try:
            store = await SessionStore.open(
                where, clock=self._clock, copy_folder=self._home / "backups"
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
        services = await self._build_services(store, models)
        delivery = services.delivery
        self._build_adapters(store, delivery)
        recovered = await delivery.recover()
        if recovered:
            log.info("%d undelivered messages from before the start", recovered)
        async with asyncio.TaskGroup() as connections:
            tasks = [connections.create_task(delivery.run(), name="delivery")]
            async with asyncio.TaskGroup() as tasks_of_conversations:
                conversations = Conversations(services, tasks_of_conversations)
                self._conversations, self.condition.pool = conversations, conversations.pool
                self.operations.update(
                    conversations.operations(self._read_status, self._create_link)
                )
                reception = await conversations.make_reception()
                await conversations.recover(reception)
                if self._api:
                    conversations.open_api(self._api, reception)
                tasks.append(connections.create_task(conversations.run_cleanup(), name="cleanup"))
                watch = await self._open_alert_watch(conversations, services)
                tasks.append(connections.create_task(watch.run(), name="alert watch"))
                tasks += [
                    connections.create_task(adapter.run(reception.receive), name=adapter.name)
                    for adapter in self._adapters
                ]
                if self._http_server:
                    app = self._build_app(store)
                    tasks.append(connections.create_task(self._http_server.serve(app), name="http"))
                    loop_lag_task = loop_lag.measure_loop_lag(
                        self._metrics.loop_lag_seconds.observe
                    )
                    tasks.append(connections.create_task(loop_lag_task, name="loop lag"))
                with conversations.closing():
                    await self._wait_first_connections()
                    await conversations.report_restart()
                    self.ready.set()
                    await self.stopping.wait()
                    await conversations.drain()
                    self._feeds.close()
            await delivery.flush(FLUSH_SECONDS)
            if self.restarting.is_set():
                self._hand_over_port()
            for task in reversed(tasks):
                task.cancel()

    async def _build_services(self, store: SessionStore, models: Models) -> Services:
        self._people = people = People(store, self._clock, self._settings.access)
        await people.load()
        if self._read_settings:
            self.operations["reload"] = ConfigReloader(
                self._read_settings,
                current_settings=lambda: self._settings,
                apply_settings=self._apply_settings,
                models=models,
                people=people,
                redactor=self._redactor,
            )
        return Services(
            settings=lambda: self._settings,
            home=self._home,
            clock=self._clock,
            ids=self._ids,
            store=store,
            models=models,
            delivery=Delivery(
                store,
                self._clock,
                redact=self._redactor.redact,
                on_refused=self._adapters.on_credentials_refused,
                on_delivered=self._metrics.on_delivered,
            ),
            announcer=NoticeComposer(self._ids, self._clock, self._adapters.capabilities),
            people=people,
            adapters=self._adapters,
            feeds=self._feeds,
            metrics=self._metrics,
            transcriber=self._transcriber,
            on_alert_change=self._alert_wakeup.set,
            lifecycle=self._lifecycle,
            successor=self._successor,
            crash_count=self.condition.crash_count,
        )

    def _apply_settings(self, settings: Settings) -> None:
        """Use new settings from now on; `gateway.config.diff` lists the ones that may change."""
        self._settings = _safe_mode_settings(settings) if self.condition.crash_count else settings
        set_level(settings.gateway.log_level)
        self._conversations.budgets.update_limits(settings.limits)

    async def _open_alert_watch(
        self, conversations: Conversations, services: Services
    ) -> AlertWatch:
        watch = AlertWatch(
            services.store,
            self._clock,
            conversations.admin_alerts,
            services.delivery,
            platform_statuses=lambda: {
                adapter.name: PlatformStatus(
                    adapter.problem, adapter.state is ConnectionState.CONNECTED
                )
                for adapter in self._adapters
            },
            disk_gauge=self._disk_gauge,
            budgets=conversations.budgets,
            wakeup=self._alert_wakeup,
            crash_count=services.crash_count,
        )
        await watch.load()
        return watch

    async def _wait_first_connections(self) -> None:
        """Wait until every platform has finished its first connection attempt, for a second at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_CONNECT_SECONDS):
                await self._adapters.wait_first_attempts()

    # --- the HTTP port --------------------------------------------------------------------------

    def _create_http_server(self) -> HttpServer:
        http = self._settings.http
        timeouts = ClientTimeouts(
            body_seconds=float(http.slow_after), write_seconds=float(http.slow_after)
        )
        return HttpServer(http.host, http.port, timeouts, self._metrics.http_refused.add)

    def _bind_port(self, server: HttpServer) -> None:
        try:
            server.bind(self._successor.handover.take(PORT) if self._successor else None)
        except PortTaken as error:
            raise CannotStart(str(error)) from error
        http = self._settings.http
        # The configuration was checked before, but a host name may resolve to a public address.
        if http.api_key is None and not server.is_local_only:
            msg = (
                f"http.host {http.host} resolves to {server.bound_host}, which other machines can "
                "reach; set http.api_key, or use 127.0.0.1"
            )
            server.close()
            raise ConfigError(msg)

    def _hand_over_port(self) -> None:
        port = self._http_server.fileno if self._http_server else None
        if self._successor and port is not None:
            self._successor.handover.pass_on(PORT, port)

    def _build_app(self, store: SessionStore) -> Starlette:
        http = self._settings.http
        return build_app(
            self._adapters.routes(),
            health=self.condition,
            allowed_hosts=(*http.allowed_hosts, http.host),
            hosts_by_path=self._adapters.hosts_by_path(),
            key=self._api_key,
            concurrency_limit=self._concurrency_limit,
            render_metrics=MetricsPage(
                self._metrics, self.condition, store, self._clock, self._disk_gauge
            ).render,
            openapi_document=openapi.openapi_json,
            status=self.condition.mode,
        )

    def _load_api_key(self) -> Secret:
        """Load or create the API key, and register it for redaction before anything is logged."""
        key = api_key.load_or_create(self._home)
        self._redactor.add(key.secret)
        self.created_api_key = key.is_new
        return key.secret

    # --- platforms ------------------------------------------------------------------------------

    def _build_adapters(self, store: SessionStore, delivery: Delivery) -> None:
        if self._http_server:
            http, folder = self._settings.http, self._home / "platforms" / "api"
            self._api = ApiAdapter(
                self._feeds,
                self._clock,
                folder,
                api_key=self._api_key,
                keepalive_seconds=http.sse_keepalive,
                redactor=self._redactor,
            )
            self._adapters.add(self._api, delivery)
        archive, access = StoreArchive(store), self._settings.access
        for name, spec in self._specs.items():
            config = self._settings.platforms.get(name)
            if config is None:
                if name not in self._built_in_platforms():
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
                trouble=partial(self._report_problem, name),
                memberships=has_membership_entries((*access.allow, *access.admins), name),
            )
            self._adapters.add(spec.build(config, surroundings), delivery)

    def _report_problem(self, platform: str, text: str) -> None:
        self._adapters.set_warning(platform, text)

    def _built_in_platforms(self) -> frozenset[str]:
        """Return the platforms that need no configuration."""
        page = self._http_server is not None and self._settings.http.ui
        return frozenset({"console", "web"} if page else {"console"})

    def adapter(self, name: str, account: str = "") -> Adapter | None:
        """Return an adapter in use, or None."""
        return self._adapters.get(name, account)

    # --- status ---------------------------------------------------------------------------------

    @property
    def url(self) -> str | None:
        """URL of the web page, or None if it is off."""
        return self._http_server.url if self._http_server and self._settings.http.ui else None

    @property
    def has_admin(self) -> bool:
        """True if a platform has an admin, configured or claimed."""
        return self._people is not None and self._people.has_admin

    def _read_status(self) -> dict[str, object]:
        version = self._successor.version if self._successor else None
        fixed = {"version": version, "started_at": self._started_at, "url": self.url}
        return self.condition.status() | fixed

    async def _create_link(self, base_url: str | None) -> str:
        page: object = self.adapter("web")
        if self._http_server is None or not isinstance(page, OffersLinks):
            msg = "The web page is off. Set http.ui = true to use it."
            raise CannotStart(msg)
        return await page.new_link(base_url or self._http_server.url)


def _create_transcriber(settings: VoiceSettings) -> SpeechToText | None:
    if settings.transcription_url is None:
        return None
    transcriber: SpeechToText = import_module("gateway.media.transcription").Transcriber(settings)
    return transcriber


def _safe_mode_settings(settings: Settings) -> Settings:
    """Return settings for safe mode, in which interrupted turns wait for `/resume`."""
    sessions = msgspec.structs.replace(settings.sessions, on_interrupted="suspend")
    return msgspec.structs.replace(settings, sessions=sessions)
