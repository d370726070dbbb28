"""Input and output of `holdfast chat`."""

import asyncio
import io
import os
import pty
import re
import select
import signal
import termios
import threading
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.operate.cli.terminal import ChatTerminal, Printer, group_messages, render_status_below
from platforms.console import AnswerFrame, NoteFrame, StatusFrame, TerminalFrame, UserFrame


def _printed(*frames: AnswerFrame | NoteFrame | UserFrame, dim: bool = False) -> str:
    printer = Printer(dim=dim)
    return "".join(printer.render_frame(frame) for frame in frames)


@pytest.mark.parametrize(
    ("frames", "text"),
    [
        pytest.param(
            [AnswerFrame(item="a", text="Hello.")], "Hello.\n", id="a whole answer ends its line"
        ),
        pytest.param(
            [AnswerFrame(item="a", text="Hello.\n")], "Hello.\n", id="a line is ended only once"
        ),
        pytest.param(
            [
                AnswerFrame(item="a", text="Hel", done=False),
                AnswerFrame(item="a", text="lo"),
                NoteFrame("Bye."),
            ],
            "Hello\nBye.\n",
            id="pieces follow each other",
        ),
        pytest.param(
            [
                AnswerFrame(item="a", text="Hel", done=False),
                NoteFrame("Slow."),
                AnswerFrame(item="a", text="lo"),
            ],
            "Hel\nSlow.\nlo\n",
            id="a notice has its own line",
        ),
        pytest.param(
            [
                AnswerFrame(item="a", text="One", done=False),
                AnswerFrame(item="b", text="Two"),
                UserFrame("three"),
            ],
            "One\nTwo\n> three\n",
            id="answers do not mix",
        ),
        pytest.param(
            [
                AnswerFrame(item="a", text="Hallo", done=False),
                AnswerFrame(item="a", text="Hello", replaces=True),
            ],
            "Hallo\nHello\n",
            id="a changed answer starts again",
        ),
        pytest.param(
            [
                AnswerFrame(item="a", text="Hello", done=False),
                AnswerFrame(item="a", text="Hello there", replaces=True),
            ],
            "Hello there\n",
            id="what stands there is not said again",
        ),
        pytest.param(
            [
                *(
                    AnswerFrame(item="a", text="Hello there, you", done=False),
                    AnswerFrame(item="b", text="On", done=False),
                ),
                *(
                    AnswerFrame(item="a", text="Hello there", replaces=True),
                    AnswerFrame(item="b", text="e"),
                ),
            ],
            "Hello there, you\nOne\n",
            id="nor what was not quite as long, when a daemon forgot about it",
        ),
        pytest.param(
            [
                *(
                    AnswerFrame(item="a", text="Hello", done=False),
                    NoteFrame("Again."),
                    AnswerFrame(item="b", text="On", done=False),
                ),
                *(
                    AnswerFrame(item="a", text="Hello there", replaces=True),
                    AnswerFrame(item="b", text="e"),
                ),
            ],
            "Hello\nAgain.\nOn\n there\ne\n",
            id="what it lacks follows on a line of its own",
        ),
        pytest.param(
            [AnswerFrame(item="a", text="Yes.", replaces=True, asked="Really?"), NoteFrame("Bye.")],
            "> Really?\nYes.\nBye.\n",
            id="an answer that nobody has seen stands below what it answers",
        ),
        pytest.param(
            [
                AnswerFrame(item="a", text="Ye", done=False),
                AnswerFrame(item="a", text="Yes.", replaces=True, asked="Really?"),
            ],
            "Yes.\n",
            id="one of which some stands there does not say it again",
        ),
        pytest.param([AnswerFrame(item="a", text="")], "", id="nothing is nothing"),
        pytest.param(
            [AnswerFrame(item="a", text="\x1b]0;title\x07\x1b[2Jred\r\ttab\x9b1m")],
            "␛]0;title␇␛[2Jred\n\ttab\ufffd1m\n",
            id="an answer cannot control the terminal",
        ),
    ],
)
def test_frames_become_lines(frames: list[AnswerFrame | NoteFrame | UserFrame], text: str) -> None:
    assert _printed(*frames) == text


def test_notices_are_dim_on_a_terminal() -> None:
    assert _printed(NoteFrame("Stopped."), dim=True) == "\x1b[2mStopped.\x1b[0m\n"
    assert _printed(AnswerFrame(item="a", text="Hello."), dim=True) == "Hello.\n"


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["hello"], ["hello"]),
        (["first", "", "second"], ["first\n\nsecond"]),
        (["", "hello", ""], ["hello"]),
        (["", " "], []),
        (["hello", "/new ", "there", "you"], ["hello", "/new", "there\nyou"]),
    ],
)
def test_lines_that_arrive_together_are_one_message_and_commands_are_separate(
    lines: list[str], found: list[str]
) -> None:
    assert list(group_messages(lines)) == found


class Echo:
    """A gateway that echoes messages until it ends or the input does."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self._frames: asyncio.Queue[TerminalFrame | None] = asyncio.Queue()
        self.heard = asyncio.Event()

    def show(self, frame: TerminalFrame) -> None:
        self._frames.put_nowait(frame)

    async def frames(self) -> AsyncIterator[TerminalFrame]:
        while (frame := await self._frames.get()) is not None:
            yield frame

    async def send(self, text: str) -> None:
        self.said.append(text)
        self._frames.put_nowait(AnswerFrame(item=f"a{len(self.said)}", text=text))
        self.heard.set()

    async def finish(self) -> None:
        self.end()

    def end(self) -> None:
        self._frames.put_nowait(None)


async def test_piped_input_is_answered_and_ends_the_chat() -> None:
    echo, out = Echo(), io.StringIO()
    terminal = ChatTerminal(io.StringIO("hello\nthere\n/help\n"), out)
    async with asyncio.timeout(5):
        assert await terminal.run(echo)
    assert echo.said == ["hello\nthere", "/help"]
    assert out.getvalue() == "hello\nthere\n/help\n"
    assert not terminal.left_early


async def test_the_end_of_the_gateway_is_noticed_without_typing() -> None:
    echo = Echo()
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin, os.fdopen(writing, "w") as keyboard:
        echo.end()
        async with asyncio.timeout(5):
            assert not await ChatTerminal(stdin, io.StringIO()).run(echo)
        keyboard.close()
        _wait_for_keyboards()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_with_piped_input_the_first_signal_leaves(number: signal.Signals) -> None:
    echo = Echo()
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin, os.fdopen(writing, "w") as keyboard:
        keyboard.write("hello\n")
        keyboard.flush()
        terminal = ChatTerminal(stdin, io.StringIO())
        async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(terminal.run(echo))
            await echo.heard.wait()
            os.kill(os.getpid(), number)
            assert await running
        assert terminal.left_early
        keyboard.close()
        _wait_for_keyboards()


async def test_a_closed_output_pipe_ends_the_chat() -> None:
    echo = Echo()
    unread, writing = os.pipe()
    os.close(unread)
    with os.fdopen(writing, "w") as stdout:
        terminal = ChatTerminal(io.StringIO("hello\n"), stdout)
        async with asyncio.timeout(5):
            assert await terminal.run(echo)
    assert terminal.left_early
    assert echo.said == ["hello"]


# --- the status line ----------------------------------------------------------------------------


class Glass:
    """Return the visible text of a terminal, including the scrollback."""

    _SIGN = re.compile(r"\x1b(?:\[[0-9;]*[A-Za-z]|.)|.", re.DOTALL)

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self.lines = [""] * rows
        self._row = self._column = 0
        self._kept = (0, 0)

    def write(self, text: str) -> None:
        for found in self._SIGN.finditer(text):
            self._take(found[0])

    def seen(self) -> list[str]:
        while len(self.lines) > 1 and not self.lines[-1].strip():
            self.lines.pop()
        return [line.rstrip() for line in self.lines]

    @property
    def _top(self) -> int:
        return len(self.lines) - self._rows

    def _take(self, sign: str) -> None:
        line = self.lines[self._row]
        match sign:
            case "\r":
                self._column = 0
            case "\n" | "\x1bD":
                if self._row == len(self.lines) - 1:
                    self.lines.append("")
                self._row += 1
            case "\x1b[A":
                self._row = max(self._top, self._row - 1)
            case "\x1b[B":
                self._row = min(len(self.lines) - 1, self._row + 1)
            case "\x1b[K" | "\x1b[J":
                self.lines[self._row] = line[: self._column]
                if sign == "\x1b[J":
                    below = range(self._row + 1, len(self.lines))
                    self.lines[self._row + 1 :] = ["" for _ in below]
            case "\x1b7":
                self._kept = (self._row - self._top, self._column)
            case "\x1b8":
                self._row, self._column = self._top + self._kept[0], self._kept[1]
            case "\x1b[2m" | "\x1b[0m":
                pass
            case _:
                assert sign.isprintable(), repr(sign)
                rest = line[self._column + 1 :]
                self.lines[self._row] = line[: self._column].ljust(self._column) + sign + rest
                self._column += 1


async def _on_a_terminal(*frames: TerminalFrame, rows: int = 4) -> list[str]:
    """Show frames on a pseudo-terminal and return its screen."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (rows, 40))
    echo, glass = Echo(), Glass(rows)
    for frame in frames:
        echo.show(frame)
    echo.end()
    with os.fdopen(theirs, "w") as screen, os.fdopen(ours, "rb", buffering=0) as seen:
        await ChatTerminal(screen, screen)._show_frames(echo)
        while select.select([seen], [], [], 0.05)[0]:
            glass.write(seen.read(65536).decode())
    return glass.seen()


@pytest.mark.parametrize("rows", [2, 3, 24])
@pytest.mark.parametrize(
    ("frames", "seen"),
    [
        pytest.param([StatusFrame("slow")], ["", "slow"], id="alone"),
        pytest.param([StatusFrame("slow"), StatusFrame("slower")], ["", "slower"], id="in place"),
        pytest.param([StatusFrame("slow"), StatusFrame("")], [""], id="taken away"),
        pytest.param(
            [StatusFrame("slow"), NoteFrame("One."), NoteFrame("Two.")],
            ["One.", "Two.", ">", "slow"],
            id="it stays below what is printed",
        ),
        pytest.param(
            [
                NoteFrame("One."),
                StatusFrame("slow"),
                AnswerFrame(item="a", text="Two", done=False),
                StatusFrame(""),
            ],
            ["One.", "Two"],
            id="an unfinished line stays as it is",
        ),
        pytest.param(
            [
                AnswerFrame(item="a", text="Tw", done=False),
                StatusFrame("slow"),
                AnswerFrame(item="a", text="o\nand\nmore"),
            ],
            ["Two", "and", "more", ">", "slow"],
            id="in the middle of an answer",
        ),
        pytest.param(
            [
                AnswerFrame(item="a", text="Two", done=False),
                StatusFrame("slow"),
                StatusFrame(""),
                AnswerFrame(item="a", text=" more."),
            ],
            ["Two more.", ">"],
            id="the answer goes on where it was",
        ),
    ],
)
async def test_the_status_is_shown_below_the_last_line(
    frames: list[TerminalFrame], seen: list[str], rows: int
) -> None:
    assert await _on_a_terminal(*frames, rows=rows) == seen


async def test_a_status_is_one_line_without_control_characters() -> None:
    shown = await _on_a_terminal(StatusFrame("\x1b[2J" + "too\nlong " * 20), NoteFrame("Next."))
    assert shown[:2] == ["Next.", ">"]
    assert shown[2].startswith("␛[2Jtoo long too long")
    assert len(shown[2]) < 40
    assert len(shown) == 3


@given(st.text(), st.integers(-1, 200))
def test_a_status_never_exceeds_its_line(text: str, columns: int) -> None:
    glass = Glass(2)
    glass.write(render_status_below("".join(each for each in text if each.isprintable()), columns))
    assert max(map(len, glass.seen())) < max(columns, 1)


async def test_a_pipe_gets_no_status() -> None:
    echo, out = Echo(), io.StringIO()
    for frame in (StatusFrame("slow"), NoteFrame("One."), StatusFrame("slower")):
        echo.show(frame)
    async with asyncio.timeout(5):
        await ChatTerminal(io.StringIO("hello\n"), out).run(echo)
    assert "slow" not in out.getvalue()
    assert "\x1b" not in out.getvalue()


def _wait_for_keyboards() -> None:
    """Wait for the reading threads, which end with their input."""
    for thread in threading.enumerate():
        if thread.name == "keyboard":
            thread.join(5)
