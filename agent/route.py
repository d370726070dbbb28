"""Which model a turn asks at the moment, what is known of it, and who would be next."""

from collections.abc import Sequence

from agent.attempt import AttemptResult
from agent.errors import CannotStream, ContextTooLong, OutputTooLong, Stalled
from agent.model.fallback import Chain
from agent.model.known_models import Facts, facts
from agent.model.learned import Experience, Learned
from agent.providers.registry import Target
from agent.request import history_plan
from agent.verdict import Capped, Complete, Cut, Empty, SoftComplete

_SMALLEST_ANSWER = 4096  # tokens, where no output limit was set and the service's own was met


class Route:
    """The targets of one turn; `now` is monotonic seconds."""

    def __init__(self, targets: Sequence[Target], experience: Experience) -> None:
        places = [(t.provider.name, t.settings.base_url or "", t.model) for t in targets]
        self._targets = tuple(targets)
        self._learned = [experience.of(*place) for place in places]
        self._chain = Chain(len(targets), places)
        self._current = 0
        self._most_outputs: dict[int, int] = {}  # output limits that services named, by target
        self._asking = False  # a request is to follow, or under way

    @property
    def target(self) -> Target:
        """Who is asked."""
        return self._targets[self._current]

    @property
    def known(self) -> Learned:
        """What was learned of it by asking it."""
        return self._learned[self._current]

    @property
    def facts(self) -> Facts:
        """What is known of it by its name."""
        return facts(self.target.model)

    @property
    def window(self) -> int | None:
        """How many tokens it takes, where that is known."""
        return history_plan.window_of(
            self.target.settings.context_window, self.known.window, self.facts
        )

    @property
    def has_other(self) -> bool:
        """Somebody else can be asked."""
        return self._chain.has_other(self._current)

    def leave(self) -> None:
        """Ask this one no more in this turn."""
        self._chain.failed(self._current)

    def choose(self, now: float) -> str | None:
        """Settle on whom to ask; when it is another one than before, the label of that one."""
        chosen = self._chain.pick(
            lambda index: self._learned[index].breaker.allows(now), self._current
        )
        self._asking = True
        if chosen is None or chosen == self._current:
            return None
        before, self._current = self.target.label, chosen
        return before

    def streams(self, now: float) -> bool:
        """Whether to ask for a stream."""
        return self.known.streams(now)

    def raised_cap(self, cap: int | None, result: AttemptResult) -> int:
        """Twice the output limit that was met, as far as the model can go."""
        before = cap or self.target.settings.max_output_tokens
        if before is None:
            before = max(result.usage.output_tokens, _SMALLEST_ANSWER // 2)
        most = self._most_output or self.facts.max_output
        return max(before, min(2 * before, most or 2 * before))

    @property
    def _most_output(self) -> int | None:
        return self._most_outputs.get(self._current)

    def lowered_cap(self, cap: int | None) -> int:
        """Half of an output limit that was too much, where the service does not say what it takes."""
        before = cap or self.target.settings.max_output_tokens or self.facts.max_output
        return max(_SMALLEST_ANSWER // 4, (before or 2 * _SMALLEST_ANSWER) // 2)

    @property
    def max_output(self) -> int | None:
        """The output limit to ask for: as configured, or less where that was refused in this turn."""
        limits = (self.target.settings.max_output_tokens, self._most_output)
        return min((limit for limit in limits if limit is not None), default=None)

    def learn(self, result: AttemptResult, now: float, *, bare_end: bool) -> None:
        """What a request shows about the model, for all conversations.

        `bare_end`: a text that had ended without a word proved to be whole.
        """
        known = self.known
        self._asking = False
        match result.verdict:
            case Complete() | SoftComplete() | Capped() | Empty():
                known.breaker.succeeded(now)
            case Cut(error=Stalled()):
                known.breaker.killed(now)
            case _:
                known.breaker.given_up(now)
        if result.step.ended:
            known.terminator()
        if bare_end:
            known.bare_end()
        if result.step.whole and known.streams(now):
            known.cannot_stream(now)
        match result.error:
            case CannotStream():
                known.cannot_stream(now)
            case ContextTooLong(limit=int(limit)):
                known.window = limit
            case OutputTooLong(limit=int(limit)):
                # Often it is the room that the conversation leaves: no business of other turns.
                self._most_outputs[self._current] = limit
            case _:
                pass

    def stopped(self, now: float) -> None:
        """Whoever was chosen is not asked any more; a request under way says nothing about it."""
        if self._asking:
            self._asking = False
            self.known.breaker.given_up(now)
