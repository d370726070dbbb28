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
from agent.web.urls import FetchRules
from gateway.access.people import People
from gateway.alerts.admins import AdminAlerts
from gateway.approvals.broker import ApprovalBroker
from gateway.commands.dispatch import Dispatcher
from gateway.commands.registry import COMMANDS
from gateway.connections.directory import AdapterDirectory
from gateway.delivery.outbox import Delivery
from gateway.http.api.adapter import ApiAdapter
from gateway.http.api.fetch_pictures import RemotePictures
from gateway.http.api.models import ModelResolver
from gateway.http.api.requests import ApiRequests, auto_resumes, close_abandoned_requests
from gateway.inbound.reactions import MessageReactions
from gateway.inbound.reader import InboxReader, origin_of, read_event
from gateway.inbound.reception import Reception
from gateway.media.fetch import AttachmentFetcher, FetchLimits
from gateway.media.outgoing import OutgoingFiles
from gateway.media.speech import SpeechToText
from gateway.notices.compose import NoticeComposer
from gateway.observe.metrics import Metrics
from gateway.process.health import LifecycleEvents
from gateway.process.operations import Operation, Operations
from gateway.process.restart import Restarter
from gateway.process.restart_report import InterruptedTurn
from gateway.process.successor import Successor
from gateway.retention import Retention
from gateway.settings import Settings
from gateway.side_requests.service import SideRequests
from gateway.spending.budgets import Budgets
from gateway.turns.choices import ModelChoices
from gateway.turns.feeds import Feeds
from gateway.turns.host import ConversationHost, TurnFactory
from gateway.turns.models import Models
from gateway.turns.run import TurnServices
from sessions.changes import SetInbox
from sessions.conversation.actor import ActorServices
from sessions.conversation.events import BusyPolicy, InterruptTurn, RunningTurn
from sessions.conversation.expiry import ExpiryPolicy
from sessions.conversation.pool import SessionPool
from sessions.errors import StoreError
from sessions.records import InboxState, SessionReason
from sessions.settings import SessionSettings
from sessions.store import after_restore
from sessions.store.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.ids import Ids
from sessions.values.notices import NoticeId

log = logging.getLogger(__name__)

CLEANUP_INTERVAL_SECONDS = 3600.0
IGNORED_RETENTION_MILLISECONDS = 7 * 86_400_000


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """What conversations stand on: there before them, closed after them."""

    settings: Callable[[], Settings]  # those of now: a reload exchanges them
    home: Path
    clock: Clock
    ids: Ids
    store: SessionStore
    models: Models
    delivery: Delivery
    announcer: NoticeComposer
    people: People
    adapters: AdapterDirectory
    feeds: Feeds
    metrics: Metrics
    transcriber: SpeechToText | None
    on_alert_change: Callable[[], None]  # told when there is something that admins should hear of
    lifecycle: LifecycleEvents
    successor: Successor | None
    crash_count: int


class Conversations:
    """All of them, and who takes part in them."""

    def __init__(self, services: Services, tasks: asyncio.TaskGroup) -> None:
        self._services = services
        self._tasks = tasks
        store, clock, settings = services.store, services.clock, services.settings
        self._choices = ModelChoices(store)
        services.models.choice_for = self._choices.get
        self.budgets = Budgets(
            store, clock, settings().limits, on_exhausted=services.on_alert_change
        )
        self.admin_alerts = AdminAlerts(
            services.people.admins,
            services.announcer,
            clock,
            services.adapters.capabilities,
            services.on_alert_change,
        )
        self.approvals = ApprovalBroker(
            store,
            clock,
            services.ids,
            services.announcer,
            services.delivery,
            services.people,
            mode=lambda: settings().tools.approval,
            capabilities=services.adapters.capabilities,
            create_task=tasks.create_task,
        )
        self._reader = InboxReader(lambda: BusyPolicy(settings().gateway.busy))
        self._reactions = MessageReactions(
            services.delivery.react if settings().gateway.reactions else None
        )
        self._turns = self._make_turns()
        self.pool = self._make_pool()
        self.retention = Retention(
            store, clock, self.pool.ask, lambda: settings().sessions.keep_days
        )
        self.side_requests = SideRequests(
            store=store,
            clock=clock,
            models=services.models,
            budgets=self.budgets,
            choices=self._choices,
            announcer=services.announcer,
            delivery=services.delivery,
            tasks=tasks,
        )
        self.restart = self._make_restart()
        self._crash_interrupted: list[
            InterruptedTurn
        ] = []  # what an earlier process was doing when it died
        self._dispatcher = self._make_dispatcher()

    # --- who takes part -------------------------------------------------------------------------

    def _make_turns(self) -> TurnFactory:
        ground, media = self._services, self._services.settings().media
        self._outgoing_files = OutgoingFiles(
            ground.store,
            ground.delivery,
            ground.clock,
            ground.home / "outgoing",
            ground.adapters.capabilities,
            keep_seconds=media.keep,
        )
        self._attachments = AttachmentFetcher(
            lambda place: ground.adapters.get(place.platform, place.account),
            ground.clock,
            ground.transcriber,
            FetchLimits(max_bytes=media.largest),
        )
        shop = TurnServices(
            store=ground.store,
            delivery=ground.delivery,
            announcer=ground.announcer,
            approvals=self.approvals,
            admin_alerts=self.admin_alerts,
            budgets=self.budgets,
            clock=ground.clock,
            attachments=self._attachments,
            outgoing_files=self._outgoing_files,
            on_waiting=self._recheck_pool,
            on_first_text=lambda turn: ground.metrics.on_first_text(turn, ground.clock.now()),
        )
        return TurnFactory(
            shop, ground.models.turn_setting, ground.feeds, resumes_turns=self._resumes_interrupted
        )

    def _recheck_pool(self) -> None:
        self.pool.recheck_drain()  # which is made after the turns

    def _make_pool(self) -> SessionPool:
        ground, settings = self._services, self._services.settings
        hands = ConversationHost(
            self._reader,
            self._turns,
            ground.announcer,
            ground.delivery,
            self._reactions,
            ground.feeds,
        )
        return SessionPool(
            ActorServices(
                store=ground.store,
                host=hands,
                clock=ground.clock,
                ids=ground.ids,
                expiry_policy=lambda: _expiry(settings().sessions),
                queue_limit=lambda: settings().gateway.queue_limit,
                tasks=self._tasks,
                auto_resumes=auto_resumes,
            )
        )

    def _make_restart(self) -> Restarter:
        ground = self._services
        return Restarter(
            store=ground.store,
            clock=ground.clock,
            ids=ground.ids,
            announcer=ground.announcer,
            delivery=ground.delivery,
            successor=ground.successor,
            lifecycle=ground.lifecycle,
            running_tasks=lambda: [
                self._interrupted_turn(key, turn) for key, turn in self.pool.running_turns()
            ],
            wait_until_idle=self.pool.wait_until_idle,
            tasks=self._tasks,
            drain_seconds=lambda: ground.settings().gateway.drain_seconds,
            safe_mode=bool(ground.crash_count),
            resumes_turns=self._resumes_interrupted,
        )

    def _make_dispatcher(self) -> Dispatcher:
        ground = self._services
        return Dispatcher(
            store=ground.store,
            clock=ground.clock,
            pool=self.pool,
            people=ground.people,
            announcer=ground.announcer,
            delivery=ground.delivery,
            capabilities=ground.adapters.capabilities,
            stopping=ground.lifecycle.stopping,
            approvals=self.approvals,
            side_requests=self.side_requests,
            restart=self.restart,
            crash_count=ground.crash_count,
        )

    def _resumes_interrupted(self) -> bool:
        """Whether turns that a restart interrupts go on by themselves."""
        return self._services.settings().sessions.on_interrupted == "resume"

    def _interrupted_turn(self, key: str, turn: RunningTurn) -> InterruptedTurn:
        fields, waits = self._turns.notice_fields(turn), self._turns.is_waiting(turn)
        tool = str(fields.get("tool", ""))
        return InterruptedTurn(
            turn=turn.id,
            key=key,
            request=turn.request,
            minutes=int(fields["min"]),
            tool=tool,
            waits=waits,
        )

    # --- what others reach them by --------------------------------------------------------------

    async def make_reception(self) -> Reception:
        """Make the door that messages come in by."""
        ground = self._services
        await self._choices.load()
        return Reception(
            store=ground.store,
            clock=ground.clock,
            ids=ground.ids,
            settings=ground.settings,
            reader=self._reader,
            policy=ground.people.current_policy,
            command_words=COMMANDS.words,
            post=self.pool.post,
            dispatch=self._dispatcher.dispatch,
            reply=self._dispatcher.reply,
            greet_stranger=self._dispatcher.greet_stranger,
            reactions=self._reactions,
            restored_at=int(
                await ground.store.get_value(after_restore.SHELF, after_restore.MOMENT) or 0
            ),
        )

    def open_api(self, api: ApiAdapter, reception: Reception) -> None:
        """Let programs take part."""
        ground, http = self._services, self._services.settings().http
        fetcher = (
            Fetcher(FetchRules(extra_addresses=http.picture_addresses))
            if http.fetch_pictures
            else None
        )
        api.open(
            ApiRequests(
                store=ground.store,
                clock=ground.clock,
                ids=ground.ids,
                feeds=ground.feeds,
                model_resolver=ModelResolver(ground.models, ground.clock),
                submit=reception.receive_request,
                post_event=self.pool.post,
                apply_event=self.pool.ask,
                store_picture=api.store_picture,
                remote_pictures=RemotePictures(fetcher),
                is_stopping=ground.lifecycle.stopping.is_set,
                erase_session=self.retention.erase_text,
            )
        )

    def operations(
        self,
        status: Callable[[], dict[str, object]],
        new_link: Callable[[str | None], Awaitable[str]],
    ) -> Mapping[str, Operation]:
        """What the command line may ask for."""
        ground = self._services
        return Operations(
            store=ground.store,
            clock=ground.clock,
            ids=ground.ids,
            dispatcher=self._dispatcher,
            people=ground.people,
            delivery=ground.delivery,
            capabilities=ground.adapters.capabilities,
            read_status=status,
            read_usage_today=self.budgets.shared_statuses,
            create_link=new_link,
            claim_links=ground.adapters.claim_links,
            erase_text=self.retention.erase_text,
            restart=self.restart,
        ).by_name()

    # --- from the start to the end --------------------------------------------------------------

    async def recover(self, reception: Reception) -> None:
        """Suspend what a crash interrupted, carry out what was said, answer what was waiting.

        In this order: a command that ends what runs must not end what was asked after it.
        """
        store, clock = self._services.store, self._services.clock
        running = await store.turns.running()
        now = clock.now()
        self._crash_interrupted = [
            InterruptedTurn(
                turn=turn.id,
                key=turn.key,
                request=turn.request,
                minutes=(now - turn.started_at) // 60_000,
            )
            for turn in running
        ]
        if running:
            log.info("interrupted by the last end of the process: %d", len(running))
        waiting = await store.inbox.waiting_keys()
        for key in filter(auto_resumes, waiting):
            await close_abandoned_requests(store, clock, key)
        for entry in await store.inbox.pending_commands():
            if self._services.crash_count:  # one of these may be what it crashes of
                done = SetInbox(ids=(entry.id,), state=InboxState.DONE, at=clock.now())
                await self._dispatcher.send_notice(
                    NoticeId.NOT_NOW, entry.address, {}, done, origin=origin_of(entry)
                )
            else:
                await reception.redo_command(entry, read_event(entry))
        await self.pool.recover(dict.fromkeys((*(turn.key for turn in running), *waiting)))

    async def report_restart(self) -> None:
        """Tell who asked for it that the restart is over."""
        await self.restart.report_finished(self._crash_interrupted)

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """At the end of the block none of them keeps the process."""
        with self.pool.closing(), self.side_requests.closing(), self.restart.closing():
            yield

    async def drain(self) -> None:
        """Let running turns finish for a while, then interrupt them; nothing new begins."""
        cut: list[InterruptedTurn] = []

        def farewell(key: str, turn: RunningTurn) -> InterruptTurn:
            take_up = self._resumes_interrupted() and not turn.single_turn
            cut.append(self._interrupted_turn(key, turn))
            return InterruptTurn(
                SessionReason.RESTART, self._turns.notice_fields(turn), resume_after_restart=take_up
            )

        grace = self._services.settings().gateway.drain_seconds
        hurry = self._services.lifecycle.skip_drain
        interrupted = await self.pool.drain(grace, hurry, farewell, self._turns.is_waiting)
        if interrupted:
            log.info("interrupted: %d", interrupted)
        await self.restart.on_drained(cut)

    async def run_cleanup(self) -> None:
        """Forget what was only noted, and drafts and questions, once their time is over."""
        ground, models = self._services, self._services.models
        while True:
            try:
                await ground.store.delete_ignored(
                    ground.clock.now() - IGNORED_RETENTION_MILLISECONDS
                )
                await models.sweep_drafts()
                await models.close_retired(self._oldest_turn_start())
                await self._outgoing_files.remove_old_copies()
                await self._attachments.remove_old(
                    models.workspaces(), ground.settings().media.keep
                )
                await self.approvals.close_expired()
                await self.retention.run_once()
                await self.budgets.forget_old_days()
            except (StoreError, OSError) as error:
                log.warning("cannot tidy up: %s", error)
            await asyncio.sleep(CLEANUP_INTERVAL_SECONDS)

    def _oldest_turn_start(self) -> int:
        """When the oldest of the running turns began; now, where none runs."""
        begun = (turn.started_at for _, turn in self.pool.running_turns())
        return min(begun, default=self._services.clock.now())


def _expiry(settings: SessionSettings) -> ExpiryPolicy:
    daily = settings.daily_at
    return ExpiryPolicy(settings.idle_minutes, dt.time.fromisoformat(daily) if daily else None)
