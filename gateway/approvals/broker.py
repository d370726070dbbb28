"""`ApprovalBroker`: asks people whether a tool call may run, and records their answers.

An approval request is one row in the store and one message in each chat that is asked. It survives
a restart: a later answer is kept, and counts when the model repeats the same call. A waiting turn
holds a future, neither a thread nor a transaction.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal

import msgspec

from agent.tools.contract import Tool
from agent.tools.questions import PersonAnswer, PersonQuestion
from gateway.access.people import People
from gateway.access.policy import Role, admin_addresses
from gateway.approvals import questions, rules, wording
from gateway.approvals.questions import is_question
from gateway.approvals.rules import Answerer, AnswerRefusal, approval_code, can_answer
from gateway.commands.contract import CommandCall, CommandOutcome, NoticeReply
from gateway.delivery.outbox import Delivery
from gateway.delivery.view import ItemBody, write_body
from gateway.notices.catalogue import render_notice
from gateway.notices.compose import command_template
from platforms.core.actions import ButtonAction, write_action
from platforms.core.contract import Address, Button, Capabilities
from sessions.changes import AnswerApproval, PutApproval, PutItem
from sessions.conversation.events import CommandContext
from sessions.errors import Conflict, StoreError
from sessions.records import (
    Approval,
    ApprovalState,
    ItemKind,
    ItemState,
    OutboxItem,
    ToolCall,
    TurnState,
)
from sessions.store.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.ids import Ids
from sessions.values.item_ids import ItemId, ItemType, question_id
from sessions.values.notices import NoticeId
from sessions.values.text import shorten

_APPROVAL_TIMEOUT_SECONDS = 1800.0

_DENIALS_SHELF = "denied"  # denials that no turn has read yet, by hash of the call
_BUTTONS = (("Allow", ButtonAction.APPROVE), ("Deny", ButtonAction.DENY))
_TIMELINE_ROWS = 100  # newest rows of a chat that are searched for the message of a request
_MAX_REASON_LENGTH = 500
_MAX_LABEL = 40  # characters of a button
_ENDED_STATES = {TurnState.DONE, TurnState.FAILED, TurnState.STOPPED}

log = logging.getLogger(__name__)


class RequestingTurn(msgspec.Struct, frozen=True, kw_only=True):
    """Turn that asks for approval of a tool call."""

    key: str
    session_id: str
    turn_id: str
    address: Address
    person: str


AttachText = Callable[[OutboxItem, str, str], Awaitable[OutboxItem]]
"""Makes a text into a file below an item, under a name; raises `OSError` without disk space."""


class ApprovalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of approval requests."""

    mode: Callable[[], Literal["ask", "never"]]  # the present one; a reload replaces it
    attach_text: AttachText | None = None  # None: requests have no files
    timeout_seconds: float = _APPROVAL_TIMEOUT_SECONDS


class ApprovalBroker:
    """Approval requests of all conversations.

    `start_task` starts background work: the request of a stopped turn is closed there, because
    `/stop` must not wait for it.
    """

    def __init__(
        self,
        store: SessionStore,
        clock: Clock,
        ids: Ids,
        delivery: Delivery,
        people: People,
        *,
        settings: ApprovalSettings,
        capabilities: Callable[[Address], Capabilities | None],
        start_task: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._delivery = delivery
        self._people = people
        self._mode = settings.mode
        self._attach_text = settings.attach_text
        self._capabilities = capabilities
        self._start_task = start_task
        self._timeout_ms = int(settings.timeout_seconds * 1000)
        self._waiters: dict[str, asyncio.Future[Approval]] = {}

    # --- requests ---------------------------------------------------------------------------------

    async def request_approval(
        self, turn: RequestingTurn, tool: Tool, call: ToolCall
    ) -> str | None:
        """Wait until a call is allowed (None: it may run once) or return the reason for the model."""
        # A repeated call that may have taken effect is asked about in either mode.
        if self._mode() == "never" and tool.must_ask:
            return None
        known = await self._find_earlier(turn, call)
        if known is None and (reason := self._why_unanswerable(turn, tool)):
            return reason
        by_requester = rules.can_requester_answer(tool.risk)
        approval = known or await self._new_approval(
            turn, tool.name, call, by_requester=by_requester
        )
        answer = self._waiters[approval.id] = asyncio.get_running_loop().create_future()
        try:
            if known is None:
                await self._publish(approval, tool)
            return await self._resolve(approval, answer)
        except asyncio.CancelledError:
            self._start_task(self._close_abandoned(approval.id, turn.turn_id))
            raise
        finally:
            del self._waiters[approval.id]

    async def ask(
        self, turn: RequestingTurn, call: ToolCall, question: PersonQuestion
    ) -> PersonAnswer | None:
        """Ask the requester a question of a running call; None without an answer in time."""
        approval = msgspec.structs.replace(
            await self._new_approval(turn, question.asker, call, by_requester=True),
            call_id=questions.call_id_of(call.id),
            arguments=questions.write_question(question),
        )
        answer = self._waiters[approval.id] = asyncio.get_running_loop().create_future()
        try:
            item = self._request_item(approval, 0, NoticeId.QUESTION, approval.address)
            await self._delivery.put(PutApproval(approval), PutItem(item))
            settled = await self._wait_for_answer(approval, answer)
            return questions.read_answer(settled)
        except asyncio.CancelledError:
            self._start_task(self._close_abandoned(approval.id, turn.turn_id))
            raise
        finally:
            del self._waiters[approval.id]

    async def _resolve(self, approval: Approval, answer: asyncio.Future[Approval]) -> str | None:
        settled = await self._load(approval.id)  # it may be answered already
        if settled.state is ApprovalState.OPEN:
            settled = await self._wait_for_answer(settled, answer)
        if settled.state is ApprovalState.DENIED:
            await self._remember_denial(settled, None)  # the model reads the denial now
        if settled.state is not ApprovalState.ALLOWED:
            return wording.refusal_text(settled)
        use = AnswerApproval(
            id=settled.id, state=ApprovalState.USED, by=settled.answered_by, at=self._clock.now()
        )
        try:
            await self._store.apply(use)
        except Conflict:
            return wording.PERMISSION_USED
        return None

    async def _wait_for_answer(
        self, approval: Approval, answer: asyncio.Future[Approval]
    ) -> Approval:
        try:
            async with asyncio.timeout((approval.expires_at - self._clock.now()) / 1000):
                return await answer
        except TimeoutError:
            expired = await self._close(approval, ApprovalState.EXPIRED)
            return expired or await self._load(approval.id)  # an answer arrived at the same time

    def _why_unanswerable(self, turn: RequestingTurn, tool: Tool) -> str | None:
        if rules.is_unattended(turn.key):
            return wording.UNATTENDED
        if rules.can_requester_answer(tool.risk) or self._is_admin(turn.person, turn.address):
            return None
        if rules.has_admin_roles(self._people.current_policy(), turn.address):
            return None
        return None if self._reachable_admins() else wording.NO_ADMIN

    def _is_admin(self, person: str, address: Address) -> bool:
        return rules.is_admin(self._people.current_policy(), person, address)

    def _reachable_admins(self) -> list[Address]:
        places = admin_addresses(self._people.admins())
        return [place for place in places if self._capabilities(place)]

    # --- messages of a request --------------------------------------------------------------------

    async def _new_approval(
        self, turn: RequestingTurn, tool: str, call: ToolCall, *, by_requester: bool
    ) -> Approval:
        open_ids = {row.id for row in await self._store.approvals.open()} | self._waiters.keys()
        codes = {approval_code(open_id) for open_id in open_ids}
        while approval_code(id_ := self._ids.new(ItemType.QUESTION)) in codes:
            pass
        now = self._clock.now()
        return Approval(
            id=id_,
            key=turn.key,
            session_id=turn.session_id,
            turn_id=turn.turn_id,
            call_id=call.id,
            tool=tool,
            arguments=call.arguments,
            person=turn.person,
            by_requester=by_requester,
            address=turn.address,
            asked_at=now,
            expires_at=now + self._timeout_ms,
            state=ApprovalState.OPEN,
        )

    async def _publish(self, approval: Approval, tool: Tool) -> None:
        admins = self._admins_to_ask(approval)
        notice = wording.choose_notice(approval, must_ask=tool.must_ask, ask_admins=bool(admins))
        items = [self._request_item(approval, 0, notice, approval.address, change=tool.change)]
        for number, place in enumerate(admins, 1):
            items.append(
                self._request_item(
                    approval,
                    number,
                    NoticeId.ASK,
                    place,
                    person=approval.person,
                    change=tool.change,
                )
            )
        files = [await self._attach(approval, item) for item in items]
        await self._delivery.put(
            PutApproval(approval), *(PutItem(item) for item in (*items, *files) if item)
        )
        log.info("%s: approval %s requested", approval.tool, approval_code(approval.id))

    def _attaches(self, approval: Approval, address: Address) -> bool:
        """Return True if the whole arguments go to this chat as a file."""
        can = self._capabilities(address)
        accepts = can is not None and can.files is not None
        return bool(accepts and self._attach_text and wording.is_shortened(approval.arguments))

    async def _attach(self, approval: Approval, question: OutboxItem) -> OutboxItem | None:
        """Return the file with the whole arguments of a request that shortens them."""
        if self._attach_text is None or not self._attaches(approval, question.address):
            return None
        text = self._delivery.redact(wording.whole_arguments(approval.arguments))
        name = f"{approval.tool}.json"
        try:
            return await self._attach_text(question, name, text)
        except OSError as error:
            log.warning("approval %s has no file: %s", approval_code(approval.id), error)
            return None

    def _admins_to_ask(self, approval: Approval) -> list[Address]:
        """Return the private chats of admins, if the requester may not answer."""
        if approval.by_requester or self._is_admin(approval.person, approval.address):
            return []
        return self._reachable_admins()

    def _request_item(
        self,
        approval: Approval,
        number: int,
        notice: NoticeId,
        address: Address,
        *,
        person: str = "",
        change: str = "",
    ) -> OutboxItem:
        can = self._capabilities(address)
        open_ = approval.state is ApprovalState.OPEN
        buttons = _buttons_of(approval)
        shown = open_ and can is not None and can.buttons >= len(buttons)
        attached = open_ and not is_question(approval) and self._attaches(approval, address)
        fields = wording.notice_fields(
            approval, notice, person=person, attached=attached, change=change
        )
        text = render_notice(notice, fields, command_template(can))
        return OutboxItem(
            id=question_id(approval.id, number),
            address=address,
            kind=ItemKind.ASK,
            state=ItemState.PENDING,
            body=write_body(ItemBody(text=text, buttons=buttons if shown else ())),
            created_at=self._clock.now(),
            turn_id=approval.turn_id,
        )

    # --- requests of earlier turns ----------------------------------------------------------------

    async def _find_earlier(self, turn: RequestingTurn, call: ToolCall) -> Approval | None:
        """Return an earlier request for the same call that is open or has an answer that counts."""
        # Open requests first: a request answered during this search is found by its answer below.
        if open_ := await self._find_open(turn, call):
            return open_
        allowed = await self._store.approvals.find_allowed(
            turn.session_id, call.name, call.arguments, self._clock.now() - 2 * self._timeout_ms
        )
        if allowed and self._is_applicable(allowed, turn):
            return allowed
        name = _call_hash(turn.session_id, call.name, call.arguments)
        noted = await self._store.get_value(_DENIALS_SHELF, name)
        denied = await self._store.approvals.get(noted) if noted else None
        if denied and denied.state is ApprovalState.DENIED and self._is_applicable(denied, turn):
            return denied
        return None

    async def _find_open(self, turn: RequestingTurn, call: ToolCall) -> Approval | None:
        wanted = (turn.session_id, call.name, call.arguments, turn.person)
        for row in await self._store.approvals.open(turn.key):
            same = wanted == (row.session_id, row.tool, row.arguments, row.person)
            if same and self._clock.now() < row.expires_at and row.id not in self._waiters:
                return row
        return None

    def _is_applicable(self, answered: Approval, turn: RequestingTurn) -> bool:
        return answered.person == turn.person and not self._is_outdated(answered)

    def _is_outdated(self, answered: Approval) -> bool:
        return (answered.answered_at or 0) <= self._clock.now() - self._timeout_ms

    # --- answers ----------------------------------------------------------------------------------

    async def answer(self, call: CommandCall, *, allow: bool) -> CommandOutcome:
        """Handle `/approve [CODE]` or `/deny [CODE] [REASON]`."""
        open_ = await self._store.approvals.open()
        code, reason = rules.parse_answer_args(call.args, open_)
        who = Answerer(call.principal, call.role is Role.ADMIN, call.context.address, call.direct)
        approval = rules.find_question(open_, who, code)
        is_answer = not isinstance(approval, AnswerRefusal) and is_question(approval)
        if allow and reason and not code and not is_answer:  # the text is meant as a code
            approval = rules.find_question(open_, who, reason)
        if isinstance(approval, AnswerRefusal):
            return NoticeReply(approval.notice, approval.fields)
        if is_question(approval):
            return await self._answer_question(approval, call.principal, reason, allow=allow)
        reason = "" if allow else reason
        outcome = await self._record_answer(approval, call.principal, allow=allow, reason=reason)
        if outcome is not None:
            return outcome
        return NoticeReply(
            NoticeId.ASK_MAY if allow else NoticeId.ASK_MAY_NOT, {"tool": approval.tool}
        )

    async def on_button(
        self, approval_id: str, who: CommandContext, *, role: Role, allow: bool
    ) -> CommandOutcome:
        """Handle a button below a request, in any of the chats that were asked.

        Behind the id may be `=` and the number of an option.
        """
        approval_id, _, option = approval_id.partition("=")
        approval = await self._store.approvals.get(approval_id)
        if approval is None:
            return NoticeReply(NoticeId.ASK_UNKNOWN, {"code": approval_code(approval_id)})
        if not can_answer(approval, who.person, admin=role is Role.ADMIN):
            refusal = rules.refuse_answer(approval)
            return NoticeReply(refusal.notice, refusal.fields)
        if is_question(approval):
            options = dict(enumerate(questions.read_question(approval).options))
            text = options.get(int(option), "") if option.isdecimal() else ""
            return await self._answer_question(approval, who.person, text, allow=allow)
        outcome = await self._record_answer(approval, who.person, allow=allow)
        return outcome or NoticeReply(NoticeId.ASK_SILENT)

    async def _answer_question(
        self, approval: Approval, who: str, text: str, *, allow: bool
    ) -> CommandOutcome:
        if approval.state is ApprovalState.OPEN and approval.id not in self._waiters:
            # The call that asked ended with its process, and no later call reads the answer.
            await self._close(approval, ApprovalState.EXPIRED, reason=wording.TURN_ENDED)
            return NoticeReply(NoticeId.ASK_LATE)
        chosen = questions.chosen_text(questions.read_question(approval), text) if allow else ""
        if chosen is None:
            fields = {"code": approval_code(approval.id)}
            return NoticeReply(NoticeId.QUESTION_NEEDS_WORDS, fields)
        outcome = await self._record_answer(approval, who, allow=allow, reason=chosen)
        return outcome or NoticeReply(NoticeId.ASK_SILENT)

    async def _record_answer(
        self, approval: Approval, who: str, *, allow: bool, reason: str = ""
    ) -> CommandOutcome | None:
        """Store an answer; None if a turn waits for it, else the reply to the person."""
        if approval.state is not ApprovalState.OPEN:
            late = approval.state is ApprovalState.EXPIRED
            return NoticeReply(NoticeId.ASK_LATE if late else NoticeId.ASK_ANSWERED)
        if (why := await self._close_reason(approval)) is not None:
            await self._close(approval, ApprovalState.EXPIRED, reason=why)
            return NoticeReply(NoticeId.ASK_LATE)
        waits = approval.id in self._waiters
        if not allow and not waits and not is_question(approval):
            await self._remember_denial(approval, approval.id)
        state = ApprovalState.ALLOWED if allow else ApprovalState.DENIED
        if await self._close(approval, state, who, reason[:_MAX_REASON_LENGTH]) is None:
            return NoticeReply(NoticeId.ASK_ANSWERED)
        log.info("%s: approval %s %s by %s", approval.tool, approval_code(approval.id), state, who)
        return None if waits else NoticeReply(NoticeId.ASK_NOTED)

    async def _remember_denial(self, denied: Approval, approval_id: str | None) -> None:
        """Store the request whose denial the same call will find; None removes the entry."""
        name = _call_hash(denied.session_id, denied.tool, denied.arguments)
        await self._store.put_value(_DENIALS_SHELF, name, approval_id)

    async def _close_reason(self, approval: Approval) -> str | None:
        """Return why a request must be closed (empty: it expired), or None if it stays open."""
        if self._clock.now() >= approval.expires_at:
            return ""
        ended = approval.id not in self._waiters and await self._has_turn_ended(approval.turn_id)
        return wording.TURN_ENDED if ended else None

    async def _has_turn_ended(self, turn_id: str) -> bool:
        """Return True if a turn has ended; an interrupted turn may be resumed, so it has not."""
        turn = await self._store.turns.get(turn_id)
        return turn is None or turn.state in _ENDED_STATES

    async def _close(
        self, approval: Approval, state: ApprovalState, by: str = "", reason: str = ""
    ) -> Approval | None:
        """Store the end of an open request and update its messages; None if it was closed before."""
        now = self._clock.now()
        settled = msgspec.structs.replace(
            approval, state=state, answered_by=by, answered_at=now, reason=reason
        )
        items = await self._updated_items(settled)
        try:
            answer = AnswerApproval(id=approval.id, state=state, by=by, at=now, reason=reason)
            await self._delivery.put(answer, *map(PutItem, items))
        except Conflict:
            return None
        waiter = self._waiters.get(approval.id)
        if waiter and not waiter.done():
            waiter.set_result(settled)
        return settled

    async def _updated_items(self, settled: Approval) -> list[OutboxItem]:
        """Return the messages of a closed request with their new text, for all chats that have one."""
        notice = wording.choose_notice(settled)
        places = [settled.address, *(() if settled.by_requester else self._reachable_admins())]
        items = []
        for place in dict.fromkeys(places):
            for row in await self._store.timeline(place, 0, _TIMELINE_ROWS):
                if not isinstance(row, OutboxItem):
                    continue
                id_ = ItemId.parse(row.id)
                if id_ and id_.base == settled.id and id_.number is not None:
                    item = self._request_item(settled, id_.number, notice, place)
                    # While a message is being sent, the stored `shown` is older than delivery's.
                    shown = row.shown if row.state is ItemState.SENT else b""
                    items.append(msgspec.structs.replace(item, shown=shown))
        return items

    async def _load(self, approval_id: str) -> Approval:
        approval = await self._store.approvals.get(approval_id)
        assert approval is not None  # noqa: S101 - never deleted while a turn runs
        return approval

    # --- requests without an answer ---------------------------------------------------------------

    async def close_expired(self) -> None:
        """Close requests that expired or whose turn ended, and forget denials that are too old."""
        for row in await self._store.approvals.open():
            if (why := await self._close_reason(row)) is not None:
                await self._close(row, ApprovalState.EXPIRED, reason=why)
        for name, approval_id in (await self._store.values(_DENIALS_SHELF)).items():
            noted = await self._store.approvals.get(approval_id)
            if noted is None or not self._is_still_relevant(noted):
                await self._store.put_value(_DENIALS_SHELF, name, None)

    async def close_question(self, approval: Approval) -> None:
        """Close an open request whose requester has no access any more."""
        await self._close(approval, ApprovalState.EXPIRED, reason=wording.TURN_ENDED)

    def _is_still_relevant(self, noted: Approval) -> bool:
        if noted.state is ApprovalState.OPEN:  # the entry is written before the denial
            return True
        return noted.state is ApprovalState.DENIED and not self._is_outdated(noted)

    async def _close_abandoned(self, approval_id: str, turn_id: str) -> None:
        """Close the request of a cancelled turn, unless the turn may be resumed."""
        try:
            # The write queue is in order: after this call the end of a stopped turn is stored.
            await self._store.check_writable()
            approval = await self._store.approvals.get(approval_id)
            if approval is None or not await self._has_turn_ended(turn_id):
                return
            if approval.state is ApprovalState.OPEN:
                await self._close(approval, ApprovalState.EXPIRED, reason=wording.TURN_ENDED)
            elif approval.state is ApprovalState.ALLOWED:  # never used, and must not be used later
                now = self._clock.now()
                await self._store.apply(
                    AnswerApproval(
                        id=approval_id, state=ApprovalState.USED, by=approval.answered_by, at=now
                    )
                )
        except StoreError as error:
            log.warning("approval %s stays open until it expires: %s", approval_id, error)


def _buttons_of(approval: Approval) -> tuple[Button, ...]:
    """Return the buttons of a request: to allow and deny, or the options of a question."""
    if not is_question(approval):
        return tuple(Button(label, write_action(action, approval.id)) for label, action in _BUTTONS)
    question = questions.read_question(approval)
    decline = Button("Decline", write_action(ButtonAction.DENY, approval.id))
    if question.free_text:
        return (decline,)
    if not question.options:
        return (Button("Accept", write_action(ButtonAction.APPROVE, approval.id)), decline)
    options = (
        Button(shorten(text, _MAX_LABEL), write_action(ButtonAction.APPROVE, f"{approval.id}={at}"))
        for at, text in enumerate(question.options)
    )
    return (*options, decline)


def _call_hash(session_id: str, tool: str, arguments: str) -> str:
    text = f"{session_id}\0{tool}\0{arguments}"
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
