"""Which model a turn asks at the moment, what is known of it, and who would be next."""

from collections.abc import Sequence

from agent.attempt import AttemptResult
from agent.errors import CannotStream, ContextTooLong, OutputTooLong, Stalled
from agent.model.fallback import FallbackChain
from agent.model.known_models import ModelFacts, model_facts
from agent.model.learned import LearnedTarget, LearnedTargets
from agent.providers.registry import Target
from agent.request import history_plan
from agent.verdict import Capped, Complete, Cut, Empty, SoftComplete

_MIN_ANSWER_TOKENS = 4096  # tokens, where no output limit was set and the service's own was met


class Route:
    """The targets of one turn; `now` is monotonic seconds."""

    def __init__(self, targets: Sequence[Target], learned_targets: LearnedTargets) -> None:
        places = [(t.provider.name, t.settings.base_url or "", t.model) for t in targets]
        self._targets = tuple(targets)
        self._learned = [learned_targets.get(*place) for place in places]
        self._chain = FallbackChain(len(targets), places)
        self._current = 0
        self._output_limits: dict[int, int] = {}  # output limits that services named, by target
        self._request_pending = False  # a request is to follow, or under way

    @property
    def target(self) -> Target:
        """Who is asked."""
        return self._targets[self._current]

    @property
    def learned(self) -> LearnedTarget:
        """What was learned of it by asking it."""
        return self._learned[self._current]

    @property
    def facts(self) -> ModelFacts:
        """What is known of it by its name."""
        return model_facts(self.target.model)

    @property
    def window(self) -> int | None:
        """How many tokens it takes, where that is known."""
        return history_plan.resolve_window(
            self.target.settings.context_window, self.learned.context_window, self.facts
        )

    @property
    def has_fallback(self) -> bool:
        """Somebody else can be asked."""
        return self._chain.has_other(self._current)

    def mark_failed(self) -> None:
        """Ask this one no more in this turn."""
        self._chain.mark_failed(self._current)

    def choose_target(self, now: float) -> str | None:
        """Settle on whom to ask; when it is another one than before, the label of that one."""
        chosen = self._chain.pick(
            lambda index: self._learned[index].breaker.allows_request(now), self._current
        )
        self._request_pending = True
        if chosen is None or chosen == self._current:
            return None
        before, self._current = self.target.label, chosen
        return before

    def should_stream(self, now: float) -> bool:
        """Whether to ask for a stream."""
        return self.learned.should_stream(now)

    def raised_cap(self, cap: int | None, result: AttemptResult) -> int:
        """Twice the output limit that was met, as far as the model can go."""
        before = cap or self.target.settings.max_output_tokens
        if before is None:
            before = max(result.usage.output_tokens, _MIN_ANSWER_TOKENS // 2)
        most = self._output_limit or self.facts.max_output
        return max(before, min(2 * before, most or 2 * before))

    @property
    def _output_limit(self) -> int | None:
        return self._output_limits.get(self._current)

    def lowered_cap(self, cap: int | None) -> int:
        """Half of an output limit that was too much, where the service does not say what it takes."""
        before = cap or self.target.settings.max_output_tokens or self.facts.max_output
        return max(_MIN_ANSWER_TOKENS // 4, (before or 2 * _MIN_ANSWER_TOKENS) // 2)

    @property
    def max_output(self) -> int | None:
        """The output limit to ask for: as configured, or less where that was refused in this turn."""
        limits = (self.target.settings.max_output_tokens, self._output_limit)
        return min((limit for limit in limits if limit is not None), default=None)

    def record_result(self, result: AttemptResult, now: float, *, unmarked_end: bool) -> None:
        """What a request shows about the model, for all conversations.

        `bare_end`: a text that had ended without a word proved to be whole.
        """
        known = self.learned
        self._request_pending = False
        match result.verdict:
            case Complete() | SoftComplete() | Capped() | Empty():
                known.breaker.record_success(now)
            case Cut(error=Stalled()):
                known.breaker.record_stall(now)
            case _:
                known.breaker.record_abandoned(now)
        if result.step.ended:
            known.record_end_marker()
        if unmarked_end:
            known.record_unmarked_end()
        if result.step.unstreamed and known.should_stream(now):
            known.record_no_streaming(now)
        match result.error:
            case CannotStream():
                known.record_no_streaming(now)
            case ContextTooLong(limit=int(limit)):
                known.context_window = limit
            case OutputTooLong(limit=int(limit)):
                # Often it is the room that the conversation leaves: no business of other turns.
                self._output_limits[self._current] = limit
            case _:
                pass

    def release(self, now: float) -> None:
        """Whoever was chosen is not asked any more; a request under way says nothing about it."""
        if self._request_pending:
            self._request_pending = False
            self.learned.breaker.record_abandoned(now)
