"""`GatewayRunner`: what exists, and in which order it starts and stops.

Nesting order is shutdown order. Outside is the store; inside it delivery, the platforms and the
HTTP port; innermost the conversations. So at the end conversations finish first, while platforms
still receive and deliver; then what is to be shown gets out; then connections close.
"""

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

import msgspec
from starlette.applications import Starlette

from agent.settings import VoiceSettings
from agent.tools.contract import Tool
from agent.tools.mcp.servers import McpServers
from agent.web.fetch import Fetcher
from agent.web.urls import Rules
from gateway import api_key, openapi
from gateway.access import by_membership
from gateway.adapters import Adapters
from gateway.announcer import Announcer
from gateway.api.adapter import ApiAdapter
from gateway.api.naming import Naming
from gateway.api.remote import RemotePictures
from gateway.api.requests import Requests, forget_left, goes_on
from gateway.approvals import Approvals
from gateway.archive import StoreArchive, StoreShelf
from gateway.asides import Asides
from gateway.attachments import Attachments, Bounds
from gateway.choices import Choices
from gateway.commands.registry import COMMANDS
from gateway.delivery.outbox import Delivery
from gateway.desk import Desk
from gateway.disk import Gauge
from gateway.errors import CannotStart, ConfigError
from gateway.feeds import Feeds
from gateway.figures import Figures
from gateway.glance import glance
from gateway.hands import GatewayHands
from gateway.hearing import Listener
from gateway.http.app import build_app
from gateway.http.crowd import Crowd
from gateway.http.patience import Patience
from gateway.http.server import HttpServer, PortTaken
from gateway.inbound import Reception
from gateway.messages import Reader, read_event
from gateway.models import Models, open_models
from gateway.observe import pulse
from gateway.observe.ledger import Ledger
from gateway.observe.redact import Redactor
from gateway.operations import Operation, Operations
from gateway.operators import Operators, Trouble
from gateway.parcels import Parcels
from gateway.people import People
from gateway.receipts import Receipts
from gateway.settings import Settings
from gateway.supervision import Standing
from gateway.turns import Turns
from gateway.vigil import Vigil
from gateway.work import Workshop
from platforms.core.contract import Adapter, OffersLinks, PlatformSpec, Surroundings
from sessions.actor import Shared
from sessions.errors import StoreError, StoreTooNew
from sessions.events import Busy, Interrupt, RunningTurn
from sessions.expiry import Expiry
from sessions.pool import SessionPool
from sessions.records import Reason
from sessions.settings import SessionSettings
from sessions.store import SessionStore
from sessions.values.clock import Clock, SystemClock
from sessions.values.ids import Ids
from sessions.values.secret import Secret

log = logging.getLogger(__name__)

SETTLE_SECONDS = 5.0
WRITTEN_WITHIN = 2.0  # or the store counts as one that cannot be written
FIRST_CHANCE_SECONDS = 1.0
TIDY_SECONDS = 3600.0
IGNORED_KEPT_MILLISECONDS = 7 * 86_400_000


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """What conversations stand on: opened before them, closed after them."""

    store: SessionStore
    models: Models
    delivery: Delivery
    announcer: Announcer
    people: People


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
    ) -> None:
        self._settings = settings
        self._home = home
        self._specs = specs
        self._clock = clock or SystemClock()
        self._ledger = Ledger()
        self._http = self._door() if http else None
        self._crowd = Crowd(settings.http.max_requests, lambda: self._ledger.cut.add("busy"))
        self._redactor = redactor or Redactor()
        self._tools = tuple(tools)  # besides ours and those of installed distributions
        self._ids = Ids(self._clock)
        self._pool: SessionPool | None = None
        self._store: SessionStore | None = None
        self._people: People | None = None
        self._listener: Listener | None = None
        self._gauge = Gauge(home, settings.gateway.disk_low)
        self._started_at = self._clock.now()
        self.stopping = asyncio.Event()
        self.hurry = asyncio.Event()
        self.ready = asyncio.Event()
        self.operations: dict[str, Operation] = {}
        self._key: Secret | None = None
        self.made_key = False
        """Whether the API's key was made by this start, because none is configured."""
        self._feeds = Feeds()
        self._api: ApiAdapter | None = None
        self._news = asyncio.Event()  # a platform stands otherwise, or an admin was told something
        self._adapters = Adapters(self._news.set)

    # --- starting and stopping ------------------------------------------------------------------

    async def run(self) -> None:
        """Live until `stopping` is set and everything is drained."""
        if self._http:
            self._take_port(self._http)
        async with self._opened_store() as store:
            store.witness = self._ledger
            if self._http:
                self._key = self._settings.http.api_key or self._own_key()
            models = await open_models(self._settings, self._home, self._tools, clock=self._clock)
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

    def _take_port(self, server: HttpServer) -> None:
        try:
            server.bind()
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

    @contextlib.asynccontextmanager
    async def _opened_store(self) -> AsyncIterator[SessionStore]:
        url = self._settings.store.url
        where = url.reveal() if url else f"sqlite:///{self._home / 'holdfast.db'}"
        try:
            store = await SessionStore.open(where, clock=self._clock)
        except StoreTooNew as error:
            raise ConfigError(str(error)) from error
        except StoreError as error:
            raise CannotStart(str(error)) from error
        self._store = store
        try:
            yield store
        finally:
            await store.close()

    async def _serve(self, store: SessionStore, models: Models) -> None:
        delivery = Delivery(
            store,
            self._clock,
            clean=self._redactor.clean,
            on_refused=self._adapters.refused,
            noted=self._ledger.delivered,
        )
        announcer = Announcer(self._ids, self._clock, self._adapters.capabilities)
        people = People(store, self._clock, self._settings.access)
        await people.open()
        self._people = people
        ground = Ground(
            store=store, models=models, delivery=delivery, announcer=announcer, people=people
        )
        self._build_adapters(store, delivery)
        recovered = await delivery.recover()
        if recovered:
            log.info("%d things are still to be shown from before the start", recovered)
        async with asyncio.TaskGroup() as connections:
            tasks = [connections.create_task(delivery.run(), name="delivery")]
            async with asyncio.TaskGroup() as conversations:
                reception = await self._open_conversations(ground, conversations)
                tasks.append(connections.create_task(self._tidy(store, models), name="tidy"))
                vigil = await self._open_vigil(store, delivery)
                tasks.append(connections.create_task(vigil.run(), name="vigil"))
                tasks += [
                    connections.create_task(each.run(reception.receive), name=each.name)
                    for each in self._adapters
                ]
                if self._http:
                    app = self._app(store)
                    tasks.append(connections.create_task(self._http.serve(app), name="http"))
                    late = pulse.feel(self._ledger.lag.saw)
                    tasks.append(connections.create_task(late, name="pulse"))
                assert self._pool is not None  # noqa: S101 - opened just above
                with self._pool.closing(), self._asides.closing():
                    await self._first_chances()
                    self.ready.set()
                    await self.stopping.wait()
                    await self._drain(self._pool)
                    self._feeds.close()
            await delivery.settle(SETTLE_SECONDS)
            for task in reversed(tasks):
                task.cancel()

    def _door(self) -> HttpServer:
        http = self._settings.http
        patience = Patience(body=float(http.slow_after), reader=float(http.slow_after))
        return HttpServer(http.host, http.port, patience, self._ledger.cut.add)

    def _app(self, store: SessionStore) -> Starlette:
        http = self._settings.http
        return build_app(
            self._adapters.routes(),
            health=self,
            allowed_hosts=(*http.allowed_hosts, http.host),
            hosts_of=self._adapters.hosts_of(),
            key=self._key,
            crowd=self._crowd,
            figures=Figures(self._ledger, self, store, self._clock, self._gauge).page,
            document=openapi.page,
        )

    def _fetcher(self) -> Fetcher | None:
        """Fetches pictures for the API, where that is wanted."""
        http = self._settings.http
        return Fetcher(Rules(also=http.picture_places)) if http.fetch_pictures else None

    def _own_key(self) -> Secret:
        """The one that was made here; known before anything is shown, so that it never is."""
        key = api_key.take(self._home)
        self._redactor.add(key.secret)
        self.made_key = key.made
        return key.secret

    async def _open_conversations(self, ground: Ground, tasks: asyncio.TaskGroup) -> Reception:
        store, people = ground.store, ground.people
        announcer, delivery = ground.announcer, ground.delivery
        choices = Choices(store)
        await choices.open()
        ground.models.choice = choices.of
        self._turns = self._make_turns(ground, tasks)
        settings = self._settings
        reader = Reader(Busy(settings.gateway.busy))
        receipts = Receipts(delivery.react if settings.gateway.reactions else None)
        self._pool = pool = SessionPool(
            Shared(
                store=store,
                hands=GatewayHands(reader, self._turns, announcer, delivery, receipts, self._feeds),
                clock=self._clock,
                ids=self._ids,
                expiry=_expiry(settings.sessions),
                queue_limit=settings.gateway.queue_limit,
                tasks=tasks,
                goes_on=goes_on,
            )
        )
        self._asides = Asides(
            store=store,
            clock=self._clock,
            models=ground.models,
            choices=choices,
            announcer=announcer,
            delivery=delivery,
            tasks=tasks,
        )
        desk = self._make_desk(ground, pool)
        reception = Reception(
            store=store,
            clock=self._clock,
            ids=self._ids,
            settings=settings,
            reader=reader,
            policy=people.policy,
            words=COMMANDS.words,
            post=pool.post,
            carry_out=desk.carry_out,
            tell=desk.answer,
            meet=desk.meet,
            receipts=receipts,
        )
        await self._take_up_what_was_left(store, pool, reception)
        if self._api:
            requests = Requests(
                store=store,
                clock=self._clock,
                ids=self._ids,
                feeds=self._feeds,
                naming=Naming(ground.models, self._clock),
                ask=reception.ask,
                post=pool.post,
                owner=pool.ask,
                keep=self._api.keep,
                remote=RemotePictures(self._fetcher()),
                stopping=self.stopping.is_set,
            )
            self._api.open(requests)
        return reception

    def _make_turns(self, ground: Ground, tasks: asyncio.TaskGroup) -> Turns:
        store, settings = ground.store, self._settings
        self._approvals = Approvals(
            store,
            self._clock,
            self._ids,
            ground.announcer,
            ground.delivery,
            ground.people,
            mode=settings.tools.approval,
            capabilities=self._adapters.capabilities,
            tasks=tasks.create_task,
        )
        self._parcels = Parcels(
            store,
            ground.delivery,
            self._clock,
            self._home / "outgoing",
            self._adapters.capabilities,
            keep=settings.media.keep,
        )
        self._attachments = Attachments(
            lambda place: self.adapter(place.platform, place.account),
            self._clock,
            self._listener,
            Bounds(largest=settings.media.largest),
        )
        self._operators = Operators(
            ground.people.admins,
            ground.announcer,
            self._clock,
            self._adapters.capabilities,
            self._news.set,
        )
        shop = Workshop(
            store=store,
            delivery=ground.delivery,
            announcer=ground.announcer,
            approvals=self._approvals,
            operators=self._operators,
            clock=self._clock,
            attachments=self._attachments,
            parcels=self._parcels,
            asks=self._turn_asks,
            spoke=lambda turn: self._ledger.spoke(turn, self._clock.now()),
        )
        take_up = settings.sessions.on_interrupted == "resume"
        return Turns(shop, ground.models.setting, self._feeds, take_up=take_up)

    def _make_desk(self, ground: Ground, pool: SessionPool) -> Desk:
        desk = Desk(
            store=ground.store,
            clock=self._clock,
            pool=pool,
            people=ground.people,
            announcer=ground.announcer,
            delivery=ground.delivery,
            capabilities=self._adapters.capabilities,
            stopping=self.stopping,
            questions=self._approvals,
            asides=self._asides,
        )
        self.operations.update(
            Operations(
                store=ground.store,
                clock=self._clock,
                ids=self._ids,
                desk=desk,
                people=ground.people,
                delivery=ground.delivery,
                capabilities=self._adapters.capabilities,
                status=self._status,
                new_link=self._new_link,
                claim_links=self._adapters.claim_links,
            ).table()
        )
        return desk

    async def _open_vigil(self, store: SessionStore, delivery: Delivery) -> Vigil:
        vigil = Vigil(
            store,
            self._clock,
            self._operators,
            delivery,
            platforms=lambda: {
                each.name: Trouble(each.problem, each.standing is Standing.CONNECTED)
                for each in self._adapters
            },
            gauge=self._gauge,
            news=self._news,
        )
        await vigil.open()
        return vigil

    async def _take_up_what_was_left(
        self, store: SessionStore, pool: SessionPool, reception: Reception
    ) -> None:
        """Suspend what a crash interrupted, answer what was waiting, carry out what was said."""
        running = await store.running_turns()
        if running:
            log.info("interrupted by the last end of the process: %d", len(running))
        waiting = await store.waiting_keys()
        for key in filter(goes_on, waiting):
            await forget_left(store, self._clock, key)
        keys = dict.fromkeys((*(turn.key for turn in running), *waiting))
        await pool.begin(keys)
        for entry in await store.commands():
            await reception.again(entry, read_event(entry))

    async def _tidy(self, store: SessionStore, models: Models) -> None:
        """Forget what was only noted, and drafts and questions, once their time is over."""
        while True:
            try:
                await store.sweep(self._clock.now() - IGNORED_KEPT_MILLISECONDS)
                await models.sweep()
                await self._parcels.sweep()
                await self._attachments.clear(models.workspaces(), self._settings.media.keep)
                await self._approvals.expire()
            except (StoreError, OSError) as error:
                log.warning("cannot tidy up: %s", error)
            await asyncio.sleep(TIDY_SECONDS)

    async def _first_chances(self) -> None:
        """Wait until every platform was connected, or could not be, for the first time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_CHANCE_SECONDS):
                await self._adapters.tried()

    def _turn_asks(self) -> None:
        if self._pool:
            self._pool.look_again()

    async def _drain(self, pool: SessionPool) -> None:
        resume = self._settings.sessions.on_interrupted == "resume"

        def farewell(_key: str, turn: RunningTurn) -> Interrupt:
            take_up = resume and not turn.once
            return Interrupt(Reason.RESTART, self._turns.fields(turn), take_up=take_up)

        grace = self._settings.gateway.drain_seconds
        interrupted = await pool.drain(grace, self.hurry, farewell, self._turns.waits)
        if interrupted:
            log.info("interrupted: %d", interrupted)

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

    async def problems(self) -> Sequence[str]:
        """What keeps the daemon from doing its work; see `gateway.http.app.Health`."""
        found = [f"{each.name}: {each.problem}" for each in self._adapters if each.problem]
        if self.stopping.is_set():
            found.append("gateway: stopping, no new turns begin")
        async with asyncio.TaskGroup() as both:
            looks = [both.create_task(self._store_problem()), both.create_task(self._full())]
        return [*found, *(problem for look in looks if (problem := look.result()))]

    async def _store_problem(self) -> str:
        if self._store is None:
            return ""
        try:
            async with asyncio.timeout(WRITTEN_WITHIN):
                await self._store.prove_writable()
        except StoreError as error:
            return f"store: {error}"
        except TimeoutError:
            return f"store: nothing could be written within {WRITTEN_WITHIN:g} s"
        return ""

    async def ask_writer(self) -> None:
        """See `gateway.bulletin.Daemon`; before there is a store, there is nothing to ask."""
        if self._store is not None:
            await self._store.prove_answering()

    def writer_steps(self) -> int:
        """See `gateway.bulletin.Daemon`."""
        return self._store.writer_steps if self._store is not None else 0

    async def all_tried(self) -> None:
        """See `gateway.bulletin.Daemon`."""
        await self._adapters.tried()

    @property
    def drain_seconds(self) -> float:
        """See `gateway.bulletin.Daemon`."""
        return self._settings.gateway.drain_seconds

    def glance(self) -> str:
        """See `gateway.bulletin.Daemon`."""
        return glance(self._standings(), self.running_turns(), stopping=self.stopping.is_set())

    def reload(self) -> None:
        """Read the configuration again, as SIGHUP asks for."""
        log.info("told to read the configuration again: nothing to reload yet")

    async def _full(self) -> str:
        try:
            return (await self._gauge.read()).complaint
        except OSError as error:
            return f"disk: {self._home}: {error.strerror}"

    def running_turns(self) -> int:
        """See `gateway.figures.House`."""
        return len(self._pool.running()) if self._pool else 0

    def requests_at_work(self) -> int:
        """See `gateway.figures.House`."""
        return self._crowd.at_work

    def platforms_well(self) -> Mapping[str, bool]:
        """See `gateway.figures.House`."""
        return {each.name: not each.problem for each in self._adapters}

    def _status(self) -> dict[str, object]:
        return {
            "state": "stopping" if self.stopping.is_set() else "running",
            "started_at": self._started_at,
            "url": self.url,
            "platforms": self._standings(),
            "running": self.running_turns(),
        }

    def _standings(self) -> dict[str, str]:
        return {each.name: each.problem or each.standing.value for each in self._adapters}

    async def _new_link(self, base_url: str | None) -> str:
        page: object = self.adapter("web")
        if self._http is None or not isinstance(page, OffersLinks):
            msg = "The web page is switched off (http.ui)."
            raise CannotStart(msg)
        return await page.new_link(base_url or self._http.url)


def _listener(settings: VoiceSettings) -> Listener | None:
    if settings.transcription_url is None:
        return None
    made: Listener = import_module("gateway.transcription").Transcriber(settings)
    return made


def _expiry(settings: SessionSettings) -> Expiry:
    daily = settings.daily_at
    return Expiry(settings.idle_minutes, dt.time.fromisoformat(daily) if daily else None)
