"""A person who answers, at a terminal or through a pipe."""

import contextlib
import select
import termios
from collections.abc import Iterator
from typing import TextIO

from gateway.errors import HoldfastError
from gateway.operate.setup.asking import InputEnded, SetupQuestion

_POLL_SECONDS = 0.2  # seconds in which Ctrl-C is noticed, whatever else happens at that moment
_PASTE_SECONDS = 0.1  # seconds in which the rest of a pasted text arrives


class TerminalPrompter:
    """Shows questions and reads lines; see `Asker`."""

    def __init__(self, source: TextIO, screen: TextIO) -> None:
        self._source = source
        self._screen = screen

    def say(self, text: str = "") -> None:
        """See `Asker`."""
        self._write(f"{text}\n")

    def ask(self, question: SetupQuestion) -> str:
        """See `Asker`."""
        shown = question.shown_default or (question.default or "")
        prompt = f"{question.prompt}{f' [{shown}]' if shown else ''}: "
        if question.is_secret and self._source.isatty():
            answer = self._read_secret(question, prompt)
        else:
            self._write(prompt)
            answer = self._read_line()
        if not self._source.isatty():
            self._write("\n")  # nobody has pressed Enter here
        return answer if answer.strip() else question.default or ""

    def reject(self, question: SetupQuestion, error: HoldfastError) -> None:
        """See `Asker`; a person can always be asked again."""
        del question
        for line in error.lines:
            self.say(f"  ✗ {line}")

    def _read_secret(self, question: SetupQuestion, prompt: str) -> str:
        """Read a secret; pasted over several lines it is still one."""
        with _without_echo(self._source):  # before anybody could begin to type it
            self._write(prompt)
            answer = self._read_line()
            while not (answer.strip() and question.is_complete(answer)) and self._has_input(
                _PASTE_SECONDS
            ):
                answer += self._read_line()
            return answer

    def _has_input(self, timeout_seconds: float) -> bool:
        return bool(select.select([self._source], [], [], timeout_seconds)[0])

    def _read_line(self) -> str:
        while self._source.isatty() and not self._has_input(_POLL_SECONDS):
            pass  # a signal that came just before a read would end it only at the next key
        line = self._source.readline()
        if not line:
            self._write("\n")
            raise InputEnded
        return line

    def _write(self, text: str) -> None:
        self._screen.write(text)
        self._screen.flush()


@contextlib.contextmanager
def _without_echo(source: TextIO) -> Iterator[None]:
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
