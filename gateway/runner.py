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
from pathlib import Path

import msgspec
from starlette.applications import Starlette

from agent.settings import VoiceSettings
from agent.tools.contract import Tool
from agent.tools.mcp.contract import MCP_LOGIN_FOLDER
from agent.tools.mcp.link import LoginAccess
from agent.tools.mcp.memory import ToolMemory
from agent.tools.mcp.servers import McpServers, ServersHost
from agent.tools.registry import BUILT_IN, load_entry_points
from gateway.access.entries import has_membership_entries
from gateway.access.key_store import ApiKeys
from gateway.access.people import People
from gateway.alerts.admins import PlatformStatus
from gateway.alerts.watch import AlertWatch, WatchedParts
from gateway.commands.registry import COMMANDS
from gateway.connections.adapter_store import StoreArchive, StoreShelf
from gateway.connections.directory import AdapterDirectory
from gateway.connections.supervision import ConnectionState
from gateway.conversations import Conversations, Services
from gateway.delivery.outbox import Delivery
from gateway.errors import CannotStart, ConfigError
from gateway.http import api_key, openapi
from gateway.http.api.adapter import ApiAdapter
from gateway.http.api.requests import ApiRequests
from gateway.http.api.routes import ApiRoutes
from gateway.http.api.stream import Keepalive
from gateway.http.api_key import ApiKey
from gateway.http.app import build_app, metrics_route, openapi_route
from gateway.http.auth import authenticator
from gateway.http.client_timeouts import ClientTimeouts
from gateway.http.concurrency import ConcurrencyLimit
from gateway.http.server import HttpServer, PortTaken
from gateway.mcp.prompts import prompt_menu
from gateway.media.speech import SpeechToText
from gateway.notices.catalogue import safe_mode_text
from gateway.notices.compose import NoticeComposer
from gateway.observe import loop_lag
from gateway.observe.disk import DiskGauge
from gateway.observe.log import set_level
from gateway.observe.metrics import Metrics
from gateway.observe.metrics_page import MetricsPage
from gateway.observe.redact import Redactor
from gateway.observe.redact_growing import GrowingRedaction, redact_shown
from gateway.process.context import ProcessContext
from gateway.process.handover import PORT
from gateway.process.health import GatewayHealth, LifecycleEvents
from gateway.process.operations import Operation
from gateway.process.reload import ConfigReloader
from gateway.process.starting import run_unless_stopped
from gateway.settings import Settings
from gateway.spending.budgets import Budgets
from gateway.turns.choices import ModelChoices
from gateway.turns.feeds import Feeds
from gateway.turns.models import ExternalTools, Models, open_targets
from platforms.core.contract import (
    Adapter,
    OffersLinks,
    PlatformSpec,
    RefreshesMenu,
    Surroundings,
)
from sessions.errors import StoreError, StoreTooNew
from sessions.store.store import SessionStore
from sessions.values.clock import Clock, SystemClock
from sessions.values.ids import Ids
from sessions.values.secret import Secret
from sessions.values.text import count_of

log = logging.getLogger(__name__)

FLUSH_SECONDS = 5.0
FIRST_CONNECT_SECONDS = 1.0


class OpenGateway(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a gateway that exist once its conversations are open."""

    people: People
    conversations: Conversations
    operations: Mapping[str, Operation]
    app: Starlette | None
    """Application behind the HTTP port; None without HTTP."""
    created_api_key: bool
    """True if this start created the API key, because none is configured."""
    mcp_status: Callable[[], Mapping[str, str]]


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
        process: ProcessContext | None = None,
    ) -> None:
        self._process = process or ProcessContext()
        self._settings = self._adjust_to_safe_mode(settings)
        self._home = home
        self._specs = specs
        self._clock = clock or SystemClock()
        self._started_at = self._clock.now()
        self._ids = Ids(self._clock)
        self._metrics = Metrics()
        self._redactor = redactor or Redactor()
        self._tools = tuple(tools)  # in addition to built-in tools and those of entry points
        self._feeds = Feeds()
        self._alert_wakeup = asyncio.Event()  # set when the alert watch must check now
        self._menu_changed = asyncio.Event()  # set when the menus of the platforms are outdated
        self._adapters = AdapterDirectory(self._alert_wakeup.set)
        self._disk_gauge = DiskGauge(home, settings.gateway.disk_low)
        self._http_server = self._create_http_server() if serve_http else None
        self._concurrency_limit = ConcurrencyLimit(
            settings.http.max_requests, lambda: self._metrics.http_refused.add("busy")
        )
        self._lifecycle = LifecycleEvents()
        self.ready, self.stopping = self._lifecycle.ready, self._lifecycle.stopping
        self.restarting, self.skip_drain = self._lifecycle.restarting, self._lifecycle.skip_drain
        # A start has two stages: `run` opens the store, and then the conversations on top.
        self._store: SessionStore | None = None
        self._open: OpenGateway | None = None
        self.condition = GatewayHealth(
            self._lifecycle,
            lambda: self._settings,
            self._adapters,
            self._disk_gauge,
            self._concurrency_limit,
            crash_count=self._process.crash_count,
            store=lambda: self._store,
            running_turns=self._count_running_turns,
        )

    # --- start and shutdown ---------------------------------------------------------------------

    async def run(self) -> None:
        """Run until `stopping` is set and everything is drained.

        Raises `ConfigError` or `CannotStart` if the gateway cannot start.
        """
        if self._process.crash_count:
            log.error("%s", safe_mode_text(self._process.crash_count))
        if self._http_server:
            self._bind_port(self._http_server)
        async with self._open_store() as store:
            key = self._read_api_key() if self._http_server else None
            choices = ModelChoices(store)
            targets = await run_unless_stopped(open_targets(self._settings), self.stopping)
            if targets is None:
                log.info("stopped during the start")
                return
            tools = self._usable_tools()
            tool_memory = ToolMemory(self._clock, store, self._alert_wakeup.set)
            servers = McpServers(
                self._settings.mcp,
                self._clock,
                taken_names=[tool.name for tool in tools],
                memory=tool_memory,
                logins=LoginAccess(
                    folder=self._home / MCP_LOGIN_FOLDER, on_secrets=self._redactor.set_changing
                ),
                host=ServersHost(
                    command_words=COMMANDS.words,
                    on_prompts_changed=self._menu_changed.set,
                    on_logins_changed=self._alert_wakeup.set,
                ),
            )
            models = Models(
                self._settings,
                self._home,
                targets,
                clock=self._clock,
                tools=tools,
                external=ExternalTools(
                    tools=servers.tools,
                    reserved_names=servers.reserved_names,
                    earlier_names=servers.earlier_names,
                    instructions=servers.instructions,
                ),
                choice_for=choices.get,
            )
            transcriber = _create_transcriber(self._settings.voice)
            try:
                async with servers.running():
                    services = await self._build_services(
                        store, models, choices, transcriber, servers
                    )
                    await self._serve(services, key, tool_memory)
            finally:
                await models.aclose()
                if transcriber:
                    await transcriber.aclose()

    def _usable_tools(self) -> tuple[Tool, ...]:
        """Return all tools except those of MCP servers; none in safe mode, as one may crash."""
        if self._process.crash_count:
            return ()
        return (*BUILT_IN, *load_entry_points(), *self._tools)

    @contextlib.asynccontextmanager
    async def _open_store(self) -> AsyncIterator[SessionStore]:
        url = self._settings.store.url
        where = url.reveal() if url else f"sqlite:///{self._home / 'holdfast.db'}"
        try:
            store = await SessionStore.open(
                where,
                clock=self._clock,
                copy_folder=self._home / "backups",
                observer=self._metrics,
            )
        except StoreTooNew as error:
            raise ConfigError(str(error)) from error
        except StoreError as error:
            raise CannotStart(str(error)) from error
        self._store = store
        try:
            yield store
        finally:
            await store.close()

    async def _serve(self, services: Services, key: ApiKey | None, tool_memory: ToolMemory) -> None:
        delivery = services.delivery
        api = self._add_api(delivery) if key else None
        self._add_platforms(services)
        self._menu_changed.clear()
        recovered = await delivery.recover()
        if recovered:
            log.info("%s from before the start", count_of(recovered, "undelivered message"))
        async with asyncio.TaskGroup() as connections:
            tasks = [connections.create_task(delivery.run(), name="delivery")]
            async with asyncio.TaskGroup() as tasks_of_conversations:
                conversations = Conversations(services, tasks_of_conversations)
                reception = await conversations.make_reception()
                app = None
                if api and key:
                    requests = conversations.make_api_requests(reception, api.store_picture)
                    app = self._build_app(services, requests, key.secret)
                self._open = OpenGateway(
                    people=services.people,
                    conversations=conversations,
                    operations=self._make_operations(services, conversations),
                    app=app,
                    created_api_key=key is not None and key.is_new,
                    mcp_status=services.mcp.status,
                )
                checkpoints = conversations.checkpoints.run()
                tasks.append(connections.create_task(checkpoints, name="checkpoints"))
                await conversations.recover(reception)
                tasks.append(connections.create_task(conversations.run_cleanup(), name="cleanup"))
                watch = await self._open_alert_watch(conversations, services, tool_memory)
                tasks.append(connections.create_task(watch.run(), name="alert watch"))
                tasks += [
                    connections.create_task(adapter.run(reception.receive), name=adapter.name)
                    for adapter in self._adapters
                ]
                refresh = self._refresh_menus()
                tasks.append(connections.create_task(refresh, name="menus"))
                if self._http_server and app:
                    tasks.append(connections.create_task(self._http_server.serve(app), name="http"))
                    loop_lag_task = loop_lag.measure_loop_lag(
                        self._metrics.loop_lag_seconds.observe
                    )
                    tasks.append(connections.create_task(loop_lag_task, name="loop lag"))
                with conversations.closing():
                    await self._wait_first_connections()
                    await conversations.record_restart()
                    self.ready.set()
                    await self.stopping.wait()
                    await conversations.drain()
                    self._feeds.close()
            await delivery.flush(FLUSH_SECONDS)
            if self.restarting.is_set():
                self._hand_over_port()
            for task in reversed(tasks):
                task.cancel()

    async def _refresh_menus(self) -> None:
        """Show the present commands in the menus of the platforms, until cancelled."""
        while True:
            await self._menu_changed.wait()
            self._menu_changed.clear()
            for supervised in self._adapters:
                adapter: object = supervised.adapter
                if isinstance(adapter, RefreshesMenu):
                    await adapter.refresh_menu()

    async def _build_services(
        self,
        store: SessionStore,
        models: Models,
        choices: ModelChoices,
        transcriber: SpeechToText | None,
        servers: McpServers,
    ) -> Services:
        people = People(store, self._clock, self._settings.access)
        await people.load()
        api_keys = ApiKeys(store, self._clock, people)
        await api_keys.load()
        await choices.load()
        return Services(
            settings=lambda: self._settings,
            home=self._home,
            clock=self._clock,
            ids=self._ids,
            store=store,
            models=models,
            choices=choices,
            delivery=Delivery(
                store,
                self._clock,
                self._home / "outgoing" / "sent",
                redact=partial(redact_shown, redactor=self._redactor),
                start_redaction=partial(GrowingRedaction, self._redactor),
                on_refused=self._adapters.on_credentials_refused,
                on_delivered=self._metrics.on_delivered,
            ),
            redact=self._redactor.redact,
            mask=self._redactor.mask,
            announcer=NoticeComposer(self._ids, self._clock, self._adapters.capabilities),
            people=people,
            api_keys=api_keys,
            adapters=self._adapters,
            feeds=self._feeds,
            metrics=self._metrics,
            transcriber=transcriber,
            mcp=servers,
            on_login_secrets=self._redactor.set_changing,
            on_alert_change=self._alert_wakeup.set,
            lifecycle=self._lifecycle,
            process=self._process,
        )

    def _make_operations(
        self, services: Services, conversations: Conversations
    ) -> Mapping[str, Operation]:
        operations = conversations.make_operations(self._read_status, self._create_link)
        if self._process.read_settings is None:
            return operations
        reload = ConfigReloader(
            self._process.read_settings,
            current_settings=lambda: self._settings,
            apply_settings=partial(self._apply_settings, conversations.budgets),
            models=services.models,
            people=services.people,
            redactor=self._redactor,
            enforce_access=conversations.enforce_access,
        )
        return {**operations, "reload": reload}

    def _apply_settings(self, budgets: Budgets, settings: Settings) -> None:
        """Use new settings from now on; `gateway.config.diff` lists the ones that may change."""
        self._settings = self._adjust_to_safe_mode(settings)
        set_level(settings.gateway.log_level)
        budgets.update_limits(settings.limits)

    def _adjust_to_safe_mode(self, settings: Settings) -> Settings:
        """Return the settings; in safe mode without MCP, and interrupted turns wait for `/resume`."""
        if not self._process.crash_count:
            return settings
        sessions = msgspec.structs.replace(settings.sessions, on_interrupted="suspend")
        return msgspec.structs.replace(settings, mcp=(), sessions=sessions)

    async def _open_alert_watch(
        self, conversations: Conversations, services: Services, tool_memory: ToolMemory
    ) -> AlertWatch:
        watch = AlertWatch(
            services.store,
            self._clock,
            conversations.admin_alerts,
            services.delivery,
            watched=WatchedParts(
                platform_statuses=self._platform_statuses,
                disk_gauge=self._disk_gauge,
                budgets=conversations.budgets,
                tool_memory=tool_memory,
                login_needs=services.mcp.login_needs,
                take_stranger_digest=services.people.take_stranger_digest,
                crash_count=self._process.crash_count,
            ),
            wakeup=self._alert_wakeup,
        )
        await watch.load()
        return watch

    def _platform_statuses(self) -> dict[str, PlatformStatus]:
        return {
            adapter.name: PlatformStatus(
                adapter.problem, adapter.state is ConnectionState.CONNECTED
            )
            for adapter in self._adapters
        }

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
        successor = self._process.successor
        try:
            server.bind(successor.handover.take(PORT) if successor else None)
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
        if self._process.successor and port is not None:
            self._process.successor.handover.pass_on(PORT, port)

    def _build_app(self, services: Services, requests: ApiRequests, key: Secret) -> Starlette:
        http = self._settings.http
        api = ApiRoutes(
            requests,
            self._clock,
            authenticate=authenticator(key, services.api_keys),
            keepalive=Keepalive(
                idle_seconds=http.sse_keepalive, headers_after=http.early_headers_after
            ),
            redactor=self._redactor,
        )
        page = MetricsPage(
            self._metrics, self.condition, services.store, self._clock, self._disk_gauge
        )
        return build_app(
            [
                metrics_route(page.render, key, open_to_local=http.open_metrics),
                openapi_route(openapi.openapi_json),
                *api.routes(),
                *self._adapters.routes(),
            ],
            health=self.condition,
            allowed_hosts=(*http.allowed_hosts, http.host),
            hosts_by_path=self._adapters.hosts_by_path(),
            concurrency_limit=self._concurrency_limit,
            degraded_parts=self._degraded_parts,
            cors_origins=http.cors_origins,
        )

    def _read_api_key(self) -> ApiKey:
        """Return the configured key, or load or create one.

        A key of the state folder is registered for redaction before anything is logged.
        """
        configured = self._settings.http.api_key
        if configured:
            return ApiKey(configured)
        key = api_key.load_or_create(self._home)
        self._redactor.add(key.secret)
        return key

    # --- platforms ------------------------------------------------------------------------------

    def _add_api(self, delivery: Delivery) -> ApiAdapter:
        api = ApiAdapter(self._feeds, self._clock, self._home / "platforms" / "api")
        self._adapters.add(api, delivery)
        return api

    def _add_platforms(self, services: Services) -> None:
        store = services.store
        archive = StoreArchive(store, services.delivery.redact)
        access = self._settings.access
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
                prompts=partial(prompt_menu, services.mcp),
                folder=self._home / "platforms" / name,
                trouble=partial(self._report_problem, name),
                memberships=has_membership_entries((*access.allow, *access.admins), name),
            )
            self._adapters.add(spec.build(config, surroundings), services.delivery)

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
    def operations(self) -> Mapping[str, Operation]:
        """Operations for the command line; none before the conversations are open."""
        return self._open.operations if self._open else {}

    @property
    def has_admin(self) -> bool:
        """True if a platform has an admin, configured or claimed."""
        return self._open is not None and self._open.people.has_admin

    @property
    def created_api_key(self) -> bool:
        """True if this start created the API key, because none is configured."""
        return self._open is not None and self._open.created_api_key

    def _count_running_turns(self) -> int:
        return len(self._open.conversations.pool.running_turns()) if self._open else 0

    def _read_status(self) -> dict[str, object]:
        successor = self._process.successor
        version = successor.version if successor else None
        fixed = {"version": version, "started_at": self._started_at, "url": self.url}
        servers = dict(self._open.mcp_status()) if self._open else {}
        degraded = dict(self._degraded_parts())
        return self.condition.status() | fixed | {"degraded": degraded, "mcp": servers}

    def _degraded_parts(self) -> Mapping[str, str]:
        return self._open.conversations.degraded_parts() if self._open else {}

    async def _create_link(self, base_url: str | None) -> str:
        page: object = self.adapter("web")
        if self._http_server is None or not isinstance(page, OffersLinks):
            msg = "The web page is off. Set http.ui = true to use it."
            raise CannotStart(msg)
        return await page.new_link(base_url or self._http_server.url)


def _create_transcriber(settings: VoiceSettings) -> SpeechToText | None:
    if settings.transcription_url is None:
        return None
    from gateway.media.transcription import Transcriber

    return Transcriber(settings)
