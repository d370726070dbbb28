"""The command line that answers, and nobody else, or a person where it does not."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from gateway.config.values import read_text
from gateway.errors import HoldfastError
from gateway.operate.setup.asking import AnswerError, Prompter, SetupQuestion

_SECRET_SOURCE = re.compile(r"env:.+|file:.+|-", re.DOTALL)


class FlagPrompter:
    """Answers by key; what is not among them `otherwise` answers, if anybody. See `Asker`."""

    def __init__(
        self,
        answers: Mapping[str, str],
        say: Callable[[str], None],
        fallback: Prompter | None = None,
    ) -> None:
        self._answers = dict(answers)
        self._say = say
        self._fallback = fallback

    def say(self, text: str = "") -> None:
        """See `Asker`."""
        self._say(text)

    def ask(self, question: SetupQuestion) -> str:
        """See `Asker`."""
        if question.key in self._answers:
            return self._answers[question.key]
        if self._fallback:
            return self._fallback.ask(question)
        if question.default is None or question.must_be_given:
            raise AnswerError(question.missing_message)
        return question.default

    def reject(self, question: SetupQuestion, error: HoldfastError) -> None:
        """See `Asker`; what the command line said cannot be said otherwise."""
        if question.key in self._answers or self._fallback is None:
            raise type(error)(*error.lines, question.hint) if question.hint else error
        self._fallback.reject(question, error)


def read_secret(
    flag: str, source: str, environ: Mapping[str, str], read_stdin: Callable[[], str]
) -> str:
    """Fetch a secret from where a flag says it lies; `read` gives the standard input."""
    if not _SECRET_SOURCE.fullmatch(source):
        msg = (
            f"{flag} takes env:NAME, file:PATH or - (the standard input), never the secret "
            "itself: others can see command lines, and shells keep them."
        )
        raise AnswerError(msg)
    kind, _, name = source.partition(":")
    match kind:
        case "env":
            found, otherwise = environ.get(name, ""), f"{name} is not set"
        case "file":
            found, otherwise = read_text(Path(name).expanduser())
        case _:
            found, otherwise = read_stdin(), "nothing came in"
    if not found.strip():
        msg = f"{flag} {source}: {otherwise}."
        raise AnswerError(msg)
    return found
