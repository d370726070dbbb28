"""Route of a turn: the current target, the facts known about it, and the switch to a fallback."""

from collections.abc import Sequence

from agent.attempt import AttemptResult
from agent.errors import CannotStream, ContextTooLong, OutputTooLong, Stalled
from agent.model.fallback import FallbackChain
from agent.model.known_models import ModelFacts, model_facts
from agent.model.learned import LearnedTarget, LearnedTargets
from agent.providers.registry import Target
from agent.request import history_plan
from agent.verdict import Capped, Complete, Cut, Empty, Interrupted, ModelRefused, SoftComplete

_MIN_ANSWER_TOKENS = 4096  # assumed output limit if none is configured or known


class Route:
    """The targets of one turn; `now` is monotonic seconds."""

    def __init__(self, targets: Sequence[Target], learned_targets: LearnedTargets) -> None:
        keys = [(t.provider.name, t.settings.base_url or "", t.model) for t in targets]
        self._targets = tuple(targets)
        self._learned = [learned_targets.get(*key) for key in keys]
        self._chain = FallbackChain(len(targets), keys)
        self._current = 0
        self._output_limits: dict[int, int] = {}  # limits from services' errors, by target index
        self._request_pending = False  # a target was chosen and its result is not recorded yet

    @property
    def target(self) -> Target:
        """The current target."""
        return self._targets[self._current]

    @property
    def learned(self) -> LearnedTarget:
        """Facts learned about the current target."""
        return self._learned[self._current]

    @property
    def facts(self) -> ModelFacts:
        """Facts known from the model's name."""
        return model_facts(self.target.model)

    @property
    def supports_prefill(self) -> bool:
        """True if the current target continues a final assistant message."""
        return self.facts.supports_prefill and not self.learned.ignores_prefill

    @property
    def window(self) -> int | None:
        """Context window of the current target in tokens; None if unknown."""
        return history_plan.resolve_window(
            self.target.settings.context_window, self.learned.context_window, self.facts
        )

    @property
    def has_fallback(self) -> bool:
        """True if another target can be tried."""
        return self._chain.has_other(self._current)

    def mark_failed(self) -> None:
        """Exclude the current target for the rest of the turn."""
        self._chain.mark_failed(self._current)

    def choose_target(self, now: float) -> str | None:
        """Pick the target of the next request; return the previous target's label if it changed."""
        chosen = self._chain.pick(
            lambda index: self._learned[index].breaker.allows_request(now), self._current
        )
        self._request_pending = True
        if chosen is None or chosen == self._current:
            return None
        before, self._current = self.target.label, chosen
        return before

    def should_stream(self, now: float) -> bool:
        """Return True if the next request should ask for a stream."""
        return self.learned.should_stream(now)

    def raised_cap(self, cap: int | None, result: AttemptResult) -> int:
        """Return twice the output limit that was hit, up to the model's maximum."""
        before = cap or self.target.settings.max_output_tokens
        if before is None:
            before = max(result.usage.output_tokens, _MIN_ANSWER_TOKENS // 2)
        maximum = self._output_limit or self.facts.max_output
        return max(before, min(2 * before, maximum or 2 * before))

    @property
    def _output_limit(self) -> int | None:
        return self._output_limits.get(self._current)

    def lowered_cap(self, cap: int | None) -> int:
        """Return half of a rejected output limit, for services that do not report their maximum."""
        before = cap or self.target.settings.max_output_tokens or self.facts.max_output
        return max(_MIN_ANSWER_TOKENS // 4, (before or 2 * _MIN_ANSWER_TOKENS) // 2)

    @property
    def max_output(self) -> int | None:
        """Output limit to request: the configured one, or a lower one after a rejection."""
        limits = (self.target.settings.max_output_tokens, self._output_limit)
        return min((limit for limit in limits if limit is not None), default=None)

    def record_result(self, result: AttemptResult, now: float, *, unmarked_end: bool) -> None:
        """Record facts learned from a request, for all conversations.

        `unmarked_end` means that a text without an end marker proved to be complete.
        """
        learned = self.learned
        self._request_pending = False
        match result.verdict:
            case Complete() | SoftComplete() | Capped() | Empty():
                learned.breaker.record_success(now)
            case Cut(error=Stalled()):
                learned.breaker.record_stall(now)
            case Cut() | ModelRefused() | Interrupted():
                learned.breaker.record_abandoned(now)
        if result.step.ended:
            learned.record_end_marker()
        if unmarked_end:
            learned.record_unmarked_end()
        if result.step.unstreamed and learned.should_stream(now):
            learned.record_no_streaming(now)
        match result.error:
            case CannotStream():
                learned.record_no_streaming(now)
            case ContextTooLong(limit=int(limit)):
                learned.context_window = limit
            case OutputTooLong(limit=int(limit)):
                # The limit often depends on the length of this conversation: keep it to this turn.
                self._output_limits[self._current] = limit
            case _:
                pass

    def release(self, now: float) -> None:
        """End the turn: free the breaker's probe if the chosen target has no recorded result."""
        if self._request_pending:
            self._request_pending = False
            self.learned.breaker.record_abandoned(now)
