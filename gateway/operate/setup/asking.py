"""Sans-IO: what a question is, and who may answer it; yes, numbers and amounts."""

from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

from msgspec import Struct

from gateway.errors import HoldfastError
from sessions.values.spelling import did_you_mean


class AnswerError(HoldfastError):
    """Something is missing or cannot be meant so; asked by nobody, it ends the set-up."""

    exit_code: ClassVar[int] = 2


class InputEnded(HoldfastError):
    """The input ended before everything was answered; nothing was changed."""


NO_CHECK_HINT = "To go on without the check give --no-check."


def _always_complete(_: str) -> bool:
    return True


class SetupQuestion(Struct, frozen=True, kw_only=True):
    """One short line."""

    key: str  # by which flags answer it
    prompt: str
    default: str | None = None  # what Enter means; None: there is no such thing
    shown_default: str = ""  # the default as people read it
    is_secret: bool = False  # the answer is a secret
    missing_message: str = ""  # a sentence for a command line that does not answer it
    hint: str = ""  # what a command line can do whose answer was refused
    must_be_given: bool = (
        False  # a command line must answer it, although a person may just press Enter
    )
    is_complete: Callable[[str], bool] = (
        _always_complete  # of a hidden answer: whether all of it is there
    )


class Prompter(Protocol):
    """Who answers."""

    def say(self, text: str = "") -> None:
        """Tell something."""
        ...

    def ask(self, question: SetupQuestion) -> str:
        """Get an answer; "" or the default for none. Raises `AnswerError` and `Ended`."""
        ...

    def reject(self, question: SetupQuestion, error: HoldfastError) -> None:
        """Tell that the last answer does not do; raises where nobody can give another."""
        ...


def confirm(
    prompter: Prompter, key: str, prompt: str, *, default: bool, missing_message: str = ""
) -> bool:
    """Ask for yes or no."""
    usual = "yes" if default else "no"
    question = SetupQuestion(
        key=key,
        prompt=prompt,
        default=usual,
        shown_default="Y/n" if default else "y/N",
        missing_message=missing_message,
    )
    while True:
        answer = prompter.ask(question).strip().lower()
        for word in ("yes", "no"):
            if answer and word.startswith(answer):
                return word == "yes"
        prompter.reject(question, AnswerError("Please answer yes or no."))


def choose(
    prompter: Prompter,
    question: SetupQuestion,
    options: Sequence[str],
    *,
    unlisted: Sequence[str] = (),
) -> str:
    """Ask for one of several by number or by name; `more` can be named, and are not shown."""
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
        words = f"Please give a number from 1 to {len(options)}, or a name{hint}."
        prompter.reject(question, AnswerError(words))


def parse_dollars(text: str) -> float | None:
    """Read an amount such as `$2.50`; None for nothing. Raises `ValueError`."""
    bare = text.strip().removeprefix("$").removesuffix("$").strip().replace(",", ".")
    if not bare:
        return None
    amount = float(bare)
    if not 0 <= amount < float("inf"):
        raise ValueError(text)
    return amount
