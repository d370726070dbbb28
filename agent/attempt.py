"""One request to a model: read under the watchdog, and judged."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

import msgspec

from agent.accumulate import Accumulator, StepResult
from agent.errors import ProviderError, Stalled
from agent.events import ReasoningDelta, TextDelta
from agent.providers.contract import ModelRequest, PingChunk
from agent.providers.registry import Target
from agent.verdict import Cut, Verdict, judge, name_of
from agent.watchdog import Cause, Limits, Watchdog, limits_for
from sessions.values.clock import Clock

_CHARACTERS_PER_TOKEN = 4


class AttemptResult(msgspec.Struct, frozen=True):
    """How one request ended."""

    verdict: Verdict
    step: StepResult
    cause: str = ""  # for the journal: what broke it off

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

    @property
    def input_tokens(self) -> int:
        """As the service counted them; 0 when it did not say."""
        return self.step.usage.input_tokens if self.step.usage else 0

    @property
    def output_tokens(self) -> int:
        """As the service counted them; 0 when it did not say."""
        return self.step.usage.output_tokens if self.step.usage else 0


Show = Callable[[TextDelta | ReasoningDelta], None]


async def run_attempt(
    target: Target,
    request: ModelRequest,
    accumulator: Accumulator,
    *,
    clock: Clock,
    show: Show,
) -> AttemptResult:
    """Send the request and read the answer; what can be shown goes to `show` as it comes.

    Whatever ends it, the connection is closed when this returns. Cancelling it closes the
    connection and raises `CancelledError`.
    """
    error: ProviderError | None = None
    watch = _Watch(_limits(target, request), clock)
    try:
        async with watch, target.provider.stream(request) as chunks:
            async for chunk in chunks:
                before = accumulator.received
                for delta in accumulator.feed(chunk):
                    show(delta)
                watch.saw(
                    accumulator,
                    progress=accumulator.received > before,
                    ping=type(chunk) is PingChunk,
                )
    except ProviderError as raised:
        error = raised
    except TimeoutError:
        if watch.cause is None:
            raise
        error = None if watch.cause is Cause.LINGER else watch.stalled()
    for delta in accumulator.close():
        show(delta)
    step = accumulator.result()
    verdict = judge(step, error=error, cap=request.max_output_tokens)
    return AttemptResult(verdict, step, f"{type(error).__name__}: {error}" if error else "")


class _Watch:
    """Ends the block it guards when the watchdog says so.

    One timer, set anew only when a deadline comes nearer; when it rings too early it is set again.
    A stream of thousands of pieces then costs no timer for each.
    """

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self.cause: Cause | None = None
        self._limits = limits
        self._clock = clock
        self._kind: object = None
        self._pings = False
        self._ended = False

    async def __aenter__(self) -> Self:
        self._dog = Watchdog(self._limits, self._clock.monotonic())
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

    def saw(self, accumulator: Accumulator, *, progress: bool, ping: bool) -> None:
        """A chunk came."""
        now = self._clock.monotonic()
        nearer = False
        self._dog.wire(now, ping=ping)
        if progress and accumulator.progress is not None:
            self._dog.progress(now, accumulator.progress)
            nearer, self._kind = self._kind is not accumulator.progress, accumulator.progress
        if ping and not self._pings:
            nearer = self._pings = True
        if accumulator.ended and not self._ended:
            self._dog.ended(now)
            nearer = self._ended = True
        if nearer:
            self._timer.cancel()
            self._set()

    def stalled(self) -> Stalled:
        """Say which clock ran out."""
        return Stalled(f"given up: {self.cause}")

    def _set(self) -> None:
        wait = self._dog.deadline().when - self._clock.monotonic()
        self._timer = asyncio.get_running_loop().call_later(max(wait, 0.0), self._ring)

    def _ring(self) -> None:
        deadline = self._dog.deadline()
        if deadline.when > self._clock.monotonic():
            self._set()
            return
        self.cause = deadline.cause
        self._timeout.reschedule(asyncio.get_running_loop().time())


def _limits(target: Target, request: ModelRequest) -> Limits:
    size = len(request.system) + sum(len(message.content) for message in request.messages)
    return limits_for(
        target.settings.timeouts,
        input_tokens=size // _CHARACTERS_PER_TOKEN,
        effort=request.reasoning_effort,
        base_url=target.settings.base_url,
    )
