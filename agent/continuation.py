"""Sans-IO: choice of the next action after a request has been judged.

`Recovery` holds the counters of one step, `RecoveryBudget` those of the whole turn; both are plain
data, so a step can be replayed from its journal. Visible text is never requested twice, every kind
of retry has a limit, and progress resets the limits.
"""

from collections.abc import Iterable, Sequence

import msgspec

from agent import errors
from agent.errors import ProviderError
from agent.request.prompt import ContinuationReason
from agent.verdict import (
    Capped,
    Complete,
    Cut,
    CutPhase,
    Empty,
    Interrupted,
    ModelRefused,
    SoftComplete,
    Verdict,
)
from sessions.values.notices import FailureNotice, NoticeId

_MAX_FAILURES = 3  # requests in a row to one target without new output
MAX_RECOVERIES = 12  # per turn, without progress
MAX_SECONDS_WITHOUT_PROGRESS = 1200.0  # per turn
_MAX_CAPPED_ANSWERS = 12  # times that one answer may hit the output limit
_MAX_COMPACTIONS = 3
PROGRESS_CHARACTERS = 200  # new characters that count as progress
_MAX_WAIT_SECONDS = 60.0  # longest accepted Retry-After if there is a fallback
_MAX_WAIT_SECONDS_WITHOUT_FALLBACK = 600.0  # longest accepted Retry-After otherwise
_CALL_LIMIT_KILOTOKENS = 8  # requested limit for a call's arguments, in thousands of tokens
_MAX_BACKOFF_SECONDS = 30.0
_SMALL_CALL_CHARACTERS = 2048  # a lost call below this size is simply requested again
_LOSSES_UNTIL_SCHEMA_LIMIT = 2  # losses of a tool until the schema limits the long parameter
_LOSSES_UNTIL_WITHHELD = 4  # losses of a tool until one request omits the tool


class RequestOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of one request, reduced to the input of the recovery decision."""

    verdict: Verdict
    new_characters: int = 0  # new visible characters
    repeated_ending: bool = False  # the continuation only repeated the end of the visible text
    ignored_rewrite: bool = False  # the model restarted, but the visible text cannot be changed
    text_visible: bool = False  # the step has visible text
    ready_calls: int = 0  # number of calls that may go to the gate
    lost_tools: tuple[str, ...] = ()  # tools whose calls were cut off
    lost_characters: int = 0  # received characters of the lost calls
    unsealed_tools: tuple[str, ...] = ()  # tools of calls complete but not proven to have ended
    drafted_characters: int = 0  # characters of cut files kept as drafts
    has_reasoning: bool = False
    has_text: bool = False
    only_announced: bool = False  # the text announces an action, and the model is known for that
    after_tools: bool = False  # the step follows tool results
    has_other_target: bool = False
    opened_stream: bool = False  # a stream was requested, and its response began


# --- actions -----------------------------------------------------------------------------------


class FinishTurn(msgspec.Struct, frozen=True):
    """End the turn: the answer is final."""


class RunTools(msgspec.Struct, frozen=True):
    """Run the ready calls; the next request reports lost ones."""


class RetryRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Send the request again after `wait_seconds`; the answer continues the visible text."""

    wait_seconds: float = 0.0
    without_jitter: bool = False  # the service named this wait
    reason: ContinuationReason = ContinuationReason.NETWORK
    raise_cap: bool = False
    lower_cap: int | None = None  # the service's output limit in tokens; 0: half of the current one
    lower_effort: bool = False
    without_streaming: bool = False
    nudge: bool = False  # tell the model that its answer was empty


class RequestSmallerCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Report the lost calls to the model, and ask for them in smaller parts."""

    wait_seconds: float = 0.0
    limit_kilotokens: int = _CALL_LIMIT_KILOTOKENS  # thousands of tokens per call
    limit_schema: bool = False  # also limit the long parameter in the tool's schema
    withheld_tool: str = ""  # tool to leave out of the next request
    raise_cap: bool = False


class ReissueCalls(msgspec.Struct, frozen=True):
    """Tell the model that its calls have not run, and ask for them again."""

    wait_seconds: float = 0.0


class RequestAnnouncedCall(msgspec.Struct, frozen=True):
    """Ask for the call that the text announces; the text stays, and new text follows it."""


class CompactHistory(msgspec.Struct, frozen=True):
    """Shorten the conversation, then retry; `limit_tokens` is the limit named by the service."""

    limit_tokens: int | None = None


class SwitchTarget(msgspec.Struct, frozen=True):
    """Switch to the next target."""

    cause: str


class GiveUp(msgspec.Struct, frozen=True):
    """End the turn as failed; `cause` is the reason, in words for the user."""

    cause: str
    notice: FailureNotice = NoticeId.TURN_FAILED
    tell_operator: bool = False
    too_long: bool = False  # the conversation no longer fits; only a fresh one helps


RecoveryAction = (
    FinishTurn
    | RunTools
    | RetryRequest
    | RequestSmallerCalls
    | ReissueCalls
    | RequestAnnouncedCall
    | CompactHistory
    | SwitchTarget
    | GiveUp
)


# --- counters ----------------------------------------------------------------------------------


class RecoveryBudget:
    """Recovery counters of a turn since its last progress."""

    def __init__(self, now: float) -> None:
        self.recoveries = 0
        self.last_progress_at = now
        self.losses_by_tool: dict[str, int] = {}
        self.compactions = 0
        self.refusals = 0
        self.loops = 0
        self.announced_call_requested = False  # at most once per turn
        self._new_characters = 0

    def reset_on_progress(self, now: float, tools_run: Sequence[str] = ()) -> None:
        """Reset the counters after tools ran, or after enough new text or file content.

        Compactions, refusals and loops are reset only if tools ran, because new text alone does not
        show that their cause is gone.
        """
        self.recoveries = self._new_characters = 0
        self.last_progress_at = now
        if tools_run:
            self.compactions = self.refusals = self.loops = 0
        for tool in tools_run:
            self.losses_by_tool.pop(tool, None)

    def exclude_wait(self, seconds: float) -> None:
        """Leave time spent on tools and approvals out of the time without progress."""
        self.last_progress_at += seconds

    def record_growth(self, visible_characters: int, drafted_characters: int, now: float) -> bool:
        """Count new characters; return True if they amount to progress."""
        self._new_characters += visible_characters + drafted_characters
        if self._new_characters < PROGRESS_CHARACTERS:
            return False
        self.reset_on_progress(now)
        if drafted_characters:
            self.losses_by_tool.clear()
        return True

    def record_lost_calls(self, tools: Iterable[str]) -> int:
        """Count calls that were cut off; return the highest count among these tools."""
        for tool in dict.fromkeys(tools):
            self.losses_by_tool[tool] = self.losses_by_tool.get(tool, 0) + 1
        return max((self.losses_by_tool[tool] for tool in tools), default=0)

    def smaller_calls(self, tools: Sequence[str]) -> RequestSmallerCalls:
        """Return the request for smaller calls; each loss of a tool halves the size limit."""
        worst = max((self.losses_by_tool.get(tool, 1) for tool in tools), default=1)
        return RequestSmallerCalls(
            limit_kilotokens=max(1, _CALL_LIMIT_KILOTOKENS >> (worst - 1)),
            limit_schema=worst >= _LOSSES_UNTIL_SCHEMA_LIMIT,
            withheld_tool=next(
                (t for t in tools if self.losses_by_tool.get(t) == _LOSSES_UNTIL_WITHHELD), ""
            ),
        )

    def is_exhausted(self, now: float) -> bool:
        """Return True after too many recoveries or too much time without progress."""
        return (
            self.recoveries > MAX_RECOVERIES
            or now - self.last_progress_at > MAX_SECONDS_WITHOUT_PROGRESS
        )


class Recovery:
    """Recovery policy and counters of one step."""

    def __init__(self, budget: RecoveryBudget, *, first_backoff_seconds: float = 1.0) -> None:
        self._budget = budget
        self._first_backoff_seconds = first_backoff_seconds
        self._cap_count = 0
        self._repeat_count = 0
        self._ignored_rewrites = 0
        self._continuation_reason = ContinuationReason.NETWORK  # reason in the current request
        self._ended_without_error = False  # the text ended without an end marker or an error
        self.confirmed_unmarked_end = False
        """True if a continuation showed that a text without an end marker had been complete."""
        self.reset_for_target()

    def reset_for_target(self) -> None:
        """Reset the counters that apply to one target."""
        self._failure_count = self._empty_count = self._reasoning_only_count = (
            self._output_limit_count
        ) = 0
        self._streaming_refused = False
        self._blank_streams = 0  # streams in a row that the service ended without any output

    def next_action(self, outcome: RequestOutcome, now: float) -> RecoveryAction:
        """Return the next action; call exactly once per request."""
        if self._budget.record_growth(outcome.new_characters, outcome.drafted_characters, now):
            self._failure_count = 0
        action = self._decide(outcome)
        if isinstance(action, RetryRequest):
            self._continuation_reason = action.reason
        if isinstance(action, FinishTurn | RunTools | GiveUp | RequestAnnouncedCall):
            return action  # no recovery
        self._budget.recoveries += 1
        if self._budget.is_exhausted(now):
            return GiveUp(f"no progress after {self._budget.recoveries} attempts")
        return action

    def _decide(self, outcome: RequestOutcome) -> RecoveryAction:
        match outcome.verdict:
            case Complete() | SoftComplete():
                return RunTools() if outcome.ready_calls else self._on_complete(outcome)
            case Interrupted():
                return GiveUp("it was stopped")
            case ModelRefused():
                return self._on_refused(outcome)
            case Empty():
                return self._on_empty(outcome)
            case Capped():
                return self._on_capped(outcome)
            case Cut(phase, error):
                return self._on_cut(phase, error, outcome)

    # --- by verdict ----------------------------------------------------------------------------

    def _on_complete(self, outcome: RequestOutcome) -> RecoveryAction:
        if outcome.ignored_rewrite:
            # The visible text is still incomplete, because the restarted answer was not shown.
            self._ignored_rewrites += 1
            if self._ignored_rewrites == 1:
                return RetryRequest(reason=self._continuation_reason)
            return self._switch_or_give_up(
                outcome, "the model started its answer over instead of continuing it"
            )
        if not outcome.only_announced or self._budget.announced_call_requested:
            return FinishTurn()
        self._budget.announced_call_requested = True
        return RequestAnnouncedCall()

    def _on_refused(self, outcome: RequestOutcome) -> RecoveryAction:
        self._budget.refusals += 1
        if outcome.has_other_target and self._budget.refusals == 1:
            return SwitchTarget("the model declined to answer")
        return GiveUp("the model declined to answer", notice=NoticeId.DECLINED)

    def _on_empty(self, outcome: RequestOutcome) -> RecoveryAction:
        if outcome.text_visible:
            return FinishTurn()  # the visible text is complete
        self._empty_count += 1
        if self._empty_count == 1:
            return RetryRequest()
        if self._empty_count == 2 and outcome.after_tools:  # noqa: PLR2004 - the second time
            return RetryRequest(nudge=True)
        return self._switch_or_give_up(outcome, "the model sent an empty answer")

    def _on_capped(self, outcome: RequestOutcome) -> RecoveryAction:
        cause = "the answer was cut off by the model's output limit"
        if outcome.ready_calls:
            return RunTools()
        if outcome.lost_tools:
            return self._on_lost_calls(outcome, cause, capped=True)
        if outcome.unsealed_tools:
            return self._on_unsealed_calls(outcome, cause, capped=True)
        if outcome.has_reasoning and not outcome.has_text:
            self._reasoning_only_count += 1
            if self._reasoning_only_count == 1:
                return RetryRequest(
                    reason=ContinuationReason.CAP, raise_cap=True, lower_effort=True
                )
            return GiveUp(
                "the model used its whole output budget on reasoning",
                notice=NoticeId.REASONING_USED_UP,
            )
        self._failure_count += 1
        self._cap_count += 1
        if self._cap_count > _MAX_CAPPED_ANSWERS or self._failure_count >= _MAX_FAILURES:
            return GiveUp(cause)
        return RetryRequest(reason=ContinuationReason.CAP, raise_cap=True)

    def _on_cut(
        self, phase: CutPhase, error: ProviderError | None, outcome: RequestOutcome
    ) -> RecoveryAction:
        if outcome.repeated_ending and error is None:
            # The continuation only repeated the end of the text. If the text had ended without an
            # error, or if this happens a second time, the text is complete.
            self._repeat_count += 1
            self.confirmed_unmarked_end = self._ended_without_error
            if self._ended_without_error or self._repeat_count > 1:
                return FinishTurn()
        self._ended_without_error = error is None and phase is CutPhase.TEXT
        by_error = self._on_error(error, outcome)
        if by_error is not None:
            return by_error
        cause = describe_error(error)
        if outcome.ready_calls:
            return RunTools()
        if outcome.lost_tools:
            return self._on_lost_calls(outcome, cause, wait_seconds=self._backoff_seconds(error))
        if outcome.unsealed_tools:
            return self._on_unsealed_calls(outcome, cause)
        self._failure_count += 1
        stalled = isinstance(error, errors.Stalled)
        ended = error is None or isinstance(error, errors.EndedEarly)
        blank = phase is CutPhase.BEFORE_FIRST and outcome.opened_stream and ended
        self._blank_streams = self._blank_streams + 1 if blank else 0
        if (
            stalled
            and phase is CutPhase.BEFORE_FIRST
            and self._failure_count > 1
            and outcome.has_other_target
        ):
            return SwitchTarget(cause)
        if self._failure_count >= _MAX_FAILURES:
            if self._needs_answer_without_stream(outcome):
                self._streaming_refused = True
                return RetryRequest(
                    wait_seconds=self._backoff_seconds(error), without_streaming=True
                )
            return self._switch_or_give_up(outcome, cause)
        lower = phase is CutPhase.REASONING and self._failure_count > 1
        return RetryRequest(wait_seconds=self._backoff_seconds(error), lower_effort=lower)

    def _needs_answer_without_stream(self, outcome: RequestOutcome) -> bool:
        """Return True if the service accepts requests, but ends all of its streams at once.

        Some services fail so if the request is wrong; without a stream they name the error.
        """
        return (
            self._blank_streams >= _MAX_FAILURES
            and not self._streaming_refused
            and not outcome.has_other_target
            and not outcome.text_visible
        )

    def _on_error(
        self, error: ProviderError | None, outcome: RequestOutcome
    ) -> RecoveryAction | None:
        """Return the action that the error demands regardless of the received output, if any."""
        cause = describe_error(error)
        match error:
            case errors.ApiKeyRejected() | errors.OutOfCredit():
                return self._switch_or_give_up(outcome, cause, tell_operator=True)
            case errors.CannotStream() if not self._streaming_refused:
                self._streaming_refused = True
                return RetryRequest(without_streaming=True)
            case errors.OutputTooLong(limit=limit) if self._output_limit_count < _MAX_FAILURES:
                self._output_limit_count += 1
                return RetryRequest(lower_cap=limit or 0)
            case errors.ContextTooLong(limit=limit):
                self._budget.compactions += 1
                if self._budget.compactions > _MAX_COMPACTIONS:
                    return GiveUp(cause, too_long=True)
                return CompactHistory(limit)
            case errors.BadRequest() | errors.OutputTooLong():
                return self._switch_or_give_up(outcome, cause)
            case errors.Declined():
                return self._on_refused(outcome)
            case errors.Looping(thinking=thinking):
                self._budget.loops += 1
                if self._budget.loops > 1:
                    return self._switch_or_give_up(outcome, cause)
                return self._on_repetition(outcome, thinking=thinking)
            case errors.RateLimited(behind=True) if outcome.has_other_target:
                return SwitchTarget(cause)  # the limit is upstream; waiting here would not help
            case errors.RateLimited(retry_after=wait) | errors.Overloaded(retry_after=wait) if (
                wait is not None and not outcome.lost_tools and not outcome.ready_calls
            ):
                return self._on_retry_after(wait, cause, outcome)
            case _:
                return None

    def _on_retry_after(
        self, wait_seconds: float, cause: str, outcome: RequestOutcome
    ) -> RecoveryAction:
        self._failure_count += 1
        longest = (
            _MAX_WAIT_SECONDS if outcome.has_other_target else _MAX_WAIT_SECONDS_WITHOUT_FALLBACK
        )
        if wait_seconds > longest or self._failure_count >= _MAX_FAILURES:
            return self._switch_or_give_up(outcome, cause)
        return RetryRequest(wait_seconds=wait_seconds, without_jitter=True)

    def _on_repetition(self, outcome: RequestOutcome, *, thinking: bool) -> RecoveryAction:
        if outcome.lost_tools:
            self._budget.record_lost_calls(outcome.lost_tools)
            return self._budget.smaller_calls(outcome.lost_tools)
        return RetryRequest(lower_effort=thinking)

    # --- lost calls ----------------------------------------------------------------------------

    def _on_lost_calls(
        self,
        outcome: RequestOutcome,
        cause: str,
        *,
        capped: bool = False,
        wait_seconds: float = 0.0,
    ) -> RecoveryAction:
        worst = self._budget.record_lost_calls(outcome.lost_tools)
        if worst > _LOSSES_UNTIL_WITHHELD:
            return self._switch_or_give_up(outcome, cause)
        first = (
            worst == 1
            and not capped
            and not outcome.text_visible
            and not outcome.drafted_characters
        )
        if first and outcome.lost_characters < _SMALL_CALL_CHARACTERS:
            return RetryRequest(wait_seconds=wait_seconds)
        if worst == _LOSSES_UNTIL_WITHHELD - 1 and outcome.has_other_target:
            return SwitchTarget(cause)
        smaller = self._budget.smaller_calls(outcome.lost_tools)
        return msgspec.structs.replace(smaller, wait_seconds=wait_seconds, raise_cap=capped)

    def _on_unsealed_calls(
        self, outcome: RequestOutcome, cause: str, *, capped: bool = False
    ) -> RecoveryAction:
        self._failure_count += 1
        if self._failure_count < _MAX_FAILURES:
            return ReissueCalls()
        # The stream breaks at this call every time: treat the call as lost.
        as_lost = msgspec.structs.replace(
            outcome, lost_tools=outcome.unsealed_tools, lost_characters=_SMALL_CALL_CHARACTERS
        )
        return self._on_lost_calls(as_lost, cause, capped=capped)

    # --- helpers -------------------------------------------------------------------------------

    def _switch_or_give_up(
        self, outcome: RequestOutcome, cause: str, *, tell_operator: bool = False
    ) -> SwitchTarget | GiveUp:
        if outcome.has_other_target:
            return SwitchTarget(cause)
        outage = self._failure_count >= _MAX_FAILURES and not outcome.text_visible
        return GiveUp(cause, tell_operator=tell_operator or outage)

    def _backoff_seconds(self, error: ProviderError | None) -> float:
        if isinstance(error, errors.Stalled):
            return 0.0  # the timeout was wait enough
        # A configured first backoff above the usual maximum raises the maximum.
        longest = max(_MAX_BACKOFF_SECONDS, self._first_backoff_seconds)
        return min(self._first_backoff_seconds * 2.0 ** max(0, self._failure_count - 1), longest)


def describe_error(error: ProviderError | None) -> str:
    """Return a clause that explains an error to the user."""
    match error:
        case None | errors.ConnectionLost():
            return "connection drops on the way to the model"
        case errors.Stalled():
            return "the model stopped responding"
        case errors.Looping():
            return "the model kept repeating itself"
        case errors.RateLimited():
            return "the model service limits the rate of requests"
        case errors.Overloaded():
            return f"the model service cannot be reached or is overloaded ({error})"
        case errors.ContextTooLong():
            return "the conversation has become too long for the model"
        case errors.Declined():
            return "the model declined to answer"
        case errors.ApiKeyRejected():
            return "the model service rejected the API key (set a valid one in model.api_key)"
        case errors.OutOfCredit():
            return "the account at the model service has no credit left"
        case _:
            return f"the model service refused the request ({error})"
