"""What conversations live in: everything between a message that came in and its answer.

It is made anew for each start. It knows the store and the platforms, but not how those are opened
or closed, and nothing of the process.
"""

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from agent.web.fetch import Fetcher
from agent.web.urls import Rules
from gateway.access.people import People
from gateway.alerts.admins import Operators
from gateway.approvals.broker import Approvals
from gateway.commands.dispatch import Desk
from gateway.commands.registry import COMMANDS
from gateway.connections.directory import Adapters
from gateway.delivery.outbox import Delivery
from gateway.http.api.adapter import ApiAdapter
from gateway.http.api.fetch_pictures import RemotePictures
from gateway.http.api.models import Naming
from gateway.http.api.requests import Requests, forget_left, goes_on
from gateway.inbound.reactions import Receipts
from gateway.inbound.reader import Reader, origin_of, read_event
from gateway.inbound.reception import Reception
from gateway.media.fetch import Attachments, Bounds
from gateway.media.outgoing import Parcels
from gateway.media.speech import Listener
from gateway.notices.compose import Announcer
from gateway.observe.metrics import Ledger
from gateway.process.health import Signals
from gateway.process.operations import Operation, Operations
from gateway.process.restart import Restart
from gateway.process.restart_report import Task
from gateway.process.successor import Successor
from gateway.retention import Retention
from gateway.settings import Settings
from gateway.side_requests.service import Asides
from gateway.spending.budgets import Budgets
from gateway.turns.choices import Choices
from gateway.turns.feeds import Feeds
from gateway.turns.hands import GatewayHands
from gateway.turns.host import Turns
from gateway.turns.models import Models
from gateway.turns.run import Workshop
from sessions.changes import SetInbox
from sessions.conversation.actor import Shared
from sessions.conversation.events import Busy, Interrupt, RunningTurn
from sessions.conversation.expiry import Expiry
from sessions.conversation.pool import SessionPool
from sessions.errors import StoreError
from sessions.records import InboxState, Reason
from sessions.settings import SessionSettings
from sessions.store import after_restore
from sessions.store.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.ids import Ids

log = logging.getLogger(__name__)

TIDY_SECONDS = 3600.0
IGNORED_KEPT_MILLISECONDS = 7 * 86_400_000


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """What conversations stand on: there before them, closed after them."""

    settings: Callable[[], Settings]  # those of now: a reload exchanges them
    home: Path
    clock: Clock
    ids: Ids
    store: SessionStore
    models: Models
    delivery: Delivery
    announcer: Announcer
    people: People
    adapters: Adapters
    feeds: Feeds
    ledger: Ledger
    listener: Listener | None
    news: Callable[[], None]  # told when there is something that admins should hear of
    signals: Signals
    successor: Successor | None
    crashes: int


class Conversations:
    """All of them, and who takes part in them."""

    def __init__(self, ground: Ground, tasks: asyncio.TaskGroup) -> None:
        self._ground = ground
        self._tasks = tasks
        store, clock, settings = ground.store, ground.clock, ground.settings
        self._choices = Choices(store)
        ground.models.choice = self._choices.of
        self.budgets = Budgets(store, clock, settings().limits, news=ground.news)
        self.operators = Operators(
            ground.people.admins,
            ground.announcer,
            clock,
            ground.adapters.capabilities,
            ground.news,
        )
        self.approvals = Approvals(
            store,
            clock,
            ground.ids,
            ground.announcer,
            ground.delivery,
            ground.people,
            mode=lambda: settings().tools.approval,
            capabilities=ground.adapters.capabilities,
            tasks=tasks.create_task,
        )
        self._reader = Reader(lambda: Busy(settings().gateway.busy))
        self._receipts = Receipts(ground.delivery.react if settings().gateway.reactions else None)
        self._turns = self._make_turns()
        self.pool = self._make_pool()
        self.retention = Retention(
            store, clock, self.pool.ask, lambda: settings().sessions.keep_days
        )
        self.asides = Asides(
            store=store,
            clock=clock,
            models=ground.models,
            budgets=self.budgets,
            choices=self._choices,
            announcer=ground.announcer,
            delivery=ground.delivery,
            tasks=tasks,
        )
        self.restart = self._make_restart()
        self._left: list[Task] = []  # what an earlier process was doing when it died
        self._desk = self._make_desk()

    # --- who takes part -------------------------------------------------------------------------

    def _make_turns(self) -> Turns:
        ground, media = self._ground, self._ground.settings().media
        self._parcels = Parcels(
            ground.store,
            ground.delivery,
            ground.clock,
            ground.home / "outgoing",
            ground.adapters.capabilities,
            keep=media.keep,
        )
        self._attachments = Attachments(
            lambda place: ground.adapters.get(place.platform, place.account),
            ground.clock,
            ground.listener,
            Bounds(largest=media.largest),
        )
        shop = Workshop(
            store=ground.store,
            delivery=ground.delivery,
            announcer=ground.announcer,
            approvals=self.approvals,
            operators=self.operators,
            budgets=self.budgets,
            clock=ground.clock,
            attachments=self._attachments,
            parcels=self._parcels,
            asks=self._look_again,
            spoke=lambda turn: ground.ledger.spoke(turn, ground.clock.now()),
        )
        return Turns(shop, ground.models.setting, ground.feeds, take_up=self._takes_up)

    def _look_again(self) -> None:
        self.pool.look_again()  # which is made after the turns

    def _make_pool(self) -> SessionPool:
        ground, settings = self._ground, self._ground.settings
        hands = GatewayHands(
            self._reader,
            self._turns,
            ground.announcer,
            ground.delivery,
            self._receipts,
            ground.feeds,
        )
        return SessionPool(
            Shared(
                store=ground.store,
                hands=hands,
                clock=ground.clock,
                ids=ground.ids,
                expiry=lambda: _expiry(settings().sessions),
                queue_limit=lambda: settings().gateway.queue_limit,
                tasks=self._tasks,
                goes_on=goes_on,
            )
        )

    def _make_restart(self) -> Restart:
        ground = self._ground
        return Restart(
            store=ground.store,
            clock=ground.clock,
            ids=ground.ids,
            announcer=ground.announcer,
            delivery=ground.delivery,
            successor=ground.successor,
            signals=ground.signals,
            running=lambda: [self._task(key, turn) for key, turn in self.pool.running()],
            idle=self.pool.idle,
            tasks=self._tasks,
            drain_seconds=lambda: ground.settings().gateway.drain_seconds,
            careful=bool(ground.crashes),
            takes_up=self._takes_up,
        )

    def _make_desk(self) -> Desk:
        ground = self._ground
        return Desk(
            store=ground.store,
            clock=ground.clock,
            pool=self.pool,
            people=ground.people,
            announcer=ground.announcer,
            delivery=ground.delivery,
            capabilities=ground.adapters.capabilities,
            stopping=ground.signals.stopping,
            questions=self.approvals,
            asides=self.asides,
            restart=self.restart,
            crashes=ground.crashes,
        )

    def _takes_up(self) -> bool:
        """Whether turns that a restart interrupts go on by themselves."""
        return self._ground.settings().sessions.on_interrupted == "resume"

    def _task(self, key: str, turn: RunningTurn) -> Task:
        fields, waits = self._turns.fields(turn), self._turns.waits(turn)
        tool = str(fields.get("tool", ""))
        return Task(turn.id, key, turn.request, int(fields["min"]), tool, waits)

    # --- what others reach them by --------------------------------------------------------------

    async def reception(self) -> Reception:
        """Make the door that messages come in by."""
        ground = self._ground
        await self._choices.open()
        return Reception(
            store=ground.store,
            clock=ground.clock,
            ids=ground.ids,
            settings=ground.settings,
            reader=self._reader,
            policy=ground.people.policy,
            words=COMMANDS.words,
            post=self.pool.post,
            carry_out=self._desk.carry_out,
            tell=self._desk.answer,
            meet=self._desk.meet,
            receipts=self._receipts,
            restored_at=int(
                await ground.store.get_value(after_restore.SHELF, after_restore.MOMENT) or 0
            ),
        )

    def open_api(self, api: ApiAdapter, reception: Reception) -> None:
        """Let programs take part."""
        ground, http = self._ground, self._ground.settings().http
        fetcher = Fetcher(Rules(also=http.picture_places)) if http.fetch_pictures else None
        api.open(
            Requests(
                store=ground.store,
                clock=ground.clock,
                ids=ground.ids,
                feeds=ground.feeds,
                naming=Naming(ground.models, ground.clock),
                ask=reception.ask,
                post=self.pool.post,
                owner=self.pool.ask,
                keep=api.keep,
                remote=RemotePictures(fetcher),
                stopping=ground.signals.stopping.is_set,
                erase=self.retention.words,
            )
        )

    def operations(
        self,
        status: Callable[[], dict[str, object]],
        new_link: Callable[[str | None], Awaitable[str]],
    ) -> Mapping[str, Operation]:
        """What the command line may ask for."""
        ground = self._ground
        return Operations(
            store=ground.store,
            clock=ground.clock,
            ids=ground.ids,
            desk=self._desk,
            people=ground.people,
            delivery=ground.delivery,
            capabilities=ground.adapters.capabilities,
            status=status,
            today=self.budgets.today,
            new_link=new_link,
            claim_links=ground.adapters.claim_links,
            erase=self.retention.words,
            restart=self.restart,
        ).table()

    # --- from the start to the end --------------------------------------------------------------

    async def take_up(self, reception: Reception) -> None:
        """Suspend what a crash interrupted, carry out what was said, answer what was waiting.

        In this order: a command that ends what runs must not end what was asked after it.
        """
        store, clock = self._ground.store, self._ground.clock
        running = await store.running_turns()
        now = clock.now()
        self._left = [
            Task(turn.id, turn.key, turn.request, (now - turn.started_at) // 60_000)
            for turn in running
        ]
        if running:
            log.info("interrupted by the last end of the process: %d", len(running))
        waiting = await store.waiting_keys()
        for key in filter(goes_on, waiting):
            await forget_left(store, clock, key)
        for entry in await store.commands():
            if self._ground.crashes:  # one of these may be what it crashes of
                done = SetInbox((entry.id,), InboxState.DONE, clock.now())
                await self._desk.tell("not_now", entry.address, {}, done, origin=origin_of(entry))
            else:
                await reception.again(entry, read_event(entry))
        await self.pool.begin(dict.fromkeys((*(turn.key for turn in running), *waiting)))

    async def tell_of_restart(self) -> None:
        """Tell who asked for it that the restart is over."""
        await self.restart.report(self._left)

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """At the end of the block none of them keeps the process."""
        with self.pool.closing(), self.asides.closing(), self.restart.closing():
            yield

    async def drain(self) -> None:
        """Let running turns finish for a while, then interrupt them; nothing new begins."""
        cut: list[Task] = []

        def farewell(key: str, turn: RunningTurn) -> Interrupt:
            take_up = self._takes_up() and not turn.once
            cut.append(self._task(key, turn))
            return Interrupt(Reason.RESTART, self._turns.fields(turn), take_up=take_up)

        grace = self._ground.settings().gateway.drain_seconds
        hurry = self._ground.signals.hurry
        interrupted = await self.pool.drain(grace, hurry, farewell, self._turns.waits)
        if interrupted:
            log.info("interrupted: %d", interrupted)
        await self.restart.drained(cut)

    async def tidy(self) -> None:
        """Forget what was only noted, and drafts and questions, once their time is over."""
        ground, models = self._ground, self._ground.models
        while True:
            try:
                await ground.store.sweep(ground.clock.now() - IGNORED_KEPT_MILLISECONDS)
                await models.sweep()
                await models.close_retired(self._oldest_turn())
                await self._parcels.sweep()
                await self._attachments.clear(models.workspaces(), ground.settings().media.keep)
                await self.approvals.expire()
                await self.retention.round()
                await self.budgets.forget()
            except (StoreError, OSError) as error:
                log.warning("cannot tidy up: %s", error)
            await asyncio.sleep(TIDY_SECONDS)

    def _oldest_turn(self) -> int:
        """When the oldest of the running turns began; now, where none runs."""
        begun = (turn.started_at for _, turn in self.pool.running())
        return min(begun, default=self._ground.clock.now())


def _expiry(settings: SessionSettings) -> Expiry:
    daily = settings.daily_at
    return Expiry(settings.idle_minutes, dt.time.fromisoformat(daily) if daily else None)
