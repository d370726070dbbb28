"""Requests to a model outside of the conversation, whose history they do not change."""

from collections.abc import Callable, Sequence

import msgspec

from agent.attempt import AttemptResult
from agent.events import AgentEvent, TurnDone
from agent.loop import run_turn
from agent.model.usage import UsageEstimate
from agent.tools.contract import Risk
from agent.tools.registry import ToolRegistry
from agent.turn import TurnLimits, TurnResources, TurnTask
from gateway.spending.budgets import (
    RequestReservation,
    TurnBudget,
    settle_by_estimate,
    settle_reservation,
)
from gateway.turns.journal import end_attempt
from gateway.turns.setting import TurnSetting
from sessions.changes import (
    Change,
    EndTurn,
    StartAttempt,
    StartTurn,
    TakeBackTurn,
)
from sessions.errors import StoreError
from sessions.records import Attachment, Message, ToolCall, TurnState
from sessions.values.address import Address
from sessions.values.clock import Clock

_LIMITS = TurnLimits(
    max_steps=2
)  # the second step is for models that call tools without having any


class SideQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Conversation and person to which the cost of a side request belongs."""

    key: str
    session_id: str
    address: Address
    person: str
    request: str


class SideTurn:
    """Runs side requests and keeps their cost; also the journal of these requests.

    Each request runs as a turn of the agent, with the same recovery from cut or silent streams.
    """

    def __init__(
        self, turn_id: str, setting: TurnSetting, clock: Clock, turn_budget: TurnBudget
    ) -> None:
        self._turn_budget = turn_budget
        self._reservation: RequestReservation | None = None  # for the request under way
        self._spent: list[Change] = []  # settlements of finished requests
        self._turn_id = turn_id
        self._setting = setting
        self._clock = clock
        self._attempts: list[Change] = []
        self._attempt_number = 0
        self._attempts_before = 0  # requests of earlier calls of `ask`
        self._started_at = clock.now()
        self.tokens = 0

    async def ask(
        self, system: str, history: Sequence[Message], *, session: str = "", summary: str = ""
    ) -> TurnDone:
        """Answer the last row of `history` without tools."""
        self._attempts_before = self._attempt_number
        return await run_turn(
            TurnTask(
                turn_id=self._turn_id,
                session_id=session,
                system=system,
                history=tuple(history),
                workspace=self._setting.workspace,
                summary=summary,
            ),
            TurnResources(
                targets=self._setting.targets,
                tools=ToolRegistry(()),
                journal=self,
                clock=self._clock,
                emit=_ignore_event,
                fetch_steers=_no_steers,
                learned_targets=self._setting.experience,
                drafts=self._setting.drafts,
                limits=_LIMITS,
            ),
        )

    def usage_changes(self, question: SideQuestion) -> tuple[Change, ...]:
        """Return the changes that record the cost, to be committed together with the answer.

        Stored requests need a turn. This turn is taken back at once, so that it counts in sums of
        costs and appears nowhere else. Without a session or a request, only the budget is settled.
        """
        spent = list(self._spent)
        if self._reservation:  # the request was cancelled
            spent.append(settle_by_estimate(self._reservation, 0))
        if not question.session_id or not self._attempts:
            return tuple(spent)
        now = self._clock.now()
        return (
            *spent,
            StartTurn(
                id=self._turn_id,
                session_id=question.session_id,
                key=question.key,
                address=question.address,
                inbox=(),
                messages=(),
                request=question.request,
                at=self._started_at,
                person=question.person,
            ),
            *self._attempts,
            EndTurn(self._turn_id, TurnState.DONE, now),
            TakeBackTurn(question.session_id, self._turn_id, now),
        )

    # --- the journal: see `agent.turn.TurnJournal` ------------------------------------------------

    async def attempt_started(
        self, number: int, target: str, need: Callable[[], UsageEstimate]
    ) -> None:
        """Reserve the budget of a request, and keep its start for `usage_changes`."""
        if self._turn_budget:
            # Earlier settlements are committed here; committing them again would release twice.
            spent, self._spent = self._spent, []
            try:
                self._reservation = await self._turn_budget.reserve(need(), always=spent)
            except StoreError:
                self._spent = spent
                raise
        self._attempt_number = number + self._attempts_before
        self._attempts.append(
            StartAttempt(self._turn_id, self._attempt_number, target, self._clock.now())
        )

    async def attempt_ended(self, number: int, result: AttemptResult) -> None:
        """Keep the verdict and the cost for `usage_changes`."""
        self.tokens += result.usage.total_tokens
        if self._reservation:
            self._spent.append(settle_reservation(self._reservation, result))
            self._reservation = None
        self._attempts.append(
            end_attempt(self._turn_id, number + self._attempts_before, result, self._clock.now())
        )

    async def step_done(self, message: Message) -> None:
        """Do nothing: no history holds the row."""

    async def tool_started(self, call: ToolCall, risk: Risk, attempt: int) -> None:
        """Do nothing: side requests have no tools."""

    async def tool_finished(
        self, call: ToolCall, ok: bool, result: str, files: tuple[Attachment, ...]
    ) -> None:
        """Do nothing: no history holds the result of a call that the model made up."""

    async def compacted(self, keep: int, summary: str) -> None:
        """Do nothing: the summary serves this request only."""


def _ignore_event(_event: AgentEvent) -> None:
    """Drop the event; only the whole answer is shown."""


async def _no_steers() -> tuple[Message, ...]:
    return ()
