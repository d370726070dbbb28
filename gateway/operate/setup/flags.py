"""The command line that answers, and nobody else, or a person where it does not."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from gateway.config.values import read_text
from gateway.errors import HoldfastError
from gateway.operate.setup.asking import Asker, Question, Unanswered

_PLACE = re.compile(r"env:.+|file:.+|-", re.DOTALL)


class Flags:
    """Answers by key; what is not among them `otherwise` answers, if anybody. See `Asker`."""

    def __init__(
        self,
        answers: Mapping[str, str],
        say: Callable[[str], None],
        otherwise: Asker | None = None,
    ) -> None:
        self._answers = dict(answers)
        self._say = say
        self._otherwise = otherwise

    def say(self, text: str = "") -> None:
        """See `Asker`."""
        self._say(text)

    def ask(self, question: Question) -> str:
        """See `Asker`."""
        if question.key in self._answers:
            return self._answers[question.key]
        if self._otherwise:
            return self._otherwise.ask(question)
        if question.default is None or question.insists:
            raise Unanswered(question.missing)
        return question.default

    def refuse(self, question: Question, error: HoldfastError) -> None:
        """See `Asker`; what the command line said cannot be said otherwise."""
        if question.key in self._answers or self._otherwise is None:
            raise type(error)(*error.lines, question.hint) if question.hint else error
        self._otherwise.refuse(question, error)


def secret_of(flag: str, written: str, environ: Mapping[str, str], read: Callable[[], str]) -> str:
    """Fetch a secret from where a flag says it lies; `read` gives the standard input."""
    if not _PLACE.fullmatch(written):
        msg = (
            f"{flag} takes env:NAME, file:PATH or - (the standard input), never the secret "
            "itself: others can see command lines, and shells keep them."
        )
        raise Unanswered(msg)
    kind, _, name = written.partition(":")
    match kind:
        case "env":
            found, otherwise = environ.get(name, ""), f"{name} is not set"
        case "file":
            found, otherwise = read_text(Path(name).expanduser())
        case _:
            found, otherwise = read(), "nothing came in"
    if not found.strip():
        msg = f"{flag} {written}: {otherwise}."
        raise Unanswered(msg)
    return found
