"""One request to a model: sent, read under the watchdog, and judged."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

import msgspec

from agent.answer.accumulate import Accumulator, ProgressKind, StepResult
from agent.answer.reasoning_blocks import ReasoningBlocks, encode_reasoning
from agent.answer.repetition import RepetitionDetector
from agent.errors import Looping, ProviderError, Stalled
from agent.events import ReasoningDelta, TextDelta, VerdictName
from agent.model.contract import Chunk, ModelRequest, PingChunk
from agent.model.known_models import model_facts
from agent.model.learned import LearnedTarget
from agent.model.usage import Price, Usage, compute_cost
from agent.providers.registry import Target
from agent.request.request_hash import hash_request
from agent.request.tokens import count_characters
from agent.verdict import Cut, Verdict, judge_attempt, verdict_name
from agent.watchdog import TimeoutCause, Watchdog, WatchdogLimits, compute_limits
from sessions.values.clock import Clock

_CHARACTERS_PER_TOKEN = 4
_MIN_LEARNED_GAP_SECONDS = 0.25  # shorter gaps are not worth recording


class AttemptResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one request."""

    verdict: Verdict
    step: StepResult
    cause: str = ""  # for the journal: the error that ended the request
    usage: Usage = Usage()
    estimated_usage: Usage = Usage()  # of a whole answer without reported usage
    request_hash: str = ""  # for the journal: identifies the request's content

    @property
    def verdict_name(self) -> VerdictName:
        """The verdict's name in the journal."""
        return verdict_name(self.verdict)

    @property
    def phase(self) -> str:
        """Phase in which the answer was cut; empty for other verdicts."""
        return str(self.verdict.phase) if isinstance(self.verdict, Cut) else ""

    @property
    def recorded_usage(self) -> Usage:
        """Reported usage, or else the estimate."""
        return self.usage if self.usage.total_tokens else self.estimated_usage

    @property
    def received_characters(self) -> int:
        """Received characters of text, reasoning and arguments."""
        return self.step.received_characters

    @property
    def request_id(self) -> str:
        """The service's own id of the request."""
        return self.step.request_id

    def stored_reasoning(self, label: str) -> bytes | None:
        """Encode the reasoning for the history row; only the target with this label can use it."""
        return encode_reasoning(ReasoningBlocks(label, self.step.reasoning, self.step.opaque_parts))

    @property
    def error(self) -> ProviderError | None:
        """Error that cut the answer, if any."""
        return self.verdict.error if isinstance(self.verdict, Cut) else None


OnDelta = Callable[[TextDelta | ReasoningDelta], None]
OnSilence = Callable[[float, float], None]
"""Called after long silence with the seconds of silence and the seconds left until the timeout."""


async def run_attempt(
    target: Target,
    request: ModelRequest,
    accumulator: Accumulator,
    *,
    clock: Clock,
    learned: LearnedTarget,
    on_delta: OnDelta,
    on_silence: OnSilence,
) -> AttemptResult:
    """Send the request, read the answer and judge it; `on_delta` receives deltas as they arrive.

    Errors of the provider become part of the result. An answer that fills the accumulator is not
    read further. The connection is closed when this returns or
    is cancelled.
    """
    error: ProviderError | None = None
    watch = _WatchdogTimer(_compute_limits(target, request, learned), clock, learned, on_silence)
    loops = _RepetitionGuard()
    try:
        async with watch, target.provider.stream(request) as chunks:
            async for chunk in chunks:
                before = accumulator.received_characters
                for delta in accumulator.feed(chunk):
                    loops.on_delta(delta)
                    on_delta(delta)
                size = accumulator.received_characters - before
                if accumulator.progress is ProgressKind.TOOL and size:
                    loops.on_call_chunk(chunk)
                ping = chunk if type(chunk) is PingChunk else None
                watch.on_chunk(accumulator, new_characters=size, ping=ping)
                if accumulator.is_full:
                    break
    except ProviderError as raised:
        # Drop the traceback: traceback, frame and error form a reference cycle, which
        # would keep the request and the response alive until the next garbage collection.
        error = raised.with_traceback(None)
    except TimeoutError:
        if watch.cause is None:
            raise
        error = None if watch.cause is TimeoutCause.LINGER else watch.stalled_error()
    for delta in accumulator.close():
        on_delta(delta)
    step = accumulator.result()
    if isinstance(error, Looping):
        step = loops.trim(step)
    verdict = judge_attempt(
        step, error=error, cap=request.max_output_tokens, omits_end_marker=learned.omits_end_marker
    )
    cause = f"{type(error).__name__}: {error}" if error else ""
    return AttemptResult(
        verdict=verdict,
        step=step,
        cause=cause,
        usage=_usage_of(step, target),
        request_hash=hash_request(request),
    )


def _usage_of(step: StepResult, target: Target) -> Usage:
    if step.usage is None:
        return Usage()
    chunk = step.usage
    usage = Usage(
        chunk.input_tokens,
        chunk.output_tokens,
        chunk.cached_tokens,
        chunk.cost,
        chunk.reasoning_tokens,
    )
    return msgspec.structs.replace(usage, cost=compute_cost(usage, price_of(target)))


def with_estimated_usage(
    result: AttemptResult, target: Target, estimate_input: Callable[[], int]
) -> AttemptResult:
    """Estimate the tokens of a whole answer that the service did not report."""
    if result.usage.input_tokens or not result.step.ended:
        return result
    received = result.received_characters // _CHARACTERS_PER_TOKEN
    estimate = Usage(estimate_input(), 0 if result.usage.output_tokens else received)
    estimate = msgspec.structs.replace(estimate, cost=compute_cost(estimate, price_of(target)))
    return msgspec.structs.replace(result, estimated_usage=estimate)


def price_of(target: Target) -> Price | None:
    """Return the configured price of a target, if any."""
    listed = target.settings.price
    return Price(listed.input, listed.output, listed.cached) if listed else None


class _RepetitionGuard:
    """Guard that raises `Looping` when an answer repeats itself; `trim` removes the repetition."""

    def __init__(self) -> None:
        self._text = RepetitionDetector()
        self._reasoning = RepetitionDetector()
        self._arguments = RepetitionDetector()
        self._kept_text_length: int | None = None
        self._kept_reasoning_length: int | None = None

    def on_delta(self, delta: TextDelta | ReasoningDelta) -> None:
        if isinstance(delta, TextDelta):
            self._kept_text_length = self._text.feed(delta.text)
            kept_length = self._kept_text_length
        else:
            self._kept_reasoning_length = self._reasoning.feed(delta.text)
            kept_length = self._kept_reasoning_length
        if kept_length is not None:
            raise Looping(thinking=isinstance(delta, ReasoningDelta))

    def on_call_chunk(self, chunk: Chunk) -> None:
        arguments = getattr(chunk, "arguments", None)
        if arguments and self._arguments.feed(arguments) is not None:
            raise Looping

    def trim(self, step: StepResult) -> StepResult:
        if self._kept_text_length is not None:
            return msgspec.structs.replace(step, text=step.text[: self._kept_text_length], calls=())
        if self._kept_reasoning_length is not None:
            kept = step.reasoning[: self._kept_reasoning_length]
            return msgspec.structs.replace(step, reasoning=kept, opaque_parts=(), calls=())
        return step


class _WatchdogTimer:
    """Context manager that applies the watchdog's deadlines to the enclosed block.

    `TimeoutError` is raised when a deadline passes; `on_silence` is called before that. A single
    timer is rescheduled only when a deadline moves closer; a timer that fires early reschedules
    itself. A stream of thousands of chunks therefore does not create a timer for each chunk.
    """

    def __init__(
        self, limits: WatchdogLimits, clock: Clock, learned: LearnedTarget, on_silence: OnSilence
    ) -> None:
        self.cause: TimeoutCause | None = None
        self._limits = limits
        self._clock = clock
        self._learned = learned
        self._on_silence = on_silence
        self._has_progress = False
        self._last_progress_at = 0.0
        self._notified_at: float | None = None  # last notice about the current silence
        self._finish_seen = False

    async def __aenter__(self) -> Self:
        self._last_progress_at = self._clock.monotonic()
        self._watchdog = Watchdog(self._limits, self._last_progress_at)
        self._timeout = asyncio.timeout(None)
        await self._timeout.__aenter__()
        self._schedule()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        await self._timeout.__aexit__(kind, error, traceback)

    def on_chunk(
        self, accumulator: Accumulator, *, new_characters: int, ping: PingChunk | None
    ) -> None:
        """Update the clocks for a chunk."""
        now = self._clock.monotonic()
        nearer = self._watchdog.on_bytes(
            now, ping=ping is not None, heartbeat=ping is not None and ping.beat
        )
        if new_characters and accumulator.progress is not None:
            nearer = self._on_progress(now, accumulator.progress, new_characters) or nearer
        if accumulator.ended and not self._finish_seen:
            self._watchdog.on_finish(now)
            nearer = self._finish_seen = True
        if nearer:
            self._timer.cancel()
            self._schedule()

    def _on_progress(self, now: float, kind: ProgressKind, new_characters: int) -> bool:
        nearer = self._watchdog.on_progress(now, kind, new_characters)
        gap, self._last_progress_at = now - self._last_progress_at, now
        if not self._has_progress:
            self._has_progress = True
            self._learned.record_first_token(gap)
        elif gap > _MIN_LEARNED_GAP_SECONDS:
            self._learned.record_gap(kind.value, gap)
        notified, self._notified_at = self._notified_at is not None, None
        return nearer or notified

    def stalled_error(self) -> Stalled:
        """Return the error that names the expired timeout."""
        return Stalled(f"timeout: {self.cause}")

    def _schedule(self) -> None:
        when = self._watchdog.deadline().when
        notice = self._next_notice_at()
        if notice is not None:
            when = min(when, notice)
        wait = when - self._clock.monotonic()
        self._timer = asyncio.get_running_loop().call_later(max(wait, 0.0), self._on_timer)

    def _next_notice_at(self) -> float | None:
        if self._notified_at is not None:
            return self._notified_at + self._limits.notice_after / 3
        return self._watchdog.notice_at()

    def _on_timer(self) -> None:
        now = self._clock.monotonic()
        deadline = self._watchdog.deadline()
        if deadline.when <= now:
            self.cause = deadline.cause
            self._timeout.reschedule(asyncio.get_running_loop().time())
            return
        notice = self._next_notice_at()
        due = notice is not None and notice <= now
        if due:
            self._notified_at = now
        self._schedule()  # before the callback: if that fails, the deadline is still set
        if due:
            self._on_silence(
                self._watchdog.silent_seconds(now), self._watchdog.seconds_until_deadline(now)
            )


def _compute_limits(
    target: Target, request: ModelRequest, learned: LearnedTarget
) -> WatchdogLimits:
    size = len(request.system) + sum(map(count_characters, request.messages))
    known = model_facts(request.model)
    gaps = {kind: learned.longest_gap_seconds(kind.value) for kind in ProgressKind}
    return compute_limits(
        target.settings.timeouts,
        input_tokens=size // _CHARACTERS_PER_TOKEN,
        effort=request.reasoning_effort,
        base_url=target.settings.base_url,
        min_silence=known.min_first_token_seconds,
        learned_first_token=learned.slow_first_token_seconds(),
        learned_gaps={kind: gap for kind, gap in gaps.items() if gap is not None},
    )
