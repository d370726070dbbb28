"""Keyboard and screen of `holdfast chat`, on a terminal or on plain pipes.

With piped input the chat ends after the last line has been answered.
"""

import asyncio
import contextlib
import os
import signal
import sys
import threading
import unicodedata
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Protocol, TextIO

from platforms.console import AnswerFrame, NoteFrame, StatusFrame, TerminalFrame, UserFrame
from sessions.values.visible_text import visible_line, visible_text

_PROMPT = "> "
_DOUBLE_INTERRUPT_SECONDS = 2.0  # a second Ctrl-C within this time leaves
_PASTE_SECONDS = 0.05  # lines that arrive within this time form one message
_DEFAULT_COLUMNS = 80
_MAX_REMEMBERED_ANSWERS = 16  # answers whose printed text is remembered
_STOP_COMMAND = "/stop"

_DIM, _RESET, _CLEAR_LINE = "\x1b[2m", "\x1b[0m", "\r\x1b[K"
_CLEAR_BELOW = "\x1b[J"
# Down and up make sure that a line exists below; then save the cursor, go there, and come back.
_MOVE_BELOW, _MOVE_BACK = "\x1bD\x1b[A\x1b7\x1b[B\r", "\x1b[K\x1b8"


class ChatConnection(Protocol):
    """Connection to a chat: a screen of this process or of the running daemon."""

    def frames(self) -> AsyncIterator[TerminalFrame]:
        """Yield frames to print; ends when the gateway ends, or after `finish`."""
        ...

    async def send(self, text: str) -> None:
        """Submit a message."""
        ...

    async def finish(self) -> None:
        """Announce the end of the input: `frames` ends once everything has been answered."""
        ...


class Printer:
    """Turns frames into terminal output; tracks printed text and whether a line is unfinished."""

    def __init__(self, *, dim: bool) -> None:
        self._dim = dim
        self._unfinished_item = ""  # the answer whose last line has no newline yet
        self._shown_texts: dict[str, str] = {}  # printed text per answer
        self.at_line_start = True

    def render_frame(self, frame: AnswerFrame | NoteFrame | UserFrame) -> str:
        """Return the terminal output for a frame."""
        if isinstance(frame, AnswerFrame):
            return self._render_answer(frame)
        text = visible_text(frame.text)
        return self._own_line(text if isinstance(frame, NoteFrame) else f"{_PROMPT}{text}")

    def _own_line(self, text: str) -> str:
        return self._fresh_line() + self._record_output(self._dim_text(text) + "\n", "")

    def _render_answer(self, frame: AnswerFrame) -> str:
        before = self._shown_texts.pop(frame.item, "")
        whole = frame.text if frame.replaces else before + frame.text
        if before.startswith(whole):  # a restarted daemon does not know what is printed here
            whole = before
        self._remember(frame.item, whole)
        out = ""
        if frame.asked and not before:
            out = self._own_line(_PROMPT + visible_text(frame.asked))
        # Joined characters may come in two frames, so the whole text is made visible, not the piece.
        if new := visible_text(whole).removeprefix(visible_text(before)):
            continues = frame.item == self._unfinished_item and whole.startswith(before)
            out += ("" if continues else self._fresh_line()) + self._record_output(new, frame.item)
        return (
            out + self._fresh_line() if frame.done and frame.item == self._unfinished_item else out
        )

    def mark_line_start(self) -> None:
        """Record that the cursor is at the start of a line, after a new prompt."""
        self.at_line_start = True

    def _remember(self, item: str, text: str) -> None:
        self._shown_texts[item] = text
        if len(self._shown_texts) > _MAX_REMEMBERED_ANSWERS:
            del self._shown_texts[next(iter(self._shown_texts))]

    def _fresh_line(self) -> str:
        return "" if self.at_line_start else self._record_output("\n", "")

    def _record_output(self, text: str, item: str) -> str:
        if text:
            self.at_line_start = text.endswith("\n")
        self._unfinished_item = item
        return text

    def _dim_text(self, text: str) -> str:
        return f"{_DIM}{text}{_RESET}" if self._dim else text


def render_status_below(status: str, columns: int) -> str:
    """Return the output that replaces the status in the line below the cursor; empty clears it."""
    line = _truncate(visible_line(" ".join(status.split())), columns - 1)
    return _MOVE_BELOW + (f"{_DIM}{line}{_RESET}" if line else "") + _MOVE_BACK


def _truncate(line: str, columns: int) -> str:
    """Return the part that fits into one line; a wrapped status could not be erased."""
    taken = 0
    for index, character in enumerate(line):
        taken += _display_width(character)
        if taken > columns:
            return line[:index]
    return line


def _display_width(character: str) -> int:
    """Return the columns a character takes; when in doubt, the larger number."""
    wide = (
        unicodedata.east_asian_width(character) in "WFA" or unicodedata.category(character) == "So"
    )
    return 2 if wide else 1


def group_messages(lines: list[str]) -> Iterator[str]:
    """Group lines that arrived together: pasted text is one message, each command its own."""
    text: list[str] = []
    for line in lines:
        if line.startswith("/"):
            yield from _join_lines(text)
            yield line.strip()
            text = []
        else:
            text.append(line)
    yield from _join_lines(text)


def _join_lines(lines: list[str]) -> Iterator[str]:
    text = "\n".join(lines).strip("\n")
    if text.strip():
        yield text


class ChatTerminal:
    """The keyboard and screen of one person."""

    def __init__(self, stdin: TextIO, stdout: TextIO) -> None:
        self._stdin = stdin
        self._stdout = stdout
        self._tty = stdin.isatty() and stdout.isatty()
        self._printer = Printer(dim=stdout.isatty())
        self._input_lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._leaving = asyncio.Event()
        self._read_unfinished_line: Callable[[], str] = str  # the text being typed
        self._interrupted_at = float("-inf")
        self._prompt_shown = self._tty
        self._status = ""
        self._input_finished = False
        self.left_early = False
        """True after Ctrl-C twice or SIGTERM: do not wait for running answers."""

    async def run(self, connection: ChatConnection) -> bool:
        """Chat until the person leaves or all is answered; return False if the gateway ended."""
        with self._reading_keyboard(), self._handling_signals() as wanted:
            async with asyncio.TaskGroup() as both:
                showing = both.create_task(self._show_frames(connection))
                leaving = both.create_task(self._leaving.wait())
                helpers = [
                    both.create_task(self._send_input(connection)),
                    both.create_task(_send_commands(connection, wanted)),
                ]
                done, _ = await asyncio.wait(
                    {showing, leaving}, return_when=asyncio.FIRST_COMPLETED
                )
                for task in (showing, leaving, *helpers):
                    task.cancel()
            self._show_status("")
        return leaving in done or self._input_finished

    # --- output

    async def _show_frames(self, connection: ChatConnection) -> None:
        async for frame in connection.frames():
            if isinstance(frame, StatusFrame):
                self._show_status(frame.text)
            else:
                self._print(self._printer.render_frame(frame))

    def _show_status(self, status: str) -> None:
        """Show the status below the last line of a terminal; a pipe has no place for it."""
        if self._tty and status != self._status:
            self._status = status
            self._write(render_status_below(status, self._columns()))

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._stdout.fileno()).columns or _DEFAULT_COLUMNS
        except OSError:
            return _DEFAULT_COLUMNS

    def _print(self, text: str) -> None:
        """Print above the line being typed, then draw that line again below."""
        if self._status:
            text = _CLEAR_BELOW + text
        if self._prompt_shown:
            text = _CLEAR_LINE + text
        self._prompt_shown = self._tty and self._printer.at_line_start
        if self._prompt_shown:
            text += _PROMPT + self._read_unfinished_line()
        if self._status:
            text += render_status_below(self._status, self._columns())
        self._write(text)

    def _write(self, text: str) -> None:
        try:
            self._stdout.write(text)
            self._stdout.flush()
        except BrokenPipeError:  # the reader closed the pipe, as in `holdfast chat | head`
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stdout.fileno())  # or the flush at exit would fail too
            os.close(nowhere)
            self._leave()

    # --- input

    async def _send_input(self, connection: ChatConnection) -> None:
        ended = False
        while not ended:
            first = await self._input_lines.get()
            lines = [] if first is None else [first]
            ended = first is None
            with contextlib.suppress(TimeoutError):
                while not ended:
                    async with asyncio.timeout(_PASTE_SECONDS):
                        following = await self._input_lines.get()
                    ended = following is None
                    lines += [] if following is None else [following]
            if self._tty:  # the cursor is behind a new prompt
                self._printer.mark_line_start()
                self._prompt_shown = True
                if self._status:  # the new prompt is on the status line
                    self._print("")
            for message in group_messages(lines):
                await connection.send(message)
        if self._tty:
            self._show_status("")
            self._write("\n")
            self._leaving.set()
        else:
            self._input_finished = True
            await connection.finish()

    @contextlib.contextmanager
    def _reading_keyboard(self) -> Iterator[None]:
        """Read lines in a daemon thread, because asyncio cannot wait for `input`."""
        loop = asyncio.get_running_loop()
        restore = self._enable_readline() if self._tty else lambda: None

        def read() -> None:
            for line in self._read_lines():
                loop.call_soon_threadsafe(self._input_lines.put_nowait, line)
            loop.call_soon_threadsafe(self._input_lines.put_nowait, None)

        def guarded() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is already closed
                read()

        threading.Thread(target=guarded, name="keyboard", daemon=True).start()
        try:
            yield
        finally:
            restore()

    def _read_lines(self) -> Iterator[str]:
        """Yield lines until the input ends; a bracketed paste arrives as one line with newlines."""
        if not self._tty:
            for line in self._stdin:
                yield line.rstrip("\r\n")
            return
        with contextlib.suppress(EOFError, OSError):
            while True:
                yield from input(_PROMPT).split("\n")

    def _enable_readline(self) -> Callable[[], None]:
        """Enable line editing and history; return the function that restores the terminal."""
        import readline  # noqa: PLC0415 - the import itself changes `input`
        import termios  # noqa: PLC0415 - only needed with readline

        self._read_unfinished_line = readline.get_line_buffer
        before = termios.tcgetattr(self._stdin.fileno())
        return lambda: termios.tcsetattr(self._stdin.fileno(), termios.TCSADRAIN, before)

    # --- signals

    @contextlib.contextmanager
    def _handling_signals(self) -> Iterator[asyncio.Queue[str]]:
        """Make Ctrl-C stop the answer, and a second Ctrl-C or SIGTERM leave."""
        loop = asyncio.get_running_loop()
        wanted: asyncio.Queue[str] = asyncio.Queue()

        def interrupted() -> None:
            if not self._tty or loop.time() - self._interrupted_at < _DOUBLE_INTERRUPT_SECONDS:
                self._leave()
                return
            self._interrupted_at = loop.time()
            wanted.put_nowait(_STOP_COMMAND)

        loop.add_signal_handler(signal.SIGINT, interrupted)
        loop.add_signal_handler(signal.SIGTERM, self._leave)
        try:
            yield wanted
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            loop.remove_signal_handler(signal.SIGTERM)

    def _leave(self) -> None:
        self.left_early = True
        self._leaving.set()


async def _send_commands(connection: ChatConnection, commands: asyncio.Queue[str]) -> None:
    while True:
        await connection.send(await commands.get())


def open_standard_terminal() -> ChatTerminal:
    """Return the terminal on this process's standard input and output."""
    return ChatTerminal(sys.stdin, sys.stdout)
