"""Sans-IO: what to do after a request to a model has been judged."""

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

MOST_RETRIES = 2
LONGEST_WAIT = 60.0
_LONGEST_BACKOFF = 30.0


class Counters(msgspec.Struct, frozen=True):
    """What a step has been through; a step starts with fresh ones."""

    retries: int = 0
    shown: bool = False  # text of this step can be seen: it cannot be asked for again
    calls: bool = False  # the answer holds tool calls
    backoff: float = 1.0  # the first wait, in seconds


class Finish(msgspec.Struct, frozen=True):
    """This is the final answer."""


class RunTools(msgspec.Struct, frozen=True):
    """The answer is whole and asks for tools."""


class Retry(msgspec.Struct, frozen=True):
    """Ask the same again after `wait` seconds; `exact` waits are not to be spread."""

    wait: float
    exact: bool = False


class GiveUp(msgspec.Struct, frozen=True):
    """The turn ends here; `cause` says why, in words for people."""

    cause: str


Action = Finish | RunTools | Retry | GiveUp


def next_action(verdict: Verdict, counters: Counters) -> Action:
    """Decide. What was shown is never asked for twice, and nothing is repeated without a limit."""
    match verdict:
        case Complete() | SoftComplete():
            return RunTools() if counters.calls else Finish()
        case Refused():
            return GiveUp("the model declined to answer")
        case Capped():
            return GiveUp("the answer met the model's output limit before it was finished")
        case Interrupted():
            return GiveUp("it was stopped")
        case Empty():
            again = GiveUp("the model sent an empty answer")
            return again if counters.retries else Retry(0.0)
        case Cut(phase, error):
            return _after_cut(phase, error, counters)


def _after_cut(phase: Phase, error: ProviderError | None, counters: Counters) -> Action:
    cause = cause_of(error)
    if counters.shown or counters.retries >= MOST_RETRIES:
        return GiveUp(cause)
    match error:
        case (
            errors.Unauthorized()
            | errors.OutOfCredit()
            | errors.BadRequest()
            | errors.ContextTooLong()
        ):
            return GiveUp(cause)
        case errors.RateLimited(retry_after=wait) | errors.Overloaded(retry_after=wait) if (
            wait is not None
        ):
            return Retry(wait, exact=True) if wait <= LONGEST_WAIT else GiveUp(cause)
        case errors.Stalled() if phase is Phase.BEFORE_FIRST and not counters.retries:
            return Retry(0.0)  # we have waited long enough already
        case _:
            return Retry(min(counters.backoff * 2**counters.retries, _LONGEST_BACKOFF))


def cause_of(error: ProviderError | None) -> str:
    """Put an error into words for people, as the end of a sentence."""
    match error:
        case None | errors.Cut():
            return "the connection to the model broke off"
        case errors.Stalled():
            return "the model stopped sending"
        case errors.RateLimited():
            return "the model service asks us to slow down"
        case errors.Overloaded():
            return f"the model service cannot be reached or is overloaded ({error})"
        case errors.ContextTooLong():
            return "the conversation has become too long for the model"
        case errors.Unauthorized():
            return "the model service does not accept our key"
        case errors.OutOfCredit():
            return "the account at the model service is empty"
        case _:
            return f"the model service refused the request ({error})"
