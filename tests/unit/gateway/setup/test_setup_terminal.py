import io
import os
import pty
import termios
from collections.abc import Iterator
from typing import TextIO

import pytest

from gateway.errors import HoldfastError
from gateway.operate.setup.asking import InputEnded, SetupQuestion
from gateway.operate.setup.terminal import TerminalPrompter

TOKEN = SetupQuestion(
    key="t", prompt="Token", is_secret=True, is_complete=lambda text: "end" in text
)


class Screen(io.StringIO):
    """Records whether echo is on when a prompt is shown."""

    def __init__(self, keyboard: TextIO) -> None:
        super().__init__()
        self.echoes: list[bool] = []
        self._keyboard = keyboard

    def write(self, text: str) -> int:
        self.echoes.append(echoes(self._keyboard))
        return super().write(text)


def echoes(keyboard: TextIO) -> bool:
    flags: int = termios.tcgetattr(keyboard.fileno())[3]
    return bool(flags & termios.ECHO)


@pytest.fixture
def line() -> Iterator[tuple[int, TextIO]]:
    """Yield both ends of a pseudo-terminal: the keyboard and the program's side."""
    typing, reading = pty.openpty()
    with os.fdopen(reading) as keyboard:
        yield typing, keyboard
    os.close(typing)


def piped(text: str) -> tuple[TerminalPrompter, io.StringIO]:
    screen = io.StringIO()
    return TerminalPrompter(io.StringIO(text), screen), screen


def test_a_question_shows_its_default() -> None:
    terminal, screen = piped("x\n\n\n")
    assert terminal.ask(SetupQuestion(key="a", prompt="First")) == "x\n"
    assert terminal.ask(SetupQuestion(key="b", prompt="Second", default="usual")) == "usual"
    assert (
        terminal.ask(SetupQuestion(key="c", prompt="Third", default="y", shown_default="keep it"))
        == "y"
    )
    assert screen.getvalue() == "First: \nSecond [usual]: \nThird [keep it]: \n"


def test_input_that_ends_too_early_reports_that_nothing_changed() -> None:
    terminal, _ = piped("")
    with pytest.raises(InputEnded, match="Nothing was changed"):
        terminal.ask(SetupQuestion(key="a", prompt="First", default="usual"))


def test_hidden_answers_can_come_line_by_line_through_a_pipe() -> None:
    terminal, screen = piped("one\ntwo\n")
    assert terminal.ask(TOKEN) == "one\n"
    assert terminal.ask(TOKEN) == "two\n"
    assert "one" not in screen.getvalue()


def test_a_rejection_is_marked() -> None:
    terminal, screen = piped("")
    terminal.reject(TOKEN, HoldfastError("It is wrong.", "Really."))
    terminal.say("  like this")
    assert screen.getvalue() == "  ✗ It is wrong.\n  ✗ Really.\n  like this\n"


def test_a_terminal_hides_secrets_only(line: tuple[int, TextIO]) -> None:
    typing, keyboard = line
    screen = Screen(keyboard)
    terminal = TerminalPrompter(keyboard, screen)
    os.write(typing, b"the end\n")
    assert terminal.ask(TOKEN) == "the end\n"
    assert screen.echoes == [False]
    assert echoes(keyboard)
    os.write(typing, b"yes\n")
    assert terminal.ask(SetupQuestion(key="a", prompt="Open", default="no")) == "yes\n"
    assert screen.echoes == [False, True]


def test_a_secret_pasted_over_several_lines_is_joined(
    line: tuple[int, TextIO],
) -> None:
    typing, keyboard = line
    terminal = TerminalPrompter(keyboard, io.StringIO())
    os.write(typing, b"\n  begin\nmiddle\nend\nyes\n")
    assert terminal.ask(TOKEN) == "\n  begin\nmiddle\nend\n"
    assert terminal.ask(SetupQuestion(key="a", prompt="Open")) == "yes\n"


def test_echo_is_restored_after_an_interrupted_secret(line: tuple[int, TextIO]) -> None:
    typing, keyboard = line
    os.write(typing, b"\x04")  # the end of the input
    with pytest.raises(InputEnded):
        TerminalPrompter(keyboard, io.StringIO()).ask(TOKEN)
    assert echoes(keyboard)
