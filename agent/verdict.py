"""Sans-IO: what one request to a model came to.

One of seven, the first that fits; nothing else in the agent decides whether an answer is whole.
"""

import enum

import msgspec

from agent.answer.accumulate import FinishReason, StepResult
from agent.answer.call_slots import ArgumentsState
from agent.errors import ProviderError


class CutPhase(enum.StrEnum):
    """How far an answer had come when it was cut."""

    BEFORE_FIRST = "before-first"
    REASONING = "reasoning"
    TEXT = "text"
    TOOL_NAME = "tool-name"
    TOOL_ARGS = "tool-args"
    CALL_UNSEALED = "call-whole-unsealed"


class Interrupted(msgspec.Struct, frozen=True, tag="interrupted"):
    """We stopped it ourselves."""


class Complete(msgspec.Struct, frozen=True, tag="complete"):
    """The service said that it stopped of its own, and every call is closed."""


class ModelRefused(msgspec.Struct, frozen=True, tag="refused"):
    """The model or its filter declined."""


class Capped(msgspec.Struct, frozen=True, tag="capped"):
    """The answer met the output limit, whatever word the service found for it."""


class SoftComplete(msgspec.Struct, frozen=True, tag="soft-complete"):
    """No reason to stop was given, but the wire said that all was sent, and every call is whole."""


CUT = "cut"


class Cut(msgspec.Struct, frozen=True, tag=CUT):
    """The connection failed, was given up, or ended without any word that the answer is over."""

    phase: CutPhase
    error: ProviderError | None = None  # None: it just ended


class Empty(msgspec.Struct, frozen=True, tag="empty"):
    """The service says it is done, and there is nothing in it."""


Verdict = Interrupted | Complete | ModelRefused | Capped | SoftComplete | Cut | Empty


def verdict_name(verdict: Verdict) -> str:
    """Give the word that the journal keeps."""
    return str(verdict.__struct_config__.tag)


def judge_attempt(
    step: StepResult,
    *,
    error: ProviderError | None = None,
    stopped: bool = False,
    cap: int | None = None,
    omits_end_marker: bool = False,
) -> Verdict:
    """Judge a request: `error` is how its connection ended, `cap` the output limit it was given.

    `omits_end` marks a service known to end its texts without any word; calls are not covered.
    """
    if stopped:
        return Interrupted()
    usable = bool(step.text.strip() or step.calls)
    closed = all(call.arguments_state is not ArgumentsState.TRUNCATED for call in step.calls)
    if step.finish_reason in (FinishReason.STOP, FinishReason.TOOL_CALLS):
        if not closed or _is_hidden_cap(step, cap):
            return Capped()
        return Complete() if usable else Empty()
    if step.finish_reason is FinishReason.REFUSED:
        return ModelRefused()
    if step.finish_reason is FinishReason.LENGTH:
        return Capped()
    whole = all(call.arguments_state is ArgumentsState.COMPLETE for call in step.calls)
    if whole and usable and (step.ended or (omits_end_marker and error is None and not step.calls)):
        return SoftComplete()
    if step.ended and not usable and error is None:
        return Empty()
    return Cut(find_phase(step), error)


def find_phase(step: StepResult) -> CutPhase:
    """Say where in an answer the last thing received stood."""
    if step.calls:
        match step.calls[-1].arguments_state:
            case ArgumentsState.NONE:
                return CutPhase.TOOL_NAME
            case ArgumentsState.COMPLETE:
                return CutPhase.CALL_UNSEALED
            case ArgumentsState.TRUNCATED | ArgumentsState.INVALID:
                return CutPhase.TOOL_ARGS
    if step.text:
        return CutPhase.TEXT
    return CutPhase.REASONING if step.reasoning else CutPhase.BEFORE_FIRST


def _is_hidden_cap(step: StepResult, cap: int | None) -> bool:
    """Some servers call the output limit an ordinary stop; the token count gives them away."""
    if cap is None or step.usage is None or step.usage.output_tokens < cap or not step.calls:
        return False
    return step.calls[-1].arguments_state is not ArgumentsState.COMPLETE
