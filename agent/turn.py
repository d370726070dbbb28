"""Contract between the agent loop and the caller: task, journal, limits and resources of a turn."""

import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from agent.answer.accumulate import DEFAULT_MAX_CHARACTERS
from agent.attempt import AttemptResult
from agent.events import AgentEvent
from agent.model.answer_options import AnswerOptions
from agent.model.learned import LearnedTargets
from agent.model.usage import UsageEstimate
from agent.providers.registry import Target
from agent.tools.contract import SendFile
from agent.tools.drafts import DraftStore
from agent.tools.registry import ToolRegistry
from agent.tools.run import Approve, AskDuringCall, ToolJournal
from sessions.records import Message, ToolRun
from sessions.values.clock import Clock
from sessions.values.masks import MaskedText, MaskSecrets


class TurnJournal(ToolJournal, Protocol):
    """Durable record of a turn; every coroutine returns after its record is committed.

    The final assistant row is not written here: the caller commits `TurnDone.message` together with
    the end of the turn. A cancelled turn leaves its last attempt and its running tools open; the
    caller closes them. The caller also stores the visible text of the current step, which
    arrives as events.
    """

    async def attempt_started(
        self, number: int, target: str, need: Callable[[], UsageEstimate]
    ) -> None:
        """Record that a request is about to be sent; `number` starts at 1 in each turn.

        Raise `BudgetExceeded` if a spending limit forbids the request: then nothing is recorded and
        the turn ends. `need` estimates the usage; call it only if a limit applies.
        """
        ...

    async def attempt_ended(self, number: int, result: AttemptResult) -> None:
        """Record the result of a request."""
        ...

    async def step_done(self, message: Message) -> None:
        """Record an assistant row with tool calls; it replaces the text checkpoint of the step."""
        ...

    async def compacted(self, keep: int, summary: str) -> None:
        """Record that the summary replaces all but the newest `keep` rows."""
        ...


class TurnTask(msgspec.Struct, frozen=True, kw_only=True):
    """Input of one turn."""

    turn_id: str
    session_id: str
    system: str
    history: tuple[Message, ...]  # ends with the user's row
    workspace: Path
    summary: str = ""  # summary of the messages before `history`
    notes: tuple[str, ...] = ()  # added to the system prompt in this turn only
    resumed: bool = False  # the turn was interrupted; rows after the user's row belong to it
    earlier_runs: tuple[ToolRun, ...] = ()  # calls that a resumed turn had started
    partial_text: str = ""  # visible text of a resumed turn, to be continued
    continued_text: str = ""  # end of an earlier message that the first answer may continue
    may_replace: bool = True  # visible text can still be edited
    options: AnswerOptions = AnswerOptions()  # of the client's request


class TurnLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one turn."""

    max_steps: int = 90
    tool_timeout: float = 300.0
    max_answer_characters: int = DEFAULT_MAX_CHARACTERS
    stop_at_output_limit: bool = False  # do not continue a text that hits the output limit


Emit = Callable[[AgentEvent], None]
FetchSteers = Callable[[], Awaitable[tuple[Message, ...]]]


class TurnResources(msgspec.Struct, frozen=True, kw_only=True):
    """Collaborators of one turn."""

    targets: Sequence[Target]  # the primary, then its fallbacks in order
    tools: ToolRegistry
    journal: TurnJournal
    clock: Clock
    emit: Emit
    fetch_steers: FetchSteers
    """Called after the tool results of a step; returns committed user rows sent in the meantime."""

    learned_targets: LearnedTargets
    drafts: DraftStore
    approve: Approve | None = None
    ask_person: AskDuringCall | None = None
    send_file: SendFile | None = None
    mask: MaskSecrets = MaskedText  # applied to tool results
    limits: TurnLimits = TurnLimits()
    randomness: Callable[[], float] = random.random
