"""What is read and printed in `holdfast chat`."""

import asyncio
import io
import os
import signal
import threading
from collections.abc import AsyncIterator

import pytest

from gateway.terminal import Printer, Terminal, messages
from platforms.console import Answer, Frame, Heard, Note


def _printed(*frames: Frame, dim: bool = False) -> str:
    printer = Printer(dim=dim)
    return "".join(printer.show(frame) for frame in frames)


@pytest.mark.parametrize(
    ("frames", "text"),
    [
        pytest.param([Answer("a", "Hello.")], "Hello.\n", id="a whole answer ends its line"),
        pytest.param([Answer("a", "Hello.\n")], "Hello.\n", id="a line is ended only once"),
        pytest.param(
            [Answer("a", "Hel", done=False), Answer("a", "lo"), Note("Bye.")],
            "Hello\nBye.\n",
            id="pieces follow each other",
        ),
        pytest.param(
            [Answer("a", "Hel", done=False), Note("Slow."), Answer("a", "lo")],
            "Hel\nSlow.\nlo\n",
            id="a notice has its own line",
        ),
        pytest.param(
            [Answer("a", "One", done=False), Answer("b", "Two"), Heard("three")],
            "One\nTwo\n> three\n",
            id="answers do not mix",
        ),
        pytest.param(
            [Answer("a", "Hallo", done=False), Answer("a", "Hello", anew=True)],
            "Hallo\nHello\n",
            id="a changed answer begins anew",
        ),
        pytest.param([Answer("a", "")], "", id="nothing is nothing"),
        pytest.param(
            [Answer("a", "\x1b]0;title\x07\x1b[2Jred\r\ttab\x9b1m")],
            "]0;title[2Jred\ttab1m\n",
            id="an answer cannot control the terminal",
        ),
    ],
)
def test_frames_become_lines(frames: list[Frame], text: str) -> None:
    assert _printed(*frames) == text


def test_words_that_are_not_the_models_are_dim_on_a_terminal() -> None:
    assert _printed(Note("Stopped."), dim=True) == "\x1b[2mStopped.\x1b[0m\n"
    assert _printed(Answer("a", "Hello."), dim=True) == "Hello.\n"


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
def test_lines_that_come_together_are_one_message_but_commands_stand_alone(
    lines: list[str], found: list[str]
) -> None:
    assert list(messages(lines)) == found


class Echo:
    """A gateway that repeats what it hears, until it ends or all is said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self._frames: asyncio.Queue[Frame | None] = asyncio.Queue()
        self.heard = asyncio.Event()

    async def frames(self) -> AsyncIterator[Frame]:
        while (frame := await self._frames.get()) is not None:
            yield frame

    async def say(self, text: str) -> None:
        self.said.append(text)
        self._frames.put_nowait(Answer(f"a{len(self.said)}", text))
        self.heard.set()

    async def finish(self) -> None:
        self.end()

    def end(self) -> None:
        self._frames.put_nowait(None)


async def test_a_pipe_is_answered_and_then_it_is_over() -> None:
    echo, out = Echo(), io.StringIO()
    terminal = Terminal(io.StringIO("hello\nthere\n/help\n"), out)
    async with asyncio.timeout(5):
        assert await terminal.run(echo)
    assert echo.said == ["hello\nthere", "/help"]
    assert out.getvalue() == "hello\nthere\n/help\n"
    assert not terminal.hurried


async def test_the_end_of_the_gateway_is_noticed_while_nothing_is_typed() -> None:
    echo = Echo()
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin, os.fdopen(writing, "w") as keyboard:
        echo.end()
        async with asyncio.timeout(5):
            assert not await Terminal(stdin, io.StringIO()).run(echo)
        keyboard.close()
        _wait_for_keyboards()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_pipe_is_left_at_the_first_signal(number: signal.Signals) -> None:
    echo = Echo()
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin, os.fdopen(writing, "w") as keyboard:
        keyboard.write("hello\n")
        keyboard.flush()
        terminal = Terminal(stdin, io.StringIO())
        async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(terminal.run(echo))
            await echo.heard.wait()
            os.kill(os.getpid(), number)
            assert await running
        assert terminal.hurried
        keyboard.close()
        _wait_for_keyboards()


async def test_when_nobody_reads_the_answers_any_more_it_is_over() -> None:
    echo = Echo()
    unread, writing = os.pipe()
    os.close(unread)
    with os.fdopen(writing, "w") as stdout:
        terminal = Terminal(io.StringIO("hello\n"), stdout)
        async with asyncio.timeout(5):
            assert await terminal.run(echo)
    assert terminal.hurried
    assert echo.said == ["hello"]


def _wait_for_keyboards() -> None:
    """The reading threads end with their input; they must not outlast the test."""
    for thread in threading.enumerate():
        if thread.name == "keyboard":
            thread.join(5)
