"""What a person meets in `holdfast chat`: reads what is typed, prints what comes.

Works on a terminal and on plain pipes; what is read from a pipe ends, and then so does the chat,
once everything is answered.
"""

import asyncio
import contextlib
import os
import re
import signal
import sys
import threading
import unicodedata
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Protocol, TextIO

from platforms.console import Answer, Frame, Heard, Note, Status

PROMPT = "> "
TWICE_WITHIN = 2.0  # seconds in which a second Ctrl-C leaves
TOGETHER_WITHIN = 0.05  # seconds in which lines that follow each other are one message
_USUAL_COLUMNS = 80
_REMEMBERED = 16  # answers of which it is known what stands there
STOP = "/stop"

_DIM, _PLAIN, _CLEAR_LINE = "\x1b[2m", "\x1b[0m", "\r\x1b[K"
_CLEAR_BELOW = "\x1b[J"
# Down and up again, so that there is a line below; then there, and back to where the cursor was.
_LINE_BELOW, _BACK = "\x1bD\x1b[A\x1b7\x1b[B\r", "\x1b[K\x1b8"
# What could move the cursor, change colours or talk to the terminal; kept are newline and tab.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Line(Protocol):
    """What a terminal is joined to: a screen of this process, or of the daemon's."""

    def frames(self) -> AsyncIterator[Frame]:
        """What to print; ends when the gateway does, or after `finish`."""
        ...

    async def say(self, text: str) -> None:
        """Hand a message in."""
        ...

    async def finish(self) -> None:
        """Nothing more will be said: the frames end when everything is answered."""
        ...


class Printer:
    """Turns frames into what is written; knows what stands there, and whether a line is unfinished."""

    def __init__(self, *, dim: bool) -> None:
        self._dim = dim
        self._inside = ""  # the answer whose line is not finished
        self._shown: dict[str, str] = {}  # what stands there of an answer
        self.at_start = True

    def show(self, frame: Answer | Note | Heard) -> str:
        """Give what to write for a frame."""
        text = _CONTROL.sub("", frame.text)
        if isinstance(frame, Answer):
            return self._answer(frame, text)
        return self._quoted(text if isinstance(frame, Note) else f"{PROMPT}{text}")

    def _quoted(self, text: str) -> str:
        return self._fresh_line() + self._written(self._dimmed(text) + "\n", "")

    def _answer(self, frame: Answer, text: str) -> str:
        before = self._shown.pop(frame.item, "")
        whole = text if frame.anew else before + text
        if before.startswith(whole):  # a daemon that was restarted does not know what stands here
            whole = before
        self._keep(frame.item, whole)
        out = ""
        if frame.asked and not before:
            out = self._quoted(PROMPT + _CONTROL.sub("", frame.asked))
        if new := whole.removeprefix(before):
            goes_on = frame.item == self._inside and whole.startswith(before)
            out += ("" if goes_on else self._fresh_line()) + self._written(new, frame.item)
        return out + self._fresh_line() if frame.done and frame.item == self._inside else out

    def _keep(self, item: str, text: str) -> None:
        self._shown[item] = text
        if len(self._shown) > _REMEMBERED:
            del self._shown[next(iter(self._shown))]

    def _fresh_line(self) -> str:
        return "" if self.at_start else self._written("\n", "")

    def _written(self, text: str, item: str) -> str:
        if text:
            self.at_start = text.endswith("\n")
        self._inside = item
        return text

    def _dimmed(self, text: str) -> str:
        return f"{_DIM}{text}{_PLAIN}" if self._dim else text


def below(status: str, columns: int) -> str:
    """Give what to write so that a status stands in the line below the cursor, or nothing does."""
    line = _cut(_CONTROL.sub("", " ".join(status.split())), columns - 1)
    return _LINE_BELOW + (f"{_DIM}{line}{_PLAIN}" if line else "") + _BACK


def _cut(line: str, columns: int) -> str:
    """Take what fits into one line: where it went on, it could not be taken away again."""
    taken = 0
    for place, sign in enumerate(line):
        taken += _width(sign)
        if taken > columns:
            return line[:place]
    return line


def _width(sign: str) -> int:
    """Columns that a sign takes, rather too many than too few."""
    wide = unicodedata.east_asian_width(sign) in "WFA" or unicodedata.category(sign) == "So"
    return 2 if wide else 1


def messages(lines: list[str]) -> Iterator[str]:
    """Make messages of lines that came together: pasted text is one, each command its own."""
    text: list[str] = []
    for line in lines:
        if line.startswith("/"):
            yield from _message(text)
            yield line.strip()
            text = []
        else:
            text.append(line)
    yield from _message(text)


def _message(lines: list[str]) -> Iterator[str]:
    text = "\n".join(lines).strip("\n")
    if text.strip():
        yield text


class Terminal:
    """One person's keyboard and screen."""

    def __init__(self, stdin: TextIO, stdout: TextIO) -> None:
        self._in = stdin
        self._out = stdout
        self._tty = stdin.isatty() and stdout.isatty()
        self._printer = Printer(dim=stdout.isatty())
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._leaving = asyncio.Event()
        self._typed: Callable[[], str] = str  # what stands in the unfinished line
        self._interrupted_at = float("-inf")
        self._prompted = self._tty
        self._status = ""
        self._finished = False
        self.hurried = False
        """The person left by Ctrl-C, or the program was told to end: do not wait for anything."""

    async def run(self, line: Line) -> bool:
        """Talk until the person leaves or everything is answered; False when the gateway ended."""
        with self._keyboard(), self._signals() as wanted:
            async with asyncio.TaskGroup() as both:
                showing = both.create_task(self._show(line))
                leaving = both.create_task(self._leaving.wait())
                helpers = [
                    both.create_task(self._hear(line)),
                    both.create_task(_obey(line, wanted)),
                ]
                done, _ = await asyncio.wait(
                    {showing, leaving}, return_when=asyncio.FIRST_COMPLETED
                )
                for task in (showing, leaving, *helpers):
                    task.cancel()
            self._tell("")
        return leaving in done or self._finished

    # --- what is printed

    async def _show(self, line: Line) -> None:
        async for frame in line.frames():
            if isinstance(frame, Status):
                self._tell(frame.text)
            else:
                self._print(self._printer.show(frame))

    def _tell(self, status: str) -> None:
        """Show what is going on below the last line; a pipe has no place for it."""
        if self._tty and status != self._status:
            self._status = status
            self._write(below(status, self._columns()))

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._out.fileno()).columns or _USUAL_COLUMNS
        except OSError:
            return _USUAL_COLUMNS

    def _print(self, text: str) -> None:
        """Print above the line that is being typed, and show that line again below."""
        if self._status:
            text = _CLEAR_BELOW + text
        if self._prompted:
            text = _CLEAR_LINE + text
        self._prompted = self._tty and self._printer.at_start
        if self._prompted:
            text += PROMPT + self._typed()
        if self._status:
            text += below(self._status, self._columns())
        self._write(text)

    def _write(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
        except BrokenPipeError:  # as in `holdfast chat | head`: nobody reads any more
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._out.fileno())  # or the last flush of all would fail too
            os.close(nowhere)
            self._leave()

    # --- what is typed

    async def _hear(self, line: Line) -> None:
        ended = False
        while not ended:
            first = await self._lines.get()
            lines = [] if first is None else [first]
            ended = first is None
            with contextlib.suppress(TimeoutError):
                while not ended:
                    async with asyncio.timeout(TOGETHER_WITHIN):
                        following = await self._lines.get()
                    ended = following is None
                    lines += [] if following is None else [following]
            if self._tty:  # the cursor stands behind a new prompt
                self._prompted = self._printer.at_start = True
                if self._status:  # where that prompt is now
                    self._print("")
            for message in messages(lines):
                await line.say(message)
        if self._tty:
            self._tell("")
            self._write("\n")
            self._leaving.set()
        else:
            self._finished = True
            await line.finish()

    @contextlib.contextmanager
    def _keyboard(self) -> Iterator[None]:
        """Read in a thread of its own: reading a line cannot be waited for in any other way."""
        loop = asyncio.get_running_loop()
        restore = self._with_readline() if self._tty else lambda: None

        def read() -> None:
            for line in self._typed_lines():
                loop.call_soon_threadsafe(self._lines.put_nowait, line)
            loop.call_soon_threadsafe(self._lines.put_nowait, None)

        def guarded() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
                read()

        threading.Thread(target=guarded, name="keyboard", daemon=True).start()
        try:
            yield
        finally:
            restore()

    def _typed_lines(self) -> Iterator[str]:
        """Lines until the input ends; a pasted text may come as one line with newlines in it."""
        if not self._tty:
            for line in self._in:
                yield line.rstrip("\r\n")
            return
        with contextlib.suppress(EOFError, OSError):
            while True:
                yield from input(PROMPT).split("\n")

    def _with_readline(self) -> Callable[[], None]:
        """Give the line editing and history; returns what puts the terminal back in order."""
        import readline  # noqa: PLC0415 - changes how `input` works, so only where it is wanted
        import termios  # noqa: PLC0415 - goes with it

        self._typed = readline.get_line_buffer
        before = termios.tcgetattr(self._in.fileno())
        return lambda: termios.tcsetattr(self._in.fileno(), termios.TCSADRAIN, before)

    # --- signals

    @contextlib.contextmanager
    def _signals(self) -> Iterator[asyncio.Queue[str]]:
        """Ctrl-C stops the answer, twice leaves; being told to end leaves."""
        loop = asyncio.get_running_loop()
        wanted: asyncio.Queue[str] = asyncio.Queue()

        def interrupted() -> None:
            if not self._tty or loop.time() - self._interrupted_at < TWICE_WITHIN:
                self._leave()
                return
            self._interrupted_at = loop.time()
            wanted.put_nowait(STOP)

        loop.add_signal_handler(signal.SIGINT, interrupted)
        loop.add_signal_handler(signal.SIGTERM, self._leave)
        try:
            yield wanted
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            loop.remove_signal_handler(signal.SIGTERM)

    def _leave(self) -> None:
        self.hurried = True
        self._leaving.set()


async def _obey(line: Line, wanted: asyncio.Queue[str]) -> None:
    while True:
        await line.say(await wanted.get())


def standard() -> Terminal:
    """The terminal or pipes this process was started with."""
    return Terminal(sys.stdin, sys.stdout)
