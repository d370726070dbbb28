"""One request to a model: read under the watchdog, and judged."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

import msgspec

from agent.answer.accumulate import Accumulator, Progress, StepResult
from agent.answer.reasoning_blocks import Thoughts, write_thoughts
from agent.answer.repetition import LoopWatch
from agent.errors import Looping, ProviderError, Stalled
from agent.events import ReasoningDelta, TextDelta
from agent.model.contract import Chunk, ModelRequest, PingChunk
from agent.model.known_models import facts
from agent.model.learned import Learned
from agent.model.usage import Price, Usage, cost_of
from agent.providers.registry import Target
from agent.request.request_hash import digest
from agent.request.tokens import characters
from agent.verdict import Cut, Verdict, judge, name_of
from agent.watchdog import Cause, Limits, Watchdog, limits_for
from sessions.values.clock import Clock

_CHARACTERS_PER_TOKEN = 4
_WORTH_LEARNING = 0.25  # seconds: shorter silences say nothing about how patient to be


class AttemptResult(msgspec.Struct, frozen=True):
    """How one request ended."""

    verdict: Verdict
    step: StepResult
    cause: str = ""  # for the journal: what broke it off
    usage: Usage = Usage()
    request_hash: str = ""  # for the journal: what was asked

    @property
    def name(self) -> str:
        """The verdict in one word."""
        return name_of(self.verdict)

    @property
    def phase(self) -> str:
        """How far the answer had come, when it was cut."""
        return str(self.verdict.phase) if isinstance(self.verdict, Cut) else ""

    @property
    def received(self) -> int:
        """Characters of text, reasoning and arguments that came."""
        return self.step.received

    @property
    def request_id(self) -> str:
        """The service's own name for the request."""
        return self.step.request_id

    def thoughts(self, label: str) -> bytes | None:
        """What was thought, for the row of this answer and for nobody but its target."""
        return write_thoughts(Thoughts(label, self.step.reasoning, self.step.opaque))

    @property
    def error(self) -> ProviderError | None:
        """What broke it off, when something did."""
        return self.verdict.error if isinstance(self.verdict, Cut) else None


Show = Callable[[TextDelta | ReasoningDelta], None]
Silence = Callable[[float, float], None]
"""Called when the model has been silent for long: for how many seconds, and in how many more it
will be given up."""


async def run_attempt(
    target: Target,
    request: ModelRequest,
    accumulator: Accumulator,
    *,
    clock: Clock,
    learned: Learned,
    show: Show,
    silence: Silence,
) -> AttemptResult:
    """Send the request and read the answer; what can be shown goes to `show` as it comes.

    Whatever ends it, the connection is closed when this returns. Cancelling it closes the
    connection and raises `CancelledError`.
    """
    error: ProviderError | None = None
    watch = _Watch(_limits(target, request, learned), clock, learned, silence)
    loops = _Loops()
    try:
        async with watch, target.provider.stream(request) as chunks:
            async for chunk in chunks:
                before = accumulator.received
                for delta in accumulator.feed(chunk):
                    loops.said(delta)
                    show(delta)
                size = accumulator.received - before
                if accumulator.progress is Progress.TOOL and size:
                    loops.called(chunk)
                sign = chunk if type(chunk) is PingChunk else None
                watch.saw(accumulator, size=size, sign=sign)
    except ProviderError as raised:
        # Its traceback leads to this frame, which leads to it: both would stay, with all that was
        # sent and received, until the collector comes.
        error = raised.with_traceback(None)
    except TimeoutError:
        if watch.cause is None:
            raise
        error = None if watch.cause is Cause.LINGER else watch.stalled()
    for delta in accumulator.close():
        show(delta)
    step = accumulator.result()
    if isinstance(error, Looping):
        step = loops.without(step)
    verdict = judge(step, error=error, cap=request.max_output_tokens, omits_end=learned.omits_end)
    cause = f"{type(error).__name__}: {error}" if error else ""
    return AttemptResult(verdict, step, cause, _usage(step, target), digest(request))


def _usage(step: StepResult, target: Target) -> Usage:
    if step.usage is None:
        return Usage()
    counted = step.usage
    usage = Usage(counted.input_tokens, counted.output_tokens, counted.cached_tokens, counted.cost)
    return msgspec.structs.replace(usage, cost=cost_of(usage, price_of(target)))


def price_of(target: Target) -> Price | None:
    """What a target costs, as far as that is known."""
    listed = target.settings.price
    return Price(listed.input, listed.output, listed.cached) if listed else None


class _Loops:
    """Ends an answer that repeats itself; what is repeated is not kept."""

    def __init__(self) -> None:
        self._text = LoopWatch()
        self._reasoning = LoopWatch()
        self._arguments = LoopWatch()
        self._text_kept: int | None = None
        self._reasoning_kept: int | None = None

    def said(self, delta: TextDelta | ReasoningDelta) -> None:
        if isinstance(delta, TextDelta):
            self._text_kept = self._text.feed(delta.text)
            found = self._text_kept
        else:
            self._reasoning_kept = self._reasoning.feed(delta.text)
            found = self._reasoning_kept
        if found is not None:
            raise Looping(thinking=isinstance(delta, ReasoningDelta))

    def called(self, chunk: Chunk) -> None:
        arguments = getattr(chunk, "arguments", None)
        if arguments and self._arguments.feed(arguments) is not None:
            raise Looping

    def without(self, step: StepResult) -> StepResult:
        if self._text_kept is not None:
            return msgspec.structs.replace(step, text=step.text[: self._text_kept], calls=())
        if self._reasoning_kept is not None:
            kept = step.reasoning[: self._reasoning_kept]
            return msgspec.structs.replace(step, reasoning=kept, opaque=(), calls=())
        return step


class _Watch:
    """Ends the block it guards when the watchdog says so, and tells of long silence before.

    One timer, set anew only when a deadline comes nearer; when it rings too early it is set again.
    A stream of thousands of pieces then costs no timer for each.
    """

    def __init__(self, limits: Limits, clock: Clock, learned: Learned, silence: Silence) -> None:
        self.cause: Cause | None = None
        self._limits = limits
        self._clock = clock
        self._learned = learned
        self._silence = silence
        self._begun = False
        self._at = 0.0  # of the last progress
        self._told_at: float | None = None  # when the present silence was told of last
        self._ended = False

    async def __aenter__(self) -> Self:
        self._at = self._clock.monotonic()
        self._dog = Watchdog(self._limits, self._at)
        self._timeout = asyncio.timeout(None)
        await self._timeout.__aenter__()
        self._set()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        await self._timeout.__aexit__(kind, error, traceback)

    def saw(self, accumulator: Accumulator, *, size: int, sign: PingChunk | None) -> None:
        """A chunk came."""
        now = self._clock.monotonic()
        nearer = self._dog.wire(now, ping=sign is not None, beat=sign is not None and sign.beat)
        if size and accumulator.progress is not None:
            nearer = self._progress(now, accumulator.progress, size) or nearer
        if accumulator.ended and not self._ended:
            self._dog.ended(now)
            nearer = self._ended = True
        if nearer:
            self._timer.cancel()
            self._set()

    def _progress(self, now: float, kind: Progress, size: int) -> bool:
        nearer = self._dog.progress(now, kind, size)
        gap, self._at = now - self._at, now
        if not self._begun:
            self._begun = True
            self._learned.first_token(gap)
        elif gap > _WORTH_LEARNING:
            self._learned.gap(kind.value, gap)
        told, self._told_at = self._told_at is not None, None
        return nearer or told

    def stalled(self) -> Stalled:
        """Say which clock ran out."""
        return Stalled(f"given up: {self.cause}")

    def _set(self) -> None:
        when = self._dog.deadline().when
        notice = self._notice_at()
        if notice is not None:
            when = min(when, notice)
        wait = when - self._clock.monotonic()
        self._timer = asyncio.get_running_loop().call_later(max(wait, 0.0), self._ring)

    def _notice_at(self) -> float | None:
        if self._told_at is not None:
            return self._told_at + self._limits.notice_after / 3
        return self._dog.notice_at()

    def _ring(self) -> None:
        now = self._clock.monotonic()
        deadline = self._dog.deadline()
        if deadline.when <= now:
            self.cause = deadline.cause
            self._timeout.reschedule(asyncio.get_running_loop().time())
            return
        notice = self._notice_at()
        due = notice is not None and notice <= now
        if due:
            self._told_at = now
        self._set()  # first: news that cannot be told must not leave the request without a clock
        if due:
            self._silence(self._dog.silence(now), self._dog.reconnects_in(now))


def _limits(target: Target, request: ModelRequest, learned: Learned) -> Limits:
    size = len(request.system) + sum(map(characters, request.messages))
    known = facts(request.model)
    gaps = {kind: learned.longest_gap(kind.value) for kind in Progress}
    return limits_for(
        target.settings.timeouts,
        input_tokens=size // _CHARACTERS_PER_TOKEN,
        effort=request.reasoning_effort,
        base_url=target.settings.base_url,
        floor=known.first_token_floor,
        soft=learned.soft_first_token(),
        gaps={kind: gap for kind, gap in gaps.items() if gap is not None},
    )
