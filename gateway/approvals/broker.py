"""Asks people whether a tool may run, waits for what they say, and takes their answers in.

A question is one row and one message in each chat that is asked. It outlives the process: an answer
that comes after a restart is kept, and counts when the model makes the very same call again. Nobody
waits in a thread or in a transaction; what holds a turn is one future.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Literal

import msgspec

from agent.tools.contract import Tool
from gateway.access.people import People
from gateway.access.policy import Role
from gateway.approvals import rules, wording
from gateway.approvals.rules import Answerer, Refusal, code_of, may_answer
from gateway.commands.contract import Call, Outcome, Tell
from gateway.delivery.outbox import Delivery
from gateway.delivery.view import Body, read_address, write_address, write_body
from gateway.notices.catalogue import Fields, render
from gateway.notices.compose import Announcer, command_form
from platforms.core.contract import Address, Button, Capabilities
from sessions.changes import AnswerApproval, PutApproval, PutItem
from sessions.conversation.events import Command as By
from sessions.errors import Conflict, StoreError
from sessions.records import Approval, ApprovalState, Item, ItemState, ToolCall, TurnState
from sessions.store.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.ids import Ids

WAIT_SECONDS = 1800.0

_DENIED = "denied"  # shelf: what was denied while nothing waited, by the call
_BUTTONS = (("Allow", "approve"), ("Deny", "deny"))
_LOOKED_THROUGH = 100  # newest rows of a chat among which its question is looked for
_LONGEST_REASON = 500
_ENDED = {TurnState.DONE, TurnState.FAILED, TurnState.STOPPED}

log = logging.getLogger(__name__)


class Asking(msgspec.Struct, frozen=True):
    """The turn in which a tool wants to run."""

    key: str
    session_id: str
    turn_id: str
    address: str
    person: str


class Approvals:
    """Questions whether tools may run.

    `tasks` owns what goes on beside: a question is closed after its turn was stopped, which must
    not take any of the time that stopping takes.
    """

    def __init__(
        self,
        store: SessionStore,
        clock: Clock,
        ids: Ids,
        announcer: Announcer,
        delivery: Delivery,
        people: People,
        *,
        mode: Callable[[], Literal["ask", "never"]],
        capabilities: Callable[[Address], Capabilities | None],
        tasks: Callable[[Coroutine[Any, Any, None]], object],
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._announcer = announcer
        self._delivery = delivery
        self._people = people
        self._mode = mode
        self._capabilities = capabilities
        self._tasks = tasks
        self._wait = int(wait_seconds * 1000)
        self._waiting: dict[str, asyncio.Future[Approval]] = {}

    # --- asking -----------------------------------------------------------------------------------

    async def ask(self, asking: Asking, tool: Tool, call: ToolCall) -> str | None:
        """Find out whether a call may run: None, it may, once; else why not, for the model."""
        if (
            self._mode() == "never" and tool.must_ask
        ):  # a repeat in doubt is asked about all the same
            return None
        known = await self._asked_before(asking, call)
        if known is None and (nobody := self._nobody(asking, tool)):
            return nobody
        asked = known or await self._new(asking, tool, call)
        answer = self._waiting[asked.id] = asyncio.get_running_loop().create_future()
        try:
            if known is None:
                await self._put(asked, must_ask=tool.must_ask)
            return await self._outcome(asked, answer)
        except asyncio.CancelledError:
            self._beside(self._given_up(asked.id, asking.turn_id))
            raise
        finally:
            del self._waiting[asked.id]

    async def _outcome(self, asked: Approval, answer: asyncio.Future[Approval]) -> str | None:
        settled = await self._read(asked.id)  # somebody may have been quicker than the wait
        if settled.state is ApprovalState.OPEN:
            settled = await self._answered(settled, answer)
        if settled.state is ApprovalState.DENIED:
            await self._note_denial(settled, None)  # it has counted now
        if settled.state is not ApprovalState.ALLOWED:
            return wording.refused(settled)
        use = AnswerApproval(settled.id, ApprovalState.USED, settled.answered_by, self._clock.now())
        try:
            await self._store.apply(use)
        except Conflict:
            return wording.USED_UP
        return None

    async def _answered(self, asked: Approval, answer: asyncio.Future[Approval]) -> Approval:
        try:
            async with asyncio.timeout((asked.expires_at - self._clock.now()) / 1000):
                return await answer
        except TimeoutError:
            expired = await self._close(asked, ApprovalState.EXPIRED)
            return expired or await self._read(asked.id)  # it was answered in that very moment

    def _nobody(self, asking: Asking, tool: Tool) -> str | None:
        if rules.unattended(asking.key):
            return wording.UNATTENDED
        if rules.by_requester(tool.risk) or self._is_admin(asking.person, asking.address):
            return None
        place = read_address(asking.address)
        if rules.admins_by_role(self._people.policy(), place):
            return None
        return None if self._admins() else wording.NO_ADMIN

    def _is_admin(self, person: str, address: str) -> bool:
        return rules.is_admin(self._people.policy(), person, read_address(address))

    def _admins(self) -> list[str]:
        places = rules.places_of(self._people.admins())
        return [write_address(place) for place in places if self._capabilities(place)]

    # --- the question -----------------------------------------------------------------------------

    async def _new(self, asking: Asking, tool: Tool, call: ToolCall) -> Approval:
        named = {each.id for each in await self._store.open_approvals()} | self._waiting.keys()
        codes = {code_of(each) for each in named}
        while code_of(id_ := self._ids.new("p")) in codes:
            pass
        now = self._clock.now()
        return Approval(
            id=id_,
            key=asking.key,
            session_id=asking.session_id,
            turn_id=asking.turn_id,
            call_id=call.id,
            tool=tool.name,
            arguments=call.arguments,
            person=asking.person,
            by_requester=rules.by_requester(tool.risk),
            address=asking.address,
            asked_at=now,
            expires_at=now + self._wait,
            state=ApprovalState.OPEN,
        )

    async def _put(self, asked: Approval, *, must_ask: bool) -> None:
        admins = self._asked_besides(asked)
        here = wording.notice_of(asked, must_ask=must_ask, admins=bool(admins))
        fields = wording.fields_of(asked)
        items = [self._item(asked, 0, here, asked.address, fields)]
        for number, place in enumerate(admins, 1):
            told = {**fields, "person": asked.person}
            items.append(self._item(asked, number, "ask", place, told))
        await self._delivery.put(PutApproval(asked), *map(PutItem, items))
        log.info("%s asks whether it may run: %s", asked.tool, code_of(asked.id))

    def _asked_besides(self, asked: Approval) -> list[str]:
        """Admins who are asked in private because who is there may not answer."""
        if asked.by_requester or self._is_admin(asked.person, asked.address):
            return []
        return self._admins()

    def _item(
        self, asked: Approval, number: int, notice: str, address: str, fields: Fields
    ) -> Item:
        can = self._announcer.capabilities(address)
        open_ = asked.state is ApprovalState.OPEN
        buttons = tuple(Button(label, f"{action}:{asked.id}") for label, action in _BUTTONS)
        shown = open_ and can is not None and can.buttons >= len(buttons)
        text = render(notice, fields, command_form(can))
        return Item(
            id=f"{asked.id}.{number}",
            address=address,
            kind="ask",
            state=ItemState.PENDING,
            body=write_body(Body(text=text, buttons=buttons if shown else ())),
            created_at=self._clock.now(),
            turn_id=asked.turn_id,
        )

    # --- over a restart ---------------------------------------------------------------------------

    async def _asked_before(self, asking: Asking, call: ToolCall) -> Approval | None:
        """The question about this very call whose answer, given or to come, still counts."""
        # Open ones first: one that is answered while this looks is found by what it became.
        if open_ := await self._still_open(asking, call):
            return open_
        allowed = await self._store.allowed_approval(
            asking.session_id, call.name, call.arguments, self._clock.now() - 2 * self._wait
        )
        if allowed and self._counts(allowed, asking):
            return allowed
        name = _name(asking.session_id, call.name, call.arguments)
        noted = await self._store.get_value(_DENIED, name)
        denied = await self._store.approval(noted) if noted else None
        if denied and denied.state is ApprovalState.DENIED and self._counts(denied, asking):
            return denied
        return None

    async def _still_open(self, asking: Asking, call: ToolCall) -> Approval | None:
        this = (asking.session_id, call.name, call.arguments, asking.person)
        for each in await self._store.open_approvals(asking.key):
            same = this == (each.session_id, each.tool, each.arguments, each.person)
            if same and self._clock.now() < each.expires_at and each.id not in self._waiting:
                return each
        return None

    def _counts(self, answered: Approval, asking: Asking) -> bool:
        return answered.person == asking.person and not self._is_old(answered)

    def _is_old(self, answered: Approval) -> bool:
        return (answered.answered_at or 0) <= self._clock.now() - self._wait

    # --- answers ----------------------------------------------------------------------------------

    async def answer(self, call: Call, *, allow: bool) -> Outcome:
        """Take in `/approve [CODE]` or `/deny [CODE] [REASON]`."""
        questions = await self._store.open_approvals()
        code, reason = rules.code_and_reason(call.args, questions)
        if allow:  # that has no reasons: whatever stands there is meant as a code
            code, reason = code or reason, ""
        who = Answerer(call.principal, call.role is Role.ADMIN, call.by.address, call.direct)
        found = rules.choose(questions, who, code)
        if isinstance(found, Refusal):
            return Tell(found.notice, found.fields)
        outcome = await self._take(found, call.principal, allow=allow, reason=reason)
        if outcome is not None:
            return outcome
        return Tell("ask.may" if allow else "ask.may_not", {"tool": found.tool})

    async def pressed(
        self, question_id: str, who: By, _address: Address, *, role: Role, allow: bool
    ) -> Outcome:
        """Take in a button under a question, wherever that was shown."""
        found = await self._store.approval(question_id)
        if found is None:
            return Tell("ask.unknown", {"code": code_of(question_id)})
        if not may_answer(found, who.person, admin=role is Role.ADMIN):
            refusal = rules.forbidden(found)
            return Tell(refusal.notice, refusal.fields)
        outcome = await self._take(found, who.person, allow=allow)
        return outcome or Tell("ask.silent")

    async def _take(
        self, asked: Approval, who: str, *, allow: bool, reason: str = ""
    ) -> Outcome | None:
        """Store an answer; None: somebody waits for it, else what is to be said about it."""
        if asked.state is not ApprovalState.OPEN:
            late = asked.state is ApprovalState.EXPIRED
            return Tell("ask.late" if late else "ask.answered")
        if (why := await self._over(asked)) is not None:
            await self._close(asked, ApprovalState.EXPIRED, reason=why)
            return Tell("ask.late")
        waits = asked.id in self._waiting
        if not allow and not waits:
            await self._note_denial(asked, asked.id)
        state = ApprovalState.ALLOWED if allow else ApprovalState.DENIED
        if await self._close(asked, state, who, reason[:_LONGEST_REASON]) is None:
            return Tell("ask.answered")
        log.info("%s %s by %s: %s", asked.tool, state, who, code_of(asked.id))
        return None if waits else Tell("ask.noted")

    async def _note_denial(self, denied: Approval, question_id: str | None) -> None:
        """Let a denial that nothing waits for be found by the call; None: no more."""
        name = _name(denied.session_id, denied.tool, denied.arguments)
        await self._store.put_value(_DENIED, name, question_id)

    async def _over(self, asked: Approval) -> str | None:
        """Why a question is over, empty: its time is; None: it still holds."""
        if self._clock.now() >= asked.expires_at:
            return ""
        ended = asked.id not in self._waiting and await self._has_ended(asked.turn_id)
        return wording.OVER if ended else None

    async def _has_ended(self, turn_id: str) -> bool:
        """Whether a turn is over for good; an interrupted one may be taken up again."""
        turn = await self._store.turn(turn_id)
        return turn is None or turn.state in _ENDED

    async def _close(
        self, asked: Approval, state: ApprovalState, by: str = "", reason: str = ""
    ) -> Approval | None:
        """Settle an open question, in all chats; None: somebody else did."""
        now = self._clock.now()
        settled = msgspec.structs.replace(
            asked, state=state, answered_by=by, answered_at=now, reason=reason
        )
        items = await self._news(settled)
        try:
            answer = AnswerApproval(asked.id, state, by, now, reason)
            await self._delivery.put(answer, *map(PutItem, items))
        except Conflict:
            return None
        waiter = self._waiting.get(asked.id)
        if waiter and not waiter.done():
            waiter.set_result(settled)
        return settled

    async def _news(self, settled: Approval) -> list[Item]:
        """The question's messages as they look from now on, wherever it was asked."""
        notice, fields = wording.notice_of(settled), wording.fields_of(settled)
        places = [settled.address, *(() if settled.by_requester else self._admins())]
        items = []
        for place in dict.fromkeys(places):
            for row in await self._store.timeline(place, 0, _LOOKED_THROUGH):
                if isinstance(row, Item) and row.id.rpartition(".")[0] == settled.id:
                    number = int(row.id.rpartition(".")[2])
                    item = self._item(settled, number, notice, place, fields)
                    # While it is on its way, delivery knows better what is shown of it.
                    shown = row.shown if row.state is ItemState.SENT else b""
                    items.append(msgspec.structs.replace(item, shown=shown))
        return items

    async def _read(self, question_id: str) -> Approval:
        found = await self._store.approval(question_id)
        assert found is not None  # noqa: S101 - questions are never deleted while a turn runs
        return found

    # --- ends that nobody answered ----------------------------------------------------------------

    async def expire(self) -> None:
        """Close questions whose time is over, or whose turn is; for the start and every hour."""
        for each in await self._store.open_approvals():
            if (why := await self._over(each)) is not None:
                await self._close(each, ApprovalState.EXPIRED, reason=why)
        for name, question_id in (await self._store.values(_DENIED)).items():
            noted = await self._store.approval(question_id)
            if noted is None or not self._may_still_count(noted):
                await self._store.put_value(_DENIED, name, None)

    def _may_still_count(self, noted: Approval) -> bool:
        if noted.state is ApprovalState.OPEN:  # noted first, denied second
            return True
        return noted.state is ApprovalState.DENIED and not self._is_old(noted)

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            self._tasks(work)
        except RuntimeError:  # the owner of the tasks ends, and with it the process
            work.close()

    async def _given_up(self, question_id: str, turn_id: str) -> None:
        """A turn no longer waits: close its question, unless the turn is to go on some time."""
        try:
            # The end of a turn that was stopped was handed in before; behind this it is stored.
            await self._store.prove_writable()
            asked = await self._store.approval(question_id)
            if asked is None or not await self._has_ended(turn_id):
                return
            if asked.state is ApprovalState.OPEN:
                await self._close(asked, ApprovalState.EXPIRED, reason=wording.OVER)
            elif asked.state is ApprovalState.ALLOWED:  # and never run: it must not count later
                now = self._clock.now()
                await self._store.apply(
                    AnswerApproval(question_id, ApprovalState.USED, asked.answered_by, now)
                )
        except StoreError as error:
            log.warning("the question %s stays open until its time is over: %s", question_id, error)


def _name(session_id: str, tool: str, arguments: str) -> str:
    """Name a call by all that makes it the very same."""
    made = f"{session_id}\0{tool}\0{arguments}"
    return hashlib.sha256(made.encode(errors="surrogatepass")).hexdigest()
