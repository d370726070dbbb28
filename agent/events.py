"""Sans-IO: what a turn tells the outside while it runs."""

import enum

import msgspec

from agent.model.usage import Usage
from sessions.records import Message
from sessions.values.notices import NoticeId


class TextDelta(msgspec.Struct, frozen=True):
    """More of the answer's visible text."""

    text: str


class TextReplaced(msgspec.Struct, frozen=True):
    """The visible text of the present step is this, whatever was shown of it before."""

    text: str


class ReasoningReplaced(msgspec.Struct, frozen=True):
    """What the model thinks in the present step is this; `text` is empty when it begins anew."""

    text: str = ""


class ReasoningDelta(msgspec.Struct, frozen=True):
    """More of what the model thinks before it answers."""

    text: str


class ToolStarted(msgspec.Struct, frozen=True):
    """A tool call is being carried out."""

    call_id: str
    tool: str
    label: str  # a short human form of the arguments
    emoji: str = ""


class ToolFinished(msgspec.Struct, frozen=True):
    """A tool call has its result."""

    call_id: str
    tool: str
    ok: bool


class Notice(msgspec.Struct, frozen=True):
    """News for the status line: an id of the notice catalogue and its fields."""

    id: NoticeId
    fields: dict[str, str | int]


class StepDone(msgspec.Struct, frozen=True):
    """A model answer ended; text that follows belongs to the next one."""


class TurnEnding(enum.StrEnum):
    """How a turn ended, apart from being cancelled."""

    ANSWERED = "answered"
    FAILED = "failed"


class TurnDone(msgspec.Struct, frozen=True, kw_only=True):
    """How every turn ends that is not cancelled: returned, not told."""

    ending: TurnEnding
    text: str  # the final answer, or what was visible when the turn failed
    cause: str = ""  # one sentence for people: why it failed
    message: Message | None = None  # the row for the history; None when the model said nothing
    attempts: int = 0  # requests sent to the model
    tools_run: tuple[str, ...] = ()  # what was carried out, in order
    usage: Usage = Usage()
    notice: NoticeId = NoticeId.TURN_FAILED  # what a failed turn says: an id of the catalogue
    unfinished_drafts: tuple[
        str, ...
    ] = ()  # files that were not finished, as people are told of them
    tell_operator: bool = False  # only the operator can mend it
    too_long: bool = False  # the conversation is: only a fresh one helps
    over_budget: bool = False  # a limit of what may be spent has ended it
    budget_free_in_seconds: int | None = None  # seconds until that leaves room again
    last_verdict: str = (
        ""  # how the last request was judged, see `agent.verdict.verdict_name`; empty: not known
    )


AnswerEvent = (
    TextDelta
    | TextReplaced
    | ReasoningDelta
    | ReasoningReplaced
    | ToolStarted
    | ToolFinished
    | StepDone
)
"""What makes an answer grow."""

AgentEvent = AnswerEvent | Notice
"""All that is told while a turn runs."""
