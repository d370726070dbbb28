"""Sans-IO: events that a turn emits while it runs, and its result."""

import enum

import msgspec

from agent.model.usage import Usage
from sessions.records import Message, ToolCall
from sessions.values.notices import FailureNotice, NoticeFields, NoticeId


class TextDelta(msgspec.Struct, frozen=True):
    """Text to append to the visible answer."""

    text: str


class TextReplaced(msgspec.Struct, frozen=True):
    """New visible text of the current step; it replaces everything shown before."""

    text: str


class ReasoningReplaced(msgspec.Struct, frozen=True):
    """New reasoning of the current step; empty when the reasoning starts again."""

    text: str = ""


class ReasoningDelta(msgspec.Struct, frozen=True):
    """Text to append to the reasoning."""

    text: str


class ToolStarted(msgspec.Struct, frozen=True):
    """Start of a tool call."""

    call_id: str
    tool: str
    label: str  # short, readable form of the arguments
    emoji: str = ""


class ToolProgress(msgspec.Struct, frozen=True):
    """Progress of a running tool call, for the status line."""

    call_id: str
    text: str


class ToolFinished(msgspec.Struct, frozen=True):
    """End of a tool call."""

    call_id: str
    tool: str
    ok: bool


class Notice(msgspec.Struct, frozen=True):
    """Notice for the status line: an id from the notice catalogue, and its fields."""

    id: NoticeId
    fields: NoticeFields


class StepDone(msgspec.Struct, frozen=True):
    """End of a model answer; text that follows belongs to the next step."""


class TurnEnding(enum.StrEnum):
    """Ending of a turn that was not cancelled."""

    ANSWERED = "answered"
    FAILED = "failed"


class VerdictName(enum.StrEnum):
    """Name of a verdict in the journal."""

    INTERRUPTED = "interrupted"
    COMPLETE = "complete"
    REFUSED = "refused"
    CAPPED = "capped"
    SOFT_COMPLETE = "soft-complete"
    CUT = "cut"
    EMPTY = "empty"


class FailureKind(enum.StrEnum):
    """Class of the error of the model service that ended a turn."""

    RATE_LIMITED = "rate limited"
    CONTEXT_TOO_LONG = "context too long"
    OUT_OF_CREDIT = "out of credit"
    REQUEST_REFUSED = "request refused"  # the same request would fail again
    UNREACHABLE = "unreachable"
    OTHER = "other"


class TurnDone(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a turn that was not cancelled; returned by `run_turn`, not emitted."""

    ending: TurnEnding
    text: str  # final answer, or the visible text at the time of failure
    cause: str = ""  # reason of the failure, as a sentence for the user
    message: Message | None = None  # history row; None if the model produced no text
    client_calls: tuple[ToolCall, ...] = ()  # calls that the client has to run; they end its answer
    attempts: int = 0  # requests sent to the model
    tools_run: tuple[str, ...] = ()  # completed calls in order, as readable labels
    usage: Usage = Usage()
    estimated_usage: Usage = Usage()  # tokens that the service did not report
    notice: FailureNotice = NoticeId.TURN_FAILED  # notice for a failed turn
    unfinished_drafts: tuple[str, ...] = ()  # unfinished files, as readable labels
    tell_operator: bool = False  # only an administrator can fix the cause
    too_long: bool = False  # the conversation no longer fits; only a fresh one helps
    over_budget: bool = False  # a spending limit ended the turn
    budget_free_in_seconds: int | None = None  # seconds until the limit leaves room again
    failure: FailureKind | None = None  # of a failed turn; None: not the model service's failure
    retry_after_seconds: float | None = None  # wait that the model service asked for
    started_tools: bool = False  # a tool was started, so a repeat might run it again
    last_verdict: VerdictName | None = None  # of the last request; None: not known


AnswerEvent = (
    TextDelta
    | TextReplaced
    | ReasoningDelta
    | ReasoningReplaced
    | ToolStarted
    | ToolFinished
    | StepDone
)
"""Events that change the answer."""

AgentEvent = AnswerEvent | ToolProgress | Notice
"""All events of a running turn."""
