"""A person who answers, at a terminal or through a pipe."""

import contextlib
import select
import termios
from collections.abc import Iterator
from typing import TextIO

from gateway.errors import HoldfastError
from gateway.operate.setup.asking import Ended, Question

_LOOK_UP = 0.2  # seconds in which Ctrl-C is noticed, whatever else happens at that moment
_MORE_WITHIN = 0.1  # seconds in which the rest of a pasted text arrives


class Terminal:
    """Shows questions and reads lines; see `Asker`."""

    def __init__(self, source: TextIO, screen: TextIO) -> None:
        self._source = source
        self._screen = screen

    def say(self, text: str = "") -> None:
        """See `Asker`."""
        self._write(f"{text}\n")

    def ask(self, question: Question) -> str:
        """See `Asker`."""
        shown = question.shown or (question.default or "")
        prompt = f"{question.words}{f' [{shown}]' if shown else ''}: "
        if question.hidden and self._source.isatty():
            answer = self._secret(question, prompt)
        else:
            self._write(prompt)
            answer = self._line()
        if not self._source.isatty():
            self._write("\n")  # nobody has pressed Enter here
        return answer if answer.strip() else question.default or ""

    def refuse(self, question: Question, error: HoldfastError) -> None:
        """See `Asker`; a person can always be asked again."""
        del question
        for line in error.lines:
            self.say(f"  ✗ {line}")

    def _secret(self, question: Question, prompt: str) -> str:
        """Read a secret; pasted over several lines it is still one."""
        with _no_echo(self._source):  # before anybody could begin to type it
            self._write(prompt)
            answer = self._line()
            while not (answer.strip() and question.whole(answer)) and self._ready(_MORE_WITHIN):
                answer += self._line()
            return answer

    def _ready(self, within: float) -> bool:
        return bool(select.select([self._source], [], [], within)[0])

    def _line(self) -> str:
        while self._source.isatty() and not self._ready(_LOOK_UP):
            pass  # a signal that came just before a read would end it only at the next key
        line = self._source.readline()
        if not line:
            self._write("\n")
            raise Ended
        return line

    def _write(self, text: str) -> None:
        self._screen.write(text)
        self._screen.flush()


@contextlib.contextmanager
def _no_echo(source: TextIO) -> Iterator[None]:
    """Show nothing of what is typed but its end."""
    number = source.fileno()
    usual = termios.tcgetattr(number)
    hidden = [*usual]
    hidden[3] = (usual[3] & ~termios.ECHO) | termios.ECHONL
    termios.tcsetattr(number, termios.TCSADRAIN, hidden)
    try:
        yield
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, usual)
