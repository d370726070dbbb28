"""`Conversations`: everything between an incoming message and its answer.

Created once per start, with an open store and the platforms; `GatewayRunner` opens and closes those.
"""

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import msgspec

from agent.tools.mcp.contract import MCP_LOGIN_FOLDER, OnLoginSecrets
from agent.tools.mcp.servers import McpServers
from agent.web.fetch import Fetcher
from agent.web.urls import FetchRules
from gateway.access.key_store import ApiKeys
from gateway.access.people import People
from gateway.access.policy import Allowed, decide_access
from gateway.alerts.admins import AdminAlerts
from gateway.approvals.broker import ApprovalBroker, ApprovalSettings
from gateway.commands.access_requests import AccessRequests
from gateway.commands.contract import CommandCall, CommandFeatures
from gateway.commands.dispatch import Dispatcher
from gateway.commands.enforcement import AccessEnforcement
from gateway.commands.registry import COMMANDS
from gateway.connections.directory import AdapterDirectory
from gateway.delivery.outbox import Delivery
from gateway.delivery.view import ItemBody, write_body
from gateway.http.api.fetch_pictures import RequestPictures, SavePicture
from gateway.http.api.models import ModelResolver
from gateway.http.api.requests import (
    ApiRequests,
    ConversationAccess,
    RequestPolicy,
    auto_resumes,
    close_abandoned_requests,
)
from gateway.http.client_names import ClientNames
from gateway.http.user_token import SignedUsers
from gateway.inbound.reactions import MessageReactions
from gateway.inbound.reader import InboxReader, origin_of, read_event
from gateway.inbound.reception import Reception, ReceptionHandlers, ReceptionRules
from gateway.inbound.request_options import runs_in_background
from gateway.mcp.logins import ServerLogins
from gateway.mcp.messages import PromptMessages
from gateway.mcp.prompts import ServerPrompts
from gateway.media.fetch import AttachmentFetcher, FetchLimits
from gateway.media.outgoing import OutgoingFiles
from gateway.media.speech import SpeechToText
from gateway.notices.compose import NoticeComposer
from gateway.notices.sender import NoticeSender
from gateway.observe.metrics import Metrics
from gateway.process.context import ProcessContext
from gateway.process.health import LifecycleEvents
from gateway.process.operations import (
    AccessOperations,
    KeyOperations,
    MessageOperations,
    Operation,
    RestartOperations,
    SessionOperations,
    StatusOperations,
)
from gateway.process.restart import Restarter, RestartHost
from gateway.process.restart_report import InterruptedTurn
from gateway.retention import Retention
from gateway.settings import Settings
from gateway.side_requests.jobs import CommandJobs
from gateway.side_requests.service import SideRequests
from gateway.spending.budgets import Budgets
from gateway.spending.payers import message_limits
from gateway.turns.checkpoints import TextCheckpoints
from gateway.turns.choices import ModelChoices
from gateway.turns.feeds import Feeds
from gateway.turns.host import ConversationHost
from gateway.turns.models import Models
from gateway.turns.services import TurnServices
from sessions.changes import PutItem, SetInbox
from sessions.conversation.actor import ActorServices
from sessions.conversation.events import BusyPolicy, InterruptTurn, RunningTurn
from sessions.conversation.expiry import ExpiryPolicy
from sessions.conversation.pool import SessionPool
from sessions.errors import StoreError
from sessions.records import InboxEntry, InboxState, ItemState, SessionReason
from sessions.settings import IGNORED_RETENTION_DAYS, SessionSettings
from sessions.store import after_restore
from sessions.store.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.ids import Ids
from sessions.values.item_ids import notice_id
from sessions.values.masks import MaskSecrets
from sessions.values.notices import NoticeId
from sessions.values.tasks import start_task
from sessions.values.text import count_of

log = logging.getLogger(__name__)

_CLEANUP_INTERVAL_SECONDS = 3600.0
_DAY_MS = 86_400_000
_OWN_WORDS = COMMANDS.words


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """Services opened before and closed after the conversations."""

    settings: Callable[[], Settings]  # the present ones, because a reload replaces them
    home: Path
    clock: Clock
    ids: Ids
    store: SessionStore
    models: Models
    choices: ModelChoices
    delivery: Delivery
    redact: Callable[[str], str]  # masks secrets
    mask: MaskSecrets  # replaces secrets by placeholders
    announcer: NoticeComposer
    people: People
    api_keys: ApiKeys
    adapters: AdapterDirectory
    feeds: Feeds
    metrics: Metrics
    transcriber: SpeechToText | None
    mcp: McpServers
    on_login_secrets: OnLoginSecrets  # masks the tokens of logins at MCP servers
    on_alert_change: Callable[[], None]  # called when the alert watch must check now
    lifecycle: LifecycleEvents
    process: ProcessContext


class Conversations:
    """Builds the parts that serve conversations, and runs their start, cleanup and drain."""

    def __init__(self, services: Services, tasks: asyncio.TaskGroup) -> None:
        self._services = services
        self._tasks = tasks
        store, clock, settings = services.store, services.clock, services.settings
        self.budgets = Budgets(
            store, clock, settings().limits, on_exhausted=services.on_alert_change
        )
        self.admin_alerts = AdminAlerts(
            services.people.admins,
            services.announcer,
            clock,
            services.adapters.capabilities,
            services.on_alert_change,
            model_labels=services.models.labels,
        )
        media = settings().media
        self._outgoing_files = OutgoingFiles(
            store,
            services.delivery,
            clock,
            services.home / "outgoing",
            services.adapters.capabilities,
            keep_seconds=media.keep,
            redact=services.redact,
        )
        self.approvals = ApprovalBroker(
            store,
            clock,
            ids=services.ids,
            delivery=services.delivery,
            people=services.people,
            settings=ApprovalSettings(
                mode=lambda: settings().tools.approval,
                attach_text=self._outgoing_files.attach_text,
            ),
            capabilities=services.adapters.capabilities,
            start_task=partial(start_task, tasks),
        )
        self._reader = InboxReader(lambda: BusyPolicy(settings().gateway.busy))
        self._reactions = MessageReactions(
            services.delivery.react if settings().gateway.reactions else None
        )
        self._attachments = AttachmentFetcher(
            lambda place: services.adapters.get(place.platform, place.account),
            clock,
            services.transcriber,
            FetchLimits(max_bytes=media.largest),
        )
        self.checkpoints = TextCheckpoints(store)
        self._drain_recheck = asyncio.Event()  # set when a turn starts to wait for an answer
        self._host = self._make_host()
        self.pool = self._make_pool()
        self.retention = Retention(
            store,
            clock,
            self.pool.ask,
            lambda: settings().sessions.keep_days,
            services.choices.forget,
        )
        self._command_jobs = CommandJobs(
            clock,
            services.announcer,
            services.delivery,
            tasks,
            has_access=self._may_get_answer,
        )
        self.side_requests = SideRequests(
            store=store,
            clock=clock,
            models=services.models,
            budgets=self.budgets,
            choices=services.choices,
            jobs=self._command_jobs,
        )
        self.prompts = ServerPrompts(
            services.mcp,
            jobs=self._command_jobs,
            hand_over=PromptMessages(
                store,
                clock,
                reader=self._reader,
                reactions=self._reactions,
                has_access=self._has_access,
                post=self.pool.post,
            ).take,
            redact=services.redact,
        )
        self._notices = NoticeSender(services.announcer, services.delivery)
        self.logins = ServerLogins(
            settings().mcp,
            services.home / MCP_LOGIN_FOLDER,
            servers=services.mcp,
            jobs=self._command_jobs,
            notices=self._notices,
            tasks=tasks,
            on_secrets=services.on_login_secrets,
        )
        self._enforcement = AccessEnforcement(
            store=store,
            pool=self.pool,
            has_access=self._has_access,
            close_question=self.approvals.close_question,
            end_commands=self._command_jobs.end_without_access,
            tasks=tasks,
        )
        self.enforce_access = self._enforcement.run
        self._access = AccessRequests(
            services.people,
            self._notices,
            services.adapters.capabilities,
            enforce_access=self.enforce_access,
        )
        self.restart = self._make_restart()
        self._dispatcher = self._make_dispatcher()

    # --- parts ----------------------------------------------------------------------------------

    def _make_host(self) -> ConversationHost:
        services = self._services
        turn_services = TurnServices(
            store=services.store,
            checkpoints=self.checkpoints,
            delivery=services.delivery,
            announcer=services.announcer,
            approvals=self.approvals,
            admin_alerts=self.admin_alerts,
            budgets=self.budgets,
            clock=services.clock,
            mask=services.mask,
            attachments=self._attachments,
            outgoing_files=self._outgoing_files,
            on_waiting=self._drain_recheck.set,
            on_first_text=lambda turn: services.metrics.on_first_text(turn, services.clock.now()),
        )
        return ConversationHost(
            turn_services,
            services.models.turn_setting,
            self._reader,
            self._reactions,
            services.feeds,
            resumes_turn=self._resumes_turn,
        )

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
                has_access=self._has_access,
            ),
            recheck=self._drain_recheck,
        )

    def _make_restart(self) -> Restarter:
        services = self._services
        return Restarter(
            store=services.store,
            clock=services.clock,
            ids=services.ids,
            notices=self._notices,
            successor=services.process.successor,
            host=RestartHost(
                lifecycle=services.lifecycle,
                running_tasks=lambda: [
                    self._interrupted_turn(key, turn) for key, turn in self.pool.running_turns()
                ],
                wait_until_idle=self.pool.wait_until_idle,
                drain_seconds=lambda: services.settings().gateway.drain_seconds,
                resumes_turns=self._resumes_interrupted,
                safe_mode=bool(services.process.crash_count),
            ),
            tasks=self._tasks,
        )

    def _make_dispatcher(self) -> Dispatcher:
        services = self._services
        return Dispatcher(
            store=services.store,
            clock=services.clock,
            pool=self.pool,
            notices=self._notices,
            capabilities=services.adapters.capabilities,
            stopping=services.lifecycle.stopping,
            features=CommandFeatures(
                access=self._access,
                approvals=self.approvals,
                side_requests=self.side_requests,
                prompts=self.prompts,
                mcp=self.logins,
                restart=self.restart,
                degraded_parts=self.degraded_parts,
            ),
            crash_count=services.process.crash_count,
        )

    def _has_access(self, entry: InboxEntry) -> bool:
        """Return True if the sender of a stored message has access now; False if it is damaged."""
        try:
            event = read_event(entry)
        except msgspec.DecodeError:
            return False
        return isinstance(decide_access(self._services.people.current_policy(), event), Allowed)

    async def _may_get_answer(self, call: CommandCall) -> bool:
        entry = await self._services.store.inbox.get(call.context.inbox)
        return entry is None or self._has_access(entry)

    def _command_words(self) -> frozenset[str]:
        prompts = self.prompts.words()
        return _OWN_WORDS | prompts if prompts else _OWN_WORDS

    def degraded_parts(self) -> dict[str, str]:
        """Return the problems of models and MCP servers, without which the gateway still runs."""
        models = self.admin_alerts.model_problems()
        servers = self._services.mcp.problems()
        return {
            **{f"model {name}": cause for name, cause in models.items()},
            **{f"MCP server {name}": state for name, state in servers.items()},
        }

    def _resumes_interrupted(self) -> bool:
        """Return True if interrupted turns resume by themselves after a restart."""
        return self._services.settings().sessions.on_interrupted == "resume"

    def _resumes_turn(self, turn: RunningTurn) -> bool:
        """Return True if a turn resumes by itself after a restart.

        The client of a single request has seen its connection break and does not come back. A
        request in the background needs no connection. It continues, except in safe mode.
        """
        if runs_in_background(turn.request_options):
            return not self._services.process.crash_count
        return self._resumes_interrupted() and not turn.single_turn

    def _interrupted_turn(self, key: str, turn: RunningTurn) -> InterruptedTurn:
        interruption = self._host.describe_interruption(turn)
        return InterruptedTurn(
            turn=turn.id,
            key=key,
            request=turn.request,
            minutes=interruption.minutes,
            tool=interruption.tool,
            waits=self._host.is_waiting(turn),
        )

    # --- entry points ---------------------------------------------------------------------------

    async def make_reception(self) -> Reception:
        """Create the reception, which takes messages from the platforms."""
        services = self._services
        restored_at = await services.store.get_value(after_restore.SHELF, after_restore.MOMENT)
        return Reception(
            store=services.store,
            clock=services.clock,
            ids=services.ids,
            rules=ReceptionRules(
                settings=services.settings,
                policy=services.people.current_policy,
                message_limits=lambda person, requester: message_limits(
                    services.settings().limits, person, requester
                ),
                command_words=self._command_words,
                prompt_words=self.prompts.words,
                restored_at=int(restored_at or 0),
            ),
            reader=self._reader,
            reactions=self._reactions,
            handlers=ReceptionHandlers(
                post=self.pool.post,
                dispatch=self._dispatcher.dispatch,
                reply=self._dispatcher.reply,
                greet_stranger=self._access.greet_stranger,
            ),
        )

    def make_api_requests(self, reception: Reception, save_picture: SavePicture) -> ApiRequests:
        """Create the service that runs the requests of API clients."""
        services, http = self._services, self._services.settings().http
        fetcher = (
            Fetcher(FetchRules(extra_addresses=http.picture_addresses))
            if http.fetch_pictures
            else None
        )
        secret, clock = http.user_token_secret, services.clock
        signed_users = SignedUsers(secret=secret, clock=clock) if secret else None
        return ApiRequests(
            store=services.store,
            clock=services.clock,
            ids=services.ids,
            feeds=services.feeds,
            model_resolver=ModelResolver(services.models, services.clock),
            conversations=ConversationAccess(
                submit=reception.receive_request,
                post=self.pool.post,
                ask=self.pool.ask,
                erase_session=self.retention.erase_text,
                count_background_turns=self._count_background_turns,
                is_stopping=services.lifecycle.stopping.is_set,
            ),
            pictures=RequestPictures(fetcher, save_picture),
            policy=RequestPolicy(
                client_names=ClientNames(
                    trusted=http.trust_user_header,
                    on_request=services.metrics.on_api_request,
                    read_token=signed_users.read if signed_users else None,
                ),
                client_tools=http.client_tools,
                max_background_turns=http.max_requests,
                on_busy=lambda: services.metrics.http_refused.add("busy"),
            ),
        )

    def _count_background_turns(self) -> int:
        turns = (turn for _, turn in self.pool.running_turns())
        return sum(runs_in_background(turn.request_options) for turn in turns)

    def make_operations(
        self,
        read_status: Callable[[], dict[str, object]],
        create_link: Callable[[str | None], Awaitable[str]],
    ) -> Mapping[str, Operation]:
        """Return the operations that the command line may call."""
        services, adapters = self._services, self._services.adapters
        status = StatusOperations(read_status, self.budgets.shared_statuses, create_link)
        messages = MessageOperations(services.clock, services.ids, services.delivery, adapters)
        sessions = SessionOperations(services.store, self._dispatcher, self.retention.erase_text)
        access = AccessOperations(services.people, self._access, adapters.claim_links)
        keys = KeyOperations(services.api_keys, self.enforce_access)
        restart = RestartOperations(self.restart)
        return {
            **status.by_name(),
            **messages.by_name(),
            **sessions.by_name(),
            **access.by_name(),
            **keys.by_name(),
            **restart.by_name(),
        }

    # --- start, cleanup and drain ---------------------------------------------------------------

    async def recover(self, reception: Reception) -> None:
        """Recover interrupted turns, run stored commands, and answer waiting messages.

        The work of people without access is dropped first. Commands come before messages, because
        a stored `/stop` must not stop a message that arrived after it.
        """
        store, clock = self._services.store, self._services.clock
        for key in filter(auto_resumes, await store.inbox.waiting_keys()):
            await close_abandoned_requests(store, clock, key, self._has_access)
        await self.enforce_access()  # the configuration may have changed since the last start
        running = await store.turns.running()
        now = clock.now()
        crashed = [
            InterruptedTurn(
                turn=turn.id,
                key=turn.key,
                request=turn.request,
                minutes=(now - turn.started_at) // 60_000,
            )
            for turn in running
        ]
        if running:
            log.info("interrupted when the last process ended: %s", count_of(len(running), "turn"))
        await self.restart.report_finished(crashed)
        await self._withdraw_queue_notices([turn.id for turn in running])
        waiting = await store.inbox.waiting_keys()
        for entry in await store.inbox.pending_commands():
            if self._services.process.crash_count:  # one of these commands may cause the crash
                done = SetInbox(ids=(entry.id,), state=InboxState.DONE, at=clock.now())
                await self._notices.send(
                    NoticeId.NOT_NOW, entry.address, {}, done, origin=origin_of(entry)
                )
            else:
                await reception.redo_command(entry, read_event(entry))
        await self.pool.recover(dict.fromkeys((*(turn.key for turn in running), *waiting)))

    async def _withdraw_queue_notices(self, running: Iterable[str]) -> None:
        """Remove the notices about queued messages that a process left behind when it died."""
        store = self._services.store
        entries = [*await store.inbox.unanswered()]
        for turn_id in running:
            entries += await store.inbox.of_turn(turn_id)
        for entry in entries:
            left = await store.outbox.get(notice_id(origin_of(entry), NoticeId.QUEUED))
            if left and left.state is not ItemState.DEAD:
                empty = msgspec.structs.replace(
                    left, body=write_body(ItemBody()), state=ItemState.PENDING
                )
                await self._services.delivery.put(PutItem(empty))

    async def record_restart(self) -> None:
        """Record the restart that led to this process as finished."""
        await self.restart.record_finished()

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """Cancel all background work at the end of the block, so that the process can end."""
        with (
            self.pool.closing(),
            self._command_jobs.closing(),
            self.logins.closing(),
            self.restart.closing(),
            self._enforcement.closing(),
        ):
            yield

    async def drain(self) -> None:
        """Start no more turns, wait for running turns up to `drain_seconds`, then interrupt them."""
        interrupted: list[InterruptedTurn] = []

        def interrupt(key: str, turn: RunningTurn) -> InterruptTurn:
            resume = self._resumes_turn(turn)
            interrupted.append(self._interrupted_turn(key, turn))
            return InterruptTurn(
                SessionReason.RESTART,
                self._host.describe_interruption(turn),
                resume_after_restart=resume,
            )

        drain_seconds = self._services.settings().gateway.drain_seconds
        skip_drain = self._services.lifecycle.skip_drain
        count = await self.pool.drain(drain_seconds, skip_drain, interrupt, self._host.is_waiting)
        if count:
            log.info("interrupted by the shutdown: %s", count_of(count, "turn"))
        await self.restart.on_drained(interrupted)

    async def run_cleanup(self) -> None:
        """Delete expired rows, drafts, files and approval requests every hour, until cancelled."""
        services, models = self._services, self._services.models
        while True:
            try:
                await services.store.delete_ignored(
                    services.clock.now() - IGNORED_RETENTION_DAYS * _DAY_MS
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
