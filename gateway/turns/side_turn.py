"""A model is asked something beside a conversation, which does not learn of it."""

from collections.abc import Callable, Sequence

import msgspec

from agent.attempt import AttemptResult
from agent.events import AgentEvent, TurnDone
from agent.loop import run_turn
from agent.model.usage import Need
from agent.tools.contract import Risk
from agent.tools.registry import ToolRegistry
from agent.turn import Means, TurnLimits, TurnTask
from gateway.spending.budgets import Held, Purse, broken_off, settled
from gateway.turns.attempts import attempt_over
from gateway.turns.setting import Setting
from sessions.changes import (
    Change,
    EndTurn,
    StartAttempt,
    StartTurn,
    TakeBack,
)
from sessions.errors import StoreError
from sessions.records import Message, ToolCall, TurnState
from sessions.values.clock import Clock

_LIMITS = TurnLimits(max_steps=2)  # a second one for models that call tools although there are none


class Asked(msgspec.Struct, frozen=True):
    """Who asked, and where."""

    key: str
    session_id: str
    address: str
    person: str
    request: str


class SideTurn:
    """The journal of requests whose answers no history holds: only what they cost is kept.

    They run like a turn, with all its ways to recover from a cut or silent model.
    """

    def __init__(self, turn_id: str, setting: Setting, clock: Clock, purse: Purse) -> None:
        self._purse = purse
        self._held: Held | None = None  # for the request under way
        self._spent: list[Change] = []  # what requests that are over took out of it
        self._id = turn_id
        self._setting = setting
        self._clock = clock
        self._attempts: list[Change] = []
        self._number = 0
        self._before = 0  # requests of earlier questions
        self._began_at = clock.now()
        self.tokens = 0

    async def ask(
        self, system: str, history: Sequence[Message], *, session: str = "", summary: str = ""
    ) -> TurnDone:
        """Have a question answered, without tools; it is the last row of the history."""
        self._before = self._number
        return await run_turn(
            TurnTask(
                turn_id=self._id,
                session_id=session,
                system=system,
                history=tuple(history),
                workspace=self._setting.workspace,
                summary=summary,
            ),
            Means(
                targets=self._setting.targets,
                tools=ToolRegistry(()),
                journal=self,
                clock=self._clock,
                emit=_shown_to_nobody,
                steers=_nothing,
                experience=self._setting.experience,
                drafts=self._setting.drafts,
                limits=_LIMITS,
            ),
        )

    def record(self, asked: Asked) -> tuple[Change, ...]:
        """What was used, to be stored in one go with the answer.

        Requests belong to turns. This turn is taken back as soon as it is there: so it counts
        where costs are summed up, and nowhere else. Limits count it in any case.
        """
        spent = list(self._spent)
        if self._held:  # nobody waited for its end
            spent.append(broken_off(self._held, 0))
        if not asked.session_id or not self._attempts:
            return tuple(spent)
        now = self._clock.now()
        return (
            *spent,
            StartTurn(
                self._id,
                asked.session_id,
                asked.key,
                asked.address,
                (),
                (),
                asked.request,
                self._began_at,
                asked.person,
            ),
            *self._attempts,
            EndTurn(self._id, TurnState.DONE, now),
            TakeBack(asked.session_id, self._id, now),
        )

    # --- the journal: see `agent.turn.TurnJournal` ------------------------------------------------

    async def attempt_started(self, number: int, target: str, need: Callable[[], Need]) -> None:
        """Noted, once what it may use is set aside."""
        if self._purse:
            # What was spent before counts at once; said twice, it would be given back twice.
            spent, self._spent = self._spent, []
            try:
                self._held = await self._purse.hold(need(), first=spent)
            except StoreError:
                self._spent = spent
                raise
        self._number = number + self._before
        self._attempts.append(StartAttempt(self._id, self._number, target, self._clock.now()))

    async def attempt_ended(self, number: int, result: AttemptResult) -> None:
        """Noted."""
        self.tokens += result.usage.tokens
        if self._held:
            self._spent.append(settled(self._held, result))
            self._held = None
        self._attempts.append(
            attempt_over(self._id, number + self._before, result, self._clock.now())
        )

    async def step_done(self, message: Message) -> None:
        """Nothing is kept."""

    async def tool_started(self, call: ToolCall, risk: Risk, attempt: int) -> None:
        """There are no tools."""

    async def tool_finished(self, call: ToolCall, ok: bool, result: str) -> None:
        """Nothing is kept."""

    async def compacted(self, keep: int, summary: str) -> None:
        """It was shortened for this question only."""


def _shown_to_nobody(_event: AgentEvent) -> None:
    """The answer is shown when it is whole."""


async def _nothing() -> tuple[Message, ...]:
    """Nobody steers it."""
    return ()
