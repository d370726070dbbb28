"""Sans-IO: questions and the protocol of their prompters; yes/no, lists and amounts."""

from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

from msgspec import Struct

from gateway.errors import HoldfastError
from sessions.values.spelling import did_you_mean

NO_CHECK_HINT = "To continue without the check, use --no-check."


class AnswerError(HoldfastError):
    """An answer is missing or invalid; without a person to ask again, the set-up ends."""

    exit_code: ClassVar[int] = 2


class InputEnded(HoldfastError):
    """The input ended before all questions were answered. Nothing was changed."""


class SetupStopped(HoldfastError):
    """Setup was stopped. Nothing was changed."""


def _always_complete(_: str) -> bool:
    return True


class SetupQuestion(Struct, frozen=True, kw_only=True):
    """A question that is answered with one short line."""

    key: str  # identifies the question for flags
    prompt: str
    default: str | None = None  # the answer when Enter is pressed; None: an answer is required
    shown_default: str = ""  # the default as shown to people
    is_secret: bool = False
    missing_message: str = ""  # error for a command line without an answer
    hint: str = ""  # advice for a command line whose answer was rejected
    must_be_given: bool = False  # the command line must answer despite the default
    is_extra: bool = False  # a command line with other answers gets the default
    is_complete: Callable[[str], bool] = _always_complete
    """Returns True once a hidden answer is complete."""


class Prompter(Protocol):
    """Source of answers: a person or the command line."""

    def say(self, text: str = "") -> None:
        """Show a line."""
        ...

    def warn(self, text: str) -> None:
        """Show a warning, and keep the text for `--json`."""
        ...

    def ask(self, question: SetupQuestion) -> str:
        """Return an answer, or the default. Raises `AnswerError` and `InputEnded`."""
        ...

    def reject(self, question: SetupQuestion, error: HoldfastError) -> None:
        """Report an invalid answer; raise the error if no other answer can be given."""
        ...


def confirm(
    prompter: Prompter, key: str, prompt: str, *, default: bool, missing_message: str = ""
) -> bool:
    """Ask a yes/no question."""
    usual = "yes" if default else "no"
    question = SetupQuestion(
        key=key,
        prompt=prompt,
        default=usual,
        shown_default="Y/n" if default else "y/N",
        missing_message=missing_message,
    )
    while True:
        answer = parse_yes_no(prompter.ask(question))
        if answer is not None:
            return answer
        prompter.reject(question, AnswerError("Please answer yes or no."))


def parse_yes_no(answer: str) -> bool | None:
    """Return True for yes, False for no, each also shortened; None for anything else."""
    text = answer.strip().lower()
    for word in ("yes", "no"):
        if text and word.startswith(text):
            return word == "yes"
    return None


def choose(
    prompter: Prompter,
    question: SetupQuestion,
    options: Sequence[str],
    *,
    unlisted: Sequence[str] = (),
) -> str:
    """Ask for one option by number or name; `unlisted` options are accepted but not shown."""
    for number, option in enumerate(options, start=1):
        prompter.say(f"  {number:>2}  {option}")
    names = [*options, *unlisted]
    while True:
        answer = prompter.ask(question).strip()
        if answer in names:
            return answer
        if answer.isdecimal() and 0 < int(answer) <= len(options):
            return options[int(answer) - 1]
        hint = did_you_mean(answer, names) if answer else ""
        words = f"Please enter a number from 1 to {len(options)}, or a name{hint}."
        prompter.reject(question, AnswerError(words))


def parse_dollars(text: str) -> float | None:
    """Parse an amount such as `$2.50`; return None for an empty text. Raises `ValueError`."""
    bare = text.strip().removeprefix("$").removesuffix("$").strip().replace(",", ".")
    if not bare:
        return None
    amount = float(bare)
    if not 0 <= amount < float("inf"):
        raise ValueError(text)
    return amount
