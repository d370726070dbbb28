"""Prompter that answers from the command line, with a person as optional fallback."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from gateway.config.values import read_text
from gateway.errors import HoldfastError
from gateway.operate.setup.asking import AnswerError, Prompter, SetupQuestion

_SECRET_SOURCE = re.compile(r"env:.+|file:.+|-", re.DOTALL)


class FlagPrompter:
    """Answers by question key; other questions go to `fallback`. See `Prompter`."""

    def __init__(
        self,
        answers: Mapping[str, str],
        say: Callable[[str], None],
        fallback: Prompter | None = None,
    ) -> None:
        self._answers = dict(answers)
        self._say = say
        self._fallback = fallback
        self.warnings: list[str] = []

    def say(self, text: str = "") -> None:
        """See `Prompter`."""
        self._say(text)

    def warn(self, text: str) -> None:
        """See `Prompter`."""
        self.warnings.append(text)
        self._say(f"  ! {text}")

    def ask(self, question: SetupQuestion) -> str:
        """See `Prompter`."""
        if question.key in self._answers:
            return self._answers[question.key]
        if question.is_extra and question.default is not None and self._answers:
            return question.default
        if self._fallback:
            return self._fallback.ask(question)
        if question.default is None or question.must_be_given:
            raise AnswerError(question.missing_message)
        return question.default

    def reject(self, question: SetupQuestion, error: HoldfastError) -> None:
        """See `Prompter`; raise the error if the answer came from the command line."""
        if question.key in self._answers or self._fallback is None:
            raise type(error)(*error.lines, question.hint) if question.hint else error
        self._fallback.reject(question, error)


def read_secret(
    flag: str, source: str, environ: Mapping[str, str], read_stdin: Callable[[], str]
) -> str:
    """Read a secret from the source given by a flag."""
    if not _SECRET_SOURCE.fullmatch(source):
        msg = (
            f"{flag} takes env:NAME, file:PATH or - (standard input), never the secret itself: "
            "other users can see command lines, and shells store them."
        )
        raise AnswerError(msg)
    kind, _, name = source.partition(":")
    match kind:
        case "env":
            found, problem = environ.get(name, ""), f"{name} is not set"
        case "file":
            found, problem = read_text(Path(name).expanduser())
        case _:
            found, problem = read_stdin(), "standard input is empty"
    if not found.strip():
        msg = f"{flag} {source}: {problem}."
        raise AnswerError(msg)
    return found
