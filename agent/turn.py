"""What a turn is given, and what it is asked: the contract between the loop and its caller."""

import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from agent.attempt import AttemptResult
from agent.events import AgentEvent
from agent.model.learned import LearnedTargets
from agent.model.usage import UsageEstimate
from agent.providers.registry import Target
from agent.tools.contract import SendFile
from agent.tools.drafts import DraftStore
from agent.tools.registry import ToolRegistry
from agent.tools.run import Approve, ToolJournal
from sessions.records import Message, ToolRun
from sessions.values.clock import Clock


class TurnJournal(ToolJournal, Protocol):
    """Where a turn writes down what must survive; every coroutine returns once it is durable.

    The final assistant row is not written here: it is in `TurnDone.message`, so that the caller
    commits it together with the end of the turn. A turn that is cancelled leaves its last attempt
    and its running tools open; the caller closes them with the turn. The visible text of the
    present step is what was emitted; the caller keeps it.
    """

    async def attempt_started(
        self, number: int, target: str, need: Callable[[], UsageEstimate]
    ) -> None:
        """A request is about to be sent; numbers count up from 1 over the whole turn.

        Raises `BudgetExceeded` when it must not be: then it was not begun, and the turn ends. `need` is
        worked out only where somebody asks for it.
        """
        ...

    async def attempt_ended(self, number: int, result: AttemptResult) -> None:
        """The request is over and judged."""
        ...

    async def step_done(self, message: Message) -> None:
        """An assistant row with tool calls. It takes the place of the checkpoint so far."""
        ...

    async def compacted(self, keep: int, summary: str) -> None:
        """From now on the summary stands for all but the newest `keep` rows."""
        ...


class TurnTask(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be answered."""

    turn_id: str
    session_id: str
    system: str
    history: tuple[Message, ...]  # ends with the user's row
    workspace: Path
    summary: str = ""  # of what came before the history
    notes: tuple[str, ...] = ()  # told to the model in this turn only, see `agent.request.prompt`
    resumed: bool = False  # the turn was interrupted; what follows the user's row belongs to it
    earlier_runs: tuple[ToolRun, ...] = ()  # of a turn taken up: the calls it had begun
    partial_text: str = ""  # of a turn taken up: the text that was visible, to be gone on with
    may_replace: bool = True  # text that is shown can still be changed


class TurnLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How far one turn may go."""

    max_steps: int = 90
    tool_timeout: float = 300.0
    stop_at_output_limit: bool = False  # a text that meets the output limit is not carried on


Emit = Callable[[AgentEvent], None]
FetchSteers = Callable[[], Awaitable[tuple[Message, ...]]]


class TurnResources(msgspec.Struct, frozen=True, kw_only=True):
    """All that a turn works with."""

    targets: Sequence[Target]  # asked in this order: the next one when those before do not answer
    tools: ToolRegistry
    journal: TurnJournal
    clock: Clock
    emit: Emit
    fetch_steers: (
        FetchSteers  # asked after every tool result for user rows that came meanwhile, committed
    )
    learned_targets: LearnedTargets
    drafts: DraftStore
    approve: Approve | None = None
    send_file: SendFile | None = None
    limits: TurnLimits = TurnLimits()
    randomness: Callable[[], float] = random.random
