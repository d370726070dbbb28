"""`Conversations`: everything between an incoming message and its answer.

Created once per start, with an open store and the platforms; `GatewayRunner` opens and closes those.
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
from gateway.turns.host import ConversationHost
from gateway.turns.models import Models
from gateway.turns.services import TurnServices
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

_CLEANUP_INTERVAL_SECONDS = 3600.0
_IGNORED_RETENTION_MILLISECONDS = 7 * 86_400_000


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """Services opened before and closed after the conversations."""

    settings: Callable[[], Settings]  # the present ones, because a reload replaces them
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
    on_alert_change: Callable[[], None]  # called when the alert watch must check now
    lifecycle: LifecycleEvents
    successor: Successor | None
    crash_count: int


class Conversations:
    """Builds the parts that serve conversations, and runs their start, cleanup and drain."""

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
            ids=services.ids,
            announcer=services.announcer,
            delivery=services.delivery,
            people=services.people,
            mode=lambda: settings().tools.approval,
            capabilities=services.adapters.capabilities,
            create_task=tasks.create_task,
        )
        self._reader = InboxReader(lambda: BusyPolicy(settings().gateway.busy))
        self._reactions = MessageReactions(
            services.delivery.react if settings().gateway.reactions else None
        )
        self._host = self._make_host()
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
        self._crash_interrupted: list[InterruptedTurn] = []  # turns of a process that died
        self._dispatcher = self._make_dispatcher()

    # --- parts ----------------------------------------------------------------------------------

    def _make_host(self) -> ConversationHost:
        services, media = self._services, self._services.settings().media
        self._outgoing_files = OutgoingFiles(
            services.store,
            services.delivery,
            services.clock,
            services.home / "outgoing",
            services.adapters.capabilities,
            keep_seconds=media.keep,
        )
        self._attachments = AttachmentFetcher(
            lambda place: services.adapters.get(place.platform, place.account),
            services.clock,
            services.transcriber,
            FetchLimits(max_bytes=media.largest),
        )
        turn_services = TurnServices(
            store=services.store,
            delivery=services.delivery,
            announcer=services.announcer,
            approvals=self.approvals,
            admin_alerts=self.admin_alerts,
            budgets=self.budgets,
            clock=services.clock,
            attachments=self._attachments,
            outgoing_files=self._outgoing_files,
            on_waiting=self._recheck_pool,
            on_first_text=lambda turn: services.metrics.on_first_text(turn, services.clock.now()),
        )
        return ConversationHost(
            turn_services,
            services.models.turn_setting,
            self._reader,
            self._reactions,
            services.feeds,
            resumes_turns=self._resumes_interrupted,
        )

    def _recheck_pool(self) -> None:
        self.pool.recheck_drain()  # a method, because the pool is created after the host

    def _make_pool(self) -> SessionPool:
        services, settings = self._services, self._services.settings
        return SessionPool(
            ActorServices(
                store=services.store,
                host=self._host,
                clock=services.clock,
                ids=services.ids,
                expiry_policy=lambda: _expiry(settings().sessions),
                queue_limit=lambda: settings().gateway.queue_limit,
                tasks=self._tasks,
                auto_resumes=auto_resumes,
            )
        )

    def _make_restart(self) -> Restarter:
        services = self._services
        return Restarter(
            store=services.store,
            clock=services.clock,
            ids=services.ids,
            announcer=services.announcer,
            delivery=services.delivery,
            successor=services.successor,
            lifecycle=services.lifecycle,
            running_tasks=lambda: [
                self._interrupted_turn(key, turn) for key, turn in self.pool.running_turns()
            ],
            wait_until_idle=self.pool.wait_until_idle,
            tasks=self._tasks,
            drain_seconds=lambda: services.settings().gateway.drain_seconds,
            safe_mode=bool(services.crash_count),
            resumes_turns=self._resumes_interrupted,
        )

    def _make_dispatcher(self) -> Dispatcher:
        services = self._services
        return Dispatcher(
            store=services.store,
            clock=services.clock,
            pool=self.pool,
            people=services.people,
            announcer=services.announcer,
            delivery=services.delivery,
            capabilities=services.adapters.capabilities,
            stopping=services.lifecycle.stopping,
            approvals=self.approvals,
            side_requests=self.side_requests,
            restart=self.restart,
            crash_count=services.crash_count,
        )

    def _resumes_interrupted(self) -> bool:
        """Return True if interrupted turns resume by themselves after a restart."""
        return self._services.settings().sessions.on_interrupted == "resume"

    def _interrupted_turn(self, key: str, turn: RunningTurn) -> InterruptedTurn:
        fields, waits = self._host.notice_fields(turn), self._host.is_waiting(turn)
        tool = str(fields.get("tool", ""))
        return InterruptedTurn(
            turn=turn.id,
            key=key,
            request=turn.request,
            minutes=int(fields["min"]),
            tool=tool,
            waits=waits,
        )

    # --- entry points ---------------------------------------------------------------------------

    async def make_reception(self) -> Reception:
        """Create the reception, which takes messages from the platforms."""
        services = self._services
        await self._choices.load()
        return Reception(
            store=services.store,
            clock=services.clock,
            ids=services.ids,
            settings=services.settings,
            reader=self._reader,
            policy=services.people.current_policy,
            command_words=COMMANDS.words,
            post=self.pool.post,
            dispatch=self._dispatcher.dispatch,
            reply=self._dispatcher.reply,
            greet_stranger=self._dispatcher.greet_stranger,
            reactions=self._reactions,
            restored_at=int(
                await services.store.get_value(after_restore.SHELF, after_restore.MOMENT) or 0
            ),
        )

    def open_api(self, api: ApiAdapter, reception: Reception) -> None:
        """Connect the API to the conversations."""
        services, http = self._services, self._services.settings().http
        fetcher = (
            Fetcher(FetchRules(extra_addresses=http.picture_addresses))
            if http.fetch_pictures
            else None
        )
        api.open(
            ApiRequests(
                store=services.store,
                clock=services.clock,
                ids=services.ids,
                feeds=services.feeds,
                model_resolver=ModelResolver(services.models, services.clock),
                submit=reception.receive_request,
                post_event=self.pool.post,
                apply_event=self.pool.ask,
                store_picture=api.store_picture,
                remote_pictures=RemotePictures(fetcher),
                is_stopping=services.lifecycle.stopping.is_set,
                erase_session=self.retention.erase_text,
            )
        )

    def operations(
        self,
        status: Callable[[], dict[str, object]],
        new_link: Callable[[str | None], Awaitable[str]],
    ) -> Mapping[str, Operation]:
        """Return the operations that the command line may call."""
        services = self._services
        return Operations(
            store=services.store,
            clock=services.clock,
            ids=services.ids,
            dispatcher=self._dispatcher,
            people=services.people,
            delivery=services.delivery,
            capabilities=services.adapters.capabilities,
            read_status=status,
            read_usage_today=self.budgets.shared_statuses,
            create_link=new_link,
            claim_links=services.adapters.claim_links,
            erase_text=self.retention.erase_text,
            restart=self.restart,
        ).by_name()

    # --- start, cleanup and drain ---------------------------------------------------------------

    async def recover(self, reception: Reception) -> None:
        """Recover interrupted turns, run stored commands, and answer waiting messages.

        In this order, because a stored `/stop` must not stop a message that arrived after it.
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
            log.info("%d turns were interrupted when the last process ended", len(running))
        waiting = await store.inbox.waiting_keys()
        for key in filter(auto_resumes, waiting):
            await close_abandoned_requests(store, clock, key)
        for entry in await store.inbox.pending_commands():
            if self._services.crash_count:  # one of these commands may cause the crash
                done = SetInbox(ids=(entry.id,), state=InboxState.DONE, at=clock.now())
                await self._dispatcher.send_notice(
                    NoticeId.NOT_NOW, entry.address, {}, done, origin=origin_of(entry)
                )
            else:
                await reception.redo_command(entry, read_event(entry))
        await self.pool.recover(dict.fromkeys((*(turn.key for turn in running), *waiting)))

    async def report_restart(self) -> None:
        """Report the finished restart to the person who asked for it."""
        await self.restart.report_finished(self._crash_interrupted)

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """Cancel all background work at the end of the block, so that the process can end."""
        with self.pool.closing(), self.side_requests.closing(), self.restart.closing():
            yield

    async def drain(self) -> None:
        """Start no more turns, wait for running turns up to `drain_seconds`, then interrupt them."""
        interrupted: list[InterruptedTurn] = []

        def interrupt(key: str, turn: RunningTurn) -> InterruptTurn:
            resume = self._resumes_interrupted() and not turn.single_turn
            interrupted.append(self._interrupted_turn(key, turn))
            return InterruptTurn(
                SessionReason.RESTART, self._host.notice_fields(turn), resume_after_restart=resume
            )

        drain_seconds = self._services.settings().gateway.drain_seconds
        skip_drain = self._services.lifecycle.skip_drain
        count = await self.pool.drain(drain_seconds, skip_drain, interrupt, self._host.is_waiting)
        if count:
            log.info("%d turns interrupted by the shutdown", count)
        await self.restart.on_drained(interrupted)

    async def run_cleanup(self) -> None:
        """Delete expired rows, drafts, files and approval requests every hour, until cancelled."""
        services, models = self._services, self._services.models
        while True:
            try:
                await services.store.delete_ignored(
                    services.clock.now() - _IGNORED_RETENTION_MILLISECONDS
                )
                await models.sweep_drafts()
                await models.close_retired(self._oldest_turn_start())
                await self._outgoing_files.remove_old_copies()
                await self._attachments.remove_old(
                    models.workspaces(), services.settings().media.keep
                )
                await self.approvals.close_expired()
                await self.retention.run_once()
                await self.budgets.forget_old_days()
            except (StoreError, OSError) as error:
                log.warning("cleanup failed, next try in an hour: %s", error)
            await asyncio.sleep(_CLEANUP_INTERVAL_SECONDS)

    def _oldest_turn_start(self) -> int:
        """Return the start of the oldest running turn, or the present time if none runs."""
        starts = (turn.started_at for _, turn in self.pool.running_turns())
        return min(starts, default=self._services.clock.now())


def _expiry(settings: SessionSettings) -> ExpiryPolicy:
    daily = settings.daily_at
    return ExpiryPolicy(settings.idle_minutes, dt.time.fromisoformat(daily) if daily else None)
