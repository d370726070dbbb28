"""Journal of one turn: which changes are committed while it runs, and which with its end."""

from collections.abc import Callable, Iterable, Sequence

from agent.attempt import AttemptResult
from agent.client_calls import placeholder
from agent.events import TurnDone
from agent.model.usage import Usage, UsageEstimate
from agent.tools.contract import Risk
from agent.tools.repeats import UNKNOWN_PREFIX
from gateway.spending.budgets import (
    RequestReservation,
    TurnBudget,
    settle_by_estimate,
    settle_reservation,
)
from gateway.turns.answer import partial_row
from gateway.turns.live_answer import LiveAnswer
from gateway.turns.services import TurnServices
from sessions.changes import (
    AppendMessages,
    Change,
    Checkpoint,
    EndAttempt,
    EndTool,
    PutItem,
    PutSummary,
    StartAttempt,
    StartTool,
)
from sessions.conversation.events import RunningTurn
from sessions.errors import CommitOutcomeUnknown, StoreError, StoreUnavailable
from sessions.records import Attachment, Message, MessageRole, ToolCall, Turn
from sessions.values.notices import NoticeId

_CHECKPOINT_CHARS = 1024
"""Characters after which a checkpoint is due at once, so that fast output is not lost either."""

_MAX_LATE_RESULT_CHARS = 200
"""Characters of a late tool result that its notice quotes."""

_STOPPED_NOT_RUN = "Not run: the user stopped the turn before this call began."
_READ_CUT_SHORT = "Did not complete: the turn ended while it was running."
STOPPED_RUNNING = f"{UNKNOWN_PREFIX}: stopped while it was running; it may have taken effect."
_FAILED_NOT_RUN = "Not run: an error ended the turn before this call began."
_FAILED_RUNNING = (
    f"{UNKNOWN_PREFIX}: an error ended the turn while this was running; it may have taken effect. Look "
    "before you repeat it."
)


class StoredTurnJournal:
    """Writes the requests, tool calls, rows and checkpoints of one turn to the store.

    The text under way is read from the turn's `LiveAnswer`. A change that may wait rides on the next
    commit; a change whose commit failed does too, so that the cost of a request is never lost.
    """

    def __init__(
        self,
        services: TurnServices,
        turn: RunningTurn,
        answer: LiveAnswer,
        budget: TurnBudget,
        *,
        resumed: bool,
        sent_requests: int = 0,
    ) -> None:
        self._store = services.store
        self._delivery = services.delivery
        self._announcer = services.announcer
        self._clock = services.clock
        self._turn = turn
        self._answer = answer
        self._budget = budget
        self._resumed = resumed
        self._unsaved_changes: list[Change] = []  # these ride on the next commit
        self._reservation: RequestReservation | None = None  # for the request under way
        self._received_chars = 0  # of the request under way
        self.usage = Usage()  # of the finished requests
        self.last_target = ""  # label of the model that got the latest request
        self._attempts_before = sent_requests  # by an earlier process, or before the client's calls
        self._open_calls: dict[str, ToolCall] = {}  # calls without a result
        self._started_calls: dict[str, Risk] = {}
        self._checkpoints = services.checkpoints
        self._urgent_chars = _CHECKPOINT_CHARS  # growth of the text that is stored at once
        self._chars_since_checkpoint = 0

    @property
    def running_tool(self) -> ToolCall | None:
        """The started call that may be taking effect; calls that only read are left out."""
        for call in self._open_calls.values():
            if self._started_calls.get(call.id, Risk.READ) is not Risk.READ:
                return call
        return None

    def resume(self, stored: Turn) -> None:
        """Number requests from where the stored part of the turn ends."""
        self._attempts_before = stored.attempts

    # --- requests: see `agent.turn.TurnJournal` ---------------------------------------------------

    async def attempt_started(
        self, number: int, target: str, need: Callable[[], UsageEstimate]
    ) -> None:
        """Commit the start of a request, together with its reservation if a budget applies."""
        self.last_target = target
        self._received_chars = 0
        started = StartAttempt(
            self._turn.id, number + self._attempts_before, target, self._clock.now()
        )
        if self._budget:
            await self._reserve_budget(need(), started)
        elif number > 1 or self._resumed:  # the first request was committed with the turn's start
            await self.save(started)

    async def _reserve_budget(self, need: UsageEstimate, started: Change) -> None:
        unsaved, self._unsaved_changes = self._unsaved_changes, []
        try:
            self._reservation = await self._budget.reserve(
                need, always=unsaved, if_reserved=(started,)
            )
        except StoreError:
            self._unsaved_changes = [*unsaved, *self._unsaved_changes]
            raise

    async def attempt_ended(self, number: int, result: AttemptResult) -> None:
        """Record the verdict and the cost of a request with the next commit."""
        self.usage += result.usage
        self._received_chars = 0
        self._unsaved_changes.append(
            end_attempt(self._turn.id, number + self._attempts_before, result, self._clock.now())
        )
        if self._reservation:
            self._unsaved_changes.append(settle_reservation(self._reservation, result))
            self._reservation = None

    def _settle_by_estimate(self) -> Iterable[Change]:
        """Settle the request that the end of the turn interrupted, by the characters received."""
        if self._reservation:
            yield settle_by_estimate(self._reservation, self._received_chars)
            self._reservation = None

    # --- steps and tools: see `agent.turn.TurnJournal` --------------------------------------------

    async def step_done(self, message: Message) -> None:
        """Commit the assistant row of a step; the checkpoint is cleared with it."""
        # Before the write, because a cancellation does not withdraw the write.
        self._open_calls = {call.id: call for call in message.tool_calls}
        self._started_calls.clear()
        text = self._answer.text
        self._answer.on_step_stored()
        self._discard_checkpoint()
        try:
            await self.save(*self._append_messages([message]), Checkpoint(self._turn.id, ""))
        except StoreError:  # the history has neither the calls nor the text
            self._open_calls.clear()
            self._answer.on_step_not_stored(text)
            raise

    async def tool_started(self, call: ToolCall, risk: Risk, attempt: int) -> None:
        """Commit the start of a tool call before the tool runs."""
        self._started_calls[call.id] = risk
        now = self._clock.now()
        number = attempt + self._attempts_before
        await self.save(
            StartTool(
                turn_id=self._turn.id,
                call_id=call.id,
                tool=call.name,
                risk=risk.value,
                arguments=call.arguments,
                at=now,
                attempt=number,
            )
        )

    async def tool_finished(
        self, call: ToolCall, ok: bool, result: str, files: tuple[Attachment, ...]
    ) -> None:
        """Commit the result of a tool call."""
        self._open_calls.pop(call.id, None)
        row = Message(MessageRole.TOOL, content=result, tool_call_id=call.id, files=files)
        changes = self._append_messages([row])
        if call.id in self._started_calls:
            changes.append(
                EndTool(
                    turn_id=self._turn.id,
                    call_id=call.id,
                    ok=ok,
                    result=result,
                    at=self._clock.now(),
                )
            )
        try:
            await self.save(*changes)
        except CommitOutcomeUnknown:
            raise  # a second write would conflict with the first one
        except StoreUnavailable:  # the call is not open any more, so the result must not be lost
            self._unsaved_changes += changes
            raise

    async def tool_late(self, call: ToolCall, result: str) -> None:
        """Record a result that arrived after the turn's end, and show it to the chat.

        See `agent.tools.run.LateResultJournal`. The history does not change.
        """
        fields = {"tool": call.name, "result": " ".join(result.split())[:_MAX_LATE_RESULT_CHARS]}
        item = self._announcer.notice_item(
            NoticeId.LATE_RESULT, self._turn.address, fields, turn=self._turn.id
        )
        ended = EndTool(
            turn_id=self._turn.id, call_id=call.id, ok=True, result=result, at=self._clock.now()
        )
        await self._delivery.put(ended, PutItem(item))

    async def compacted(self, keep: int, summary: str) -> None:
        """Commit the summary that replaces all but the newest `keep` rows."""
        await self.save(
            PutSummary(
                session_id=self._turn.session, keep=keep, summary=summary, at=self._clock.now()
            )
        )

    @property
    def received_chars(self) -> int:
        """Characters received in the request under way, whose tokens are not known yet."""
        return self._received_chars

    # --- output and checkpoints -------------------------------------------------------------------

    def on_reasoning(self, text: str) -> None:
        """Count reasoning toward the estimated cost of the request."""
        self._received_chars += len(text)

    def on_text(self, text: str) -> None:
        """Count visible text toward the cost estimate and the next checkpoint."""
        length, before = len(text), self._chars_since_checkpoint
        self._received_chars += length
        self._chars_since_checkpoint = since = before + length
        if not before or since >= self._urgent_chars:  # called for every token
            self.mark_text_changed(urgent=since >= self._urgent_chars)

    def mark_text_changed(self, *, urgent: bool = False) -> None:
        """Have the text under way stored within a second."""
        self._checkpoints.mark(self._turn.id, self._read_checkpoint, urgent=urgent)

    def _read_checkpoint(self) -> str:
        text = self._answer.text
        self._chars_since_checkpoint = 0
        # A share of a long text, not a fixed size: each checkpoint writes all of the text.
        self._urgent_chars = max(_CHECKPOINT_CHARS, len(text) // 8)
        return text

    def _discard_checkpoint(self) -> None:
        self._checkpoints.discard(self._turn.id)
        self._chars_since_checkpoint, self._urgent_chars = 0, _CHECKPOINT_CHARS

    def close(self) -> None:
        """Write no more checkpoints, because the end of the turn is committed next."""
        self._discard_checkpoint()

    async def save(self, *changes: Change) -> None:
        """Commit changes together with those that waited for the next commit."""
        unsaved, self._unsaved_changes = self._unsaved_changes, []
        try:
            await self._store.apply(*unsaved, *changes)
        except StoreError:
            self._unsaved_changes = [*unsaved, *self._unsaved_changes]
            raise

    # --- the end of the turn ----------------------------------------------------------------------

    def answered_changes(self, done: TurnDone) -> tuple[Change, ...]:
        """Return the changes that an answered turn commits with its end."""
        rows = [done.message] if done.message else []
        rows += [placeholder(call.id) for call in done.client_calls]
        return (*self._unsaved_changes, *self._append_messages(rows))

    def stopped_changes(self, cause: str) -> tuple[Change, ...]:
        """Return the changes that a cancelled turn commits: open calls and its partial text."""
        rows = self._missing_results(STOPPED_RUNNING, _STOPPED_NOT_RUN)
        if text := self._answer.text:
            rows.append(partial_row(text, cause))
        return self._closing_changes(rows)

    def failed_changes(self, done: TurnDone) -> tuple[Change, ...]:
        """Return the changes that a failed turn commits: open calls, its last or partial text."""
        rows = self._missing_results(_FAILED_RUNNING, _FAILED_NOT_RUN)
        if done.message:
            rows.append(done.message)
        elif text := self._answer.text:
            rows.append(partial_row(text, done.cause))
        return self._closing_changes(rows)

    def _closing_changes(self, rows: Sequence[Message]) -> tuple[Change, ...]:
        spent = (*self._unsaved_changes, *self._settle_by_estimate())
        return (*spent, *self._append_messages(rows))

    def _append_messages(self, rows: Sequence[Message]) -> list[Change]:
        if not rows:
            return []
        now = self._clock.now()
        return [AppendMessages(self._turn.session, self._turn.id, tuple(rows), now)]

    def _missing_results(self, if_started: str, if_not_started: str) -> list[Message]:
        """Return a result row for each open call, because every stored call needs one."""
        words = {None: if_not_started, Risk.READ: _READ_CUT_SHORT}
        return [
            Message(
                MessageRole.TOOL,
                words.get(self._started_calls.get(call.id), if_started),
                tool_call_id=call.id,
            )
            for call in self._open_calls.values()
        ]


def end_attempt(turn_id: str, number: int, result: AttemptResult, now: int) -> EndAttempt:
    """Return the change that records the verdict and the cost of a request."""
    usage = result.recorded_usage
    return EndAttempt(
        turn_id=turn_id,
        number=number,
        verdict=result.verdict_name.value,
        at=now,
        phase=result.phase,
        received=result.received_characters,
        cause=result.cause,
        request_id=result.request_id,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cached_tokens,
        cost=usage.cost,
        request_hash=result.request_hash,
    )
