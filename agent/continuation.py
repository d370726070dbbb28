"""Sans-IO: what to do after a request to a model has been judged.

`Recovery` holds the counters of one step, `Budget` those of the whole turn; both are plain data, so
a step can be replayed from its journal. What was shown is never asked for twice, nothing is repeated
without a limit, and progress gives every limit back.
"""

import enum
from collections.abc import Iterable, Sequence

import msgspec

from agent import errors
from agent.errors import ProviderError
from agent.verdict import (
    Capped,
    Complete,
    Cut,
    Empty,
    Interrupted,
    Phase,
    Refused,
    SoftComplete,
    Verdict,
)

MOST_FAILURES = 3  # requests in a row to one target that bring nothing new
MOST_RECOVERIES = 12  # of a turn, without progress
MOST_SECONDS = 1200.0  # of a turn, without progress
MOST_CAPS = 12  # times an answer may meet the output limit
MOST_COMPACTIONS = 3
PROGRESS = 200  # new characters that count as progress
LONGEST_WAIT = 60.0  # for a service that says when to come again, while another one is there
LONGEST_LONELY_WAIT = 600.0  # the same when nobody else can be asked
CALL_LIMIT = 8  # thousand tokens of arguments that a model is asked to stay below
_LONGEST_BACKOFF = 30.0
_SMALL = 2048  # characters of a call that may simply be asked for again
_HARD_LIMIT_AT = 2  # losses of one tool after which its long parameter is limited by schema
_WITHHELD_AT = 4  # losses after which it is not offered


class Kind(enum.StrEnum):
    """What a continuation has to explain."""

    CAP = "cap"  # the answer met the output limit
    NETWORK = "network"  # the connection broke
    CALLS = "calls"  # a tool call behind the text was lost


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What one request came to, as far as it matters here."""

    verdict: Verdict
    grown: int = 0  # visible characters that are new
    repeated: bool = False  # it went on with a text that was shown, and added nothing
    unheard: bool = False  # it said something else instead, where what is shown cannot be changed
    shown: bool = False  # text of this step can be seen
    ready: int = 0  # calls that may go to the gate
    lost: tuple[str, ...] = ()  # tools whose calls were cut off
    lost_size: int = 0  # characters received of these
    unsealed: tuple[
        str, ...
    ] = ()  # tools whose calls are whole, but nothing proves that they ended
    drafted: int = 0  # characters that were kept of cut files
    thought: bool = False  # it gave reasoning
    said: bool = False  # it gave text
    announced: bool = False  # it only says what it will do, and the model is known for that
    after_tools: bool = False  # the step follows tool results
    others: bool = False  # another target can be asked


# --- what follows ------------------------------------------------------------------------------


class Finish(msgspec.Struct, frozen=True):
    """This is the final answer."""


class RunTools(msgspec.Struct, frozen=True):
    """Run what may run; calls that were lost are reported with the next request."""


class Again(msgspec.Struct, frozen=True, kw_only=True):
    """Ask again after `wait` seconds; text that is shown is carried on, not asked for anew."""

    wait: float = 0.0
    exact: bool = False  # the wait is not to be spread
    kind: Kind = Kind.NETWORK
    raise_cap: bool = False
    lower_cap: int | None = None  # the most that the service gives, in tokens; 0: half of before
    lower_effort: bool = False
    unstreamed: bool = False
    nudge: bool = False  # say that an answer is still missing


class AskSmaller(msgspec.Struct, frozen=True, kw_only=True):
    """Tell the model which calls were lost, and ask for them in smaller parts."""

    wait: float = 0.0
    limit: int = CALL_LIMIT  # thousand tokens for each call
    hard: bool = False  # also limit the long parameter in the tool's schema
    withhold: str = ""  # this tool is not offered
    raise_cap: bool = False


class Reissue(msgspec.Struct, frozen=True):
    """Tell the model that its call has not run, and ask for it again."""

    wait: float = 0.0


class Urge(msgspec.Struct, frozen=True):
    """Ask for what the model said it would do; the text stays, and what follows stands behind it."""


class Compact(msgspec.Struct, frozen=True):
    """Shorten the conversation, then ask again; `limit` is the service's word, in tokens."""

    limit: int | None = None


class Switch(msgspec.Struct, frozen=True):
    """Go to the next target."""

    cause: str


class GiveUp(msgspec.Struct, frozen=True):
    """The turn ends here; `cause` says why, in words for people."""

    cause: str
    notice: str = "N7"
    tell_operator: bool = False
    too_long: bool = False  # it is the conversation: only another one helps


Action = Finish | RunTools | Again | AskSmaller | Reissue | Urge | Compact | Switch | GiveUp


# --- counters ----------------------------------------------------------------------------------


class Budget:
    """What a turn has used up since it last came on."""

    def __init__(self, now: float) -> None:
        self.recoveries = 0
        self.progress_at = now
        self.losses: dict[str, int] = {}  # by tool
        self.compactions = 0
        self.refusals = 0
        self.loops = 0
        self.urged = False  # once in a turn is enough: who does not act then will not
        self._grown = 0

    def came_on(self, now: float, ran: Sequence[str] = ()) -> None:
        """Tools ran, or enough new text or file content came.

        Text alone proves nothing of a conversation that is too long, or of a model that repeats
        itself: there only a tool that ran gives the patience back.
        """
        self.recoveries = self._grown = 0
        self.progress_at = now
        if ran:
            self.compactions = self.refusals = self.loops = 0
        for tool in ran:
            self.losses.pop(tool, None)

    def paused(self, seconds: float) -> None:
        """The model was not waited for: tools ran, or somebody was asked about them."""
        self.progress_at += seconds

    def grew(self, shown: int, drafted: int, now: float) -> bool:
        """Count new characters; true when they are enough to be progress."""
        self._grown += shown + drafted
        if self._grown < PROGRESS:
            return False
        self.came_on(now)
        if drafted:
            self.losses.clear()
        return True

    def lost(self, tools: Iterable[str]) -> int:
        """Count calls that were cut off; gives the count of the worst tool."""
        for tool in dict.fromkeys(tools):
            self.losses[tool] = self.losses.get(tool, 0) + 1
        return max((self.losses[tool] for tool in tools), default=0)

    def smaller(self, tools: Sequence[str]) -> AskSmaller:
        """In which form these calls are asked for: half as much at each loss."""
        worst = max((self.losses.get(tool, 1) for tool in tools), default=1)
        return AskSmaller(
            limit=max(1, CALL_LIMIT >> (worst - 1)),
            hard=worst >= _HARD_LIMIT_AT,
            withhold=next((t for t in tools if self.losses.get(t) == _WITHHELD_AT), ""),
        )

    def is_over(self, now: float) -> bool:
        """Nothing came of too many tries, or for too long."""
        return self.recoveries > MOST_RECOVERIES or now - self.progress_at > MOST_SECONDS


class Recovery:
    """Decides for one step."""

    def __init__(self, budget: Budget, *, backoff: float = 1.0) -> None:
        self._budget = budget
        self._backoff = backoff
        self._caps = 0
        self._repeated = 0
        self._unheard = 0
        self._kind = Kind.NETWORK  # how the present request explains why it goes on with a text
        self._bare = False  # the text broke off without an error
        self.confirmed_bare_end = False
        """A text ended without a word, and its continuation showed that it had been whole."""
        self.new_target()

    def new_target(self) -> None:
        """Another target is asked: it gets the same patience."""
        self._failures = self._empties = self._exhausted = self._limits = 0
        self._unstreamed = False

    def next(self, seen: Seen, now: float) -> Action:
        """Decide; call it once for each request."""
        if self._budget.grew(seen.grown, seen.drafted, now):
            self._failures = 0
        action = self._after(seen)
        if isinstance(action, Again):
            self._kind = action.kind
        if isinstance(action, Finish | RunTools | GiveUp | Urge):
            return action  # nothing is to be recovered
        self._budget.recoveries += 1
        if self._budget.is_over(now):
            return GiveUp(f"nothing came of {self._budget.recoveries} tries in a row")
        return action

    def _after(self, seen: Seen) -> Action:
        match seen.verdict:
            case Complete() | SoftComplete():
                return RunTools() if seen.ready else self._finish(seen)
            case Interrupted():
                return GiveUp("it was stopped")
            case Refused():
                return self._refused(seen)
            case Empty():
                return self._empty(seen)
            case Capped():
                return self._capped(seen)
            case Cut(phase, error):
                return self._cut(phase, error, seen)

    # --- by verdict ----------------------------------------------------------------------------

    def _finish(self, seen: Seen) -> Action:
        if seen.unheard:
            # What is shown is a beginning without its end, whatever was said behind it.
            self._unheard += 1
            if self._unheard == 1:
                return Again(kind=self._kind)
            return self._switch(seen, "the model began its answer anew and did not go on with it")
        if not seen.announced or self._budget.urged:
            return Finish()
        self._budget.urged = True
        return Urge()

    def _refused(self, seen: Seen) -> Action:
        self._budget.refusals += 1
        if seen.others and self._budget.refusals == 1:
            return Switch("the model declined to answer")
        return GiveUp("the model declined to answer", notice="N9")

    def _empty(self, seen: Seen) -> Action:
        if seen.shown:
            return Finish()  # it has nothing to add
        self._empties += 1
        if self._empties == 1:
            return Again()
        if self._empties == 2 and seen.after_tools:  # noqa: PLR2004 - the second time
            return Again(nudge=True)
        return self._switch(seen, "the model sent an empty answer")

    def _capped(self, seen: Seen) -> Action:
        cause = "the answer met the model's output limit before it was finished"
        if seen.ready:
            return RunTools()
        if seen.lost:
            return self._lost(seen, cause, capped=True)
        if seen.unsealed:
            return self._reissue(seen, cause, capped=True)
        if seen.thought and not seen.said:
            self._exhausted += 1
            if self._exhausted == 1:
                return Again(kind=Kind.CAP, raise_cap=True, lower_effort=True)
            return GiveUp("the model used its whole output budget on reasoning", notice="N8")
        self._failures += 1
        self._caps += 1
        if self._caps > MOST_CAPS or self._failures >= MOST_FAILURES:
            return GiveUp(cause)
        return Again(kind=Kind.CAP, raise_cap=True)

    def _cut(self, phase: Phase, error: ProviderError | None, seen: Seen) -> Action:
        if seen.repeated and error is None:
            # It was asked to go on and only said again what was there. Where the text before had
            # ended in the same way, or the second time, there is no more.
            self._repeated += 1
            self.confirmed_bare_end = self._bare
            if self._bare or self._repeated > 1:
                return Finish()
        self._bare = error is None and phase is Phase.TEXT
        by_error = self._by_error(error, seen)
        if by_error is not None:
            return by_error
        cause = cause_of(error)
        if seen.ready:
            return RunTools()
        if seen.lost:
            return self._lost(seen, cause, wait=self._wait(error))
        if seen.unsealed:
            return self._reissue(seen, cause)
        self._failures += 1
        stalled = isinstance(error, errors.Stalled)
        if stalled and phase is Phase.BEFORE_FIRST and self._failures > 1 and seen.others:
            return Switch(cause)
        if self._failures >= MOST_FAILURES:
            return self._switch(seen, cause)
        lower = phase is Phase.REASONING and self._failures > 1
        return Again(wait=self._wait(error), lower_effort=lower)

    def _by_error(self, error: ProviderError | None, seen: Seen) -> Action | None:
        """Decide where the error itself says what to do, whatever was received."""
        cause = cause_of(error)
        match error:
            case errors.Unauthorized() | errors.OutOfCredit():
                return self._switch(seen, cause, tell_operator=True)
            case errors.CannotStream() if not self._unstreamed:
                self._unstreamed = True
                return Again(unstreamed=True)
            case errors.OutputTooLong(limit=limit) if self._limits < MOST_FAILURES:
                self._limits += 1
                return Again(lower_cap=limit or 0)
            case errors.ContextTooLong(limit=limit):
                self._budget.compactions += 1
                if self._budget.compactions > MOST_COMPACTIONS:
                    return GiveUp(cause, too_long=True)
                return Compact(limit)
            case errors.BadRequest() | errors.OutputTooLong():
                return self._switch(seen, cause)
            case errors.Declined():
                return self._refused(seen)
            case errors.Looping(thinking=thinking):
                self._budget.loops += 1
                if self._budget.loops > 1:
                    return self._switch(seen, cause)
                return self._unloop(seen, thinking=thinking)
            case errors.RateLimited(behind=True) if seen.others:
                return Switch(cause)  # our own waiting would not help that service
            case errors.RateLimited(retry_after=wait) | errors.Overloaded(retry_after=wait) if (
                wait is not None and not seen.lost and not seen.ready
            ):
                return self._told_to_wait(wait, cause, seen)
            case _:
                return None

    def _told_to_wait(self, wait: float, cause: str, seen: Seen) -> Action:
        self._failures += 1
        longest = LONGEST_WAIT if seen.others else LONGEST_LONELY_WAIT
        if wait > longest or self._failures >= MOST_FAILURES:
            return self._switch(seen, cause)
        return Again(wait=wait, exact=True)

    def _unloop(self, seen: Seen, *, thinking: bool) -> Action:
        if seen.lost:
            self._budget.lost(seen.lost)
            return self._budget.smaller(seen.lost)
        return Again(lower_effort=thinking)

    # --- calls that did not arrive -------------------------------------------------------------

    def _lost(self, seen: Seen, cause: str, *, capped: bool = False, wait: float = 0.0) -> Action:
        worst = self._budget.lost(seen.lost)
        if worst > _WITHHELD_AT:
            return self._switch(seen, cause)
        first = worst == 1 and not capped and not seen.shown and not seen.drafted
        if first and seen.lost_size < _SMALL:
            return Again(wait=wait)
        if worst == _WITHHELD_AT - 1 and seen.others:
            return Switch(cause)
        smaller = self._budget.smaller(seen.lost)
        return msgspec.structs.replace(smaller, wait=wait, raise_cap=capped)

    def _reissue(self, seen: Seen, cause: str, *, capped: bool = False) -> Action:
        self._failures += 1
        if self._failures < MOST_FAILURES:
            return Reissue()
        # It never gets to the end of this call: it is as good as lost.
        as_lost = msgspec.structs.replace(seen, lost=seen.unsealed, lost_size=_SMALL)
        return self._lost(as_lost, cause, capped=capped)

    # --- parts ---------------------------------------------------------------------------------

    def _switch(self, seen: Seen, cause: str, *, tell_operator: bool = False) -> Switch | GiveUp:
        if seen.others:
            return Switch(cause)
        outage = self._failures >= MOST_FAILURES and not seen.shown
        return GiveUp(cause, tell_operator=tell_operator or outage)

    def _wait(self, error: ProviderError | None) -> float:
        if isinstance(error, errors.Stalled):
            return 0.0  # we have waited long enough already
        longest = max(_LONGEST_BACKOFF, self._backoff)  # who configures more wants more
        return min(self._backoff * 2.0 ** max(0, self._failures - 1), longest)


def cause_of(error: ProviderError | None) -> str:
    """Put an error into words for people, as the end of a sentence."""
    match error:
        case None | errors.Cut():
            return "connection drops on the way to the model"
        case errors.Stalled():
            return "the model stopped sending"
        case errors.Looping():
            return "the model kept repeating itself"
        case errors.RateLimited():
            return "the model service asks us to slow down"
        case errors.Overloaded():
            return f"the model service cannot be reached or is overloaded ({error})"
        case errors.ContextTooLong():
            return "the conversation has become too long for the model"
        case errors.Declined():
            return "the model declined to answer"
        case errors.Unauthorized():
            return "the model service does not accept our key (set another one: model.api_key)"
        case errors.OutOfCredit():
            return "the account at the model service is empty"
        case _:
            return f"the model service refused the request ({error})"
