"""Sans-IO: verdict on one request to a model.

There are seven verdicts; the first that applies wins. No other module decides whether an answer is
complete.
"""

import enum

import msgspec

from agent.answer.accumulate import FinishReason, StepResult
from agent.answer.call_slots import ArgumentsState
from agent.errors import ProviderError
from agent.events import VerdictName


class CutPhase(enum.StrEnum):
    """Phase of an answer in which it was cut."""

    BEFORE_FIRST = "before-first"
    REASONING = "reasoning"
    TEXT = "text"
    TOOL_NAME = "tool-name"
    TOOL_ARGS = "tool-args"
    CALL_UNSEALED = "call-whole-unsealed"


class Interrupted(msgspec.Struct, frozen=True):
    """The request was cancelled by us."""


class Complete(msgspec.Struct, frozen=True):
    """The service gave a normal finish reason, and every call is closed."""


class ModelRefused(msgspec.Struct, frozen=True):
    """The model or the service's filter declined to answer."""


class Capped(msgspec.Struct, frozen=True):
    """The answer hit the output limit, even if the service reports another finish reason."""


class SoftComplete(msgspec.Struct, frozen=True):
    """No finish reason, but another end marker, and every call is complete."""


class Cut(msgspec.Struct, frozen=True):
    """The connection failed, timed out, or ended without any end marker."""

    phase: CutPhase
    error: ProviderError | None = None  # None: the stream ended without an error


class Empty(msgspec.Struct, frozen=True):
    """The service ended the answer, and the answer is empty."""


Verdict = Interrupted | Complete | ModelRefused | Capped | SoftComplete | Cut | Empty


def verdict_name(verdict: Verdict) -> VerdictName:
    """Return the verdict's name in the journal."""
    match verdict:
        case Interrupted():
            return VerdictName.INTERRUPTED
        case Complete():
            return VerdictName.COMPLETE
        case ModelRefused():
            return VerdictName.REFUSED
        case Capped():
            return VerdictName.CAPPED
        case SoftComplete():
            return VerdictName.SOFT_COMPLETE
        case Cut():
            return VerdictName.CUT
        case Empty():
            return VerdictName.EMPTY


def judge_attempt(
    step: StepResult,
    *,
    error: ProviderError | None = None,
    stopped: bool = False,
    cap: int | None = None,
    omits_end_marker: bool = False,
) -> Verdict:
    """Judge a request.

    `error` ended its connection; `cap` is the output limit it was sent with. `omits_end_marker`
    marks a service known to end complete texts without a marker; answers with calls still need one.
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
    """Return the phase of the last received part of an answer."""
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
    """Detect an output limit that the server reports as a normal stop, by its token count."""
    if cap is None or step.usage is None or step.usage.output_tokens < cap or not step.calls:
        return False
    return step.calls[-1].arguments_state is not ArgumentsState.COMPLETE
