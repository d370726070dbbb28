"""Prompter for a person, at a terminal or through a pipe."""

import contextlib
import select
import termios
from collections.abc import Iterator
from typing import TextIO

from gateway.errors import HoldfastError
from gateway.operate.setup.asking import InputEnded, SetupQuestion

_POLL_SECONDS = 0.2  # longest delay until Ctrl-C is noticed
_PASTE_SECONDS = 0.1  # longest pause inside a pasted text


class TerminalPrompter:
    """Shows questions and reads lines; see `Prompter`."""

    def __init__(self, source: TextIO, screen: TextIO) -> None:
        self._source = source
        self._screen = screen

    def say(self, text: str = "") -> None:
        """See `Prompter`."""
        self._write(f"{text}\n")

    def warn(self, text: str) -> None:
        """See `Prompter`."""
        self.say(f"  ! {text}")

    def ask(self, question: SetupQuestion) -> str:
        """See `Prompter`."""
        shown = question.shown_default or (question.default or "")
        prompt = f"{question.prompt}{f' [{shown}]' if shown else ''}: "
        if question.is_secret and self._source.isatty():
            answer = self._read_secret(question, prompt)
        else:
            self._write(prompt)
            answer = self._read_line()
        if not self._source.isatty():
            self._write("\n")  # a pipe echoes no Enter
        return answer if answer.strip() else question.default or ""

    def reject(self, question: SetupQuestion, error: HoldfastError) -> None:
        """See `Prompter`; a person can always be asked again."""
        del question
        for line in error.lines:
            self.say(f"  ✗ {line}")

    def _read_secret(self, question: SetupQuestion, prompt: str) -> str:
        """Read a hidden secret; a secret pasted over several lines is joined."""
        with _without_echo(self._source):  # before the prompt, so that no typed key is shown
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
            pass  # a signal just before a blocking read would take effect only at the next key
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
    """Hide typed characters, except the newline."""
    descriptor = source.fileno()
    usual = termios.tcgetattr(descriptor)
    hidden = [*usual]
    hidden[3] = (usual[3] & ~termios.ECHO) | termios.ECHONL
    termios.tcsetattr(descriptor, termios.TCSADRAIN, hidden)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, usual)
