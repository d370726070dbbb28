"""A person in front of a terminal: reads what a program shows, and types."""

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import termios
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

PATIENCE = 40.0


class Seat:
    """See the module; made by `seated`."""

    def __init__(self, keyboard: int, process: asyncio.subprocess.Process) -> None:
        self.screen = ""  # all that was shown
        self.process = process
        self._keyboard = keyboard
        self._read_to = 0
        self._news = asyncio.Event()
        asyncio.get_running_loop().add_reader(keyboard, self._read)

    def _read(self) -> None:
        try:
            more = os.read(self._keyboard, 65536)
        except OSError:  # the other side is closed
            more = b""
        if not more:
            asyncio.get_running_loop().remove_reader(self._keyboard)
        self.screen += more.decode(errors="replace").replace("\r\n", "\n")
        self._news.set()

    async def sees(self, pattern: str) -> re.Match[str]:
        """Wait until something is shown after what was seen before."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not (found := re.compile(pattern).search(self.screen, self._read_to)):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            msg = f"{pattern!r} is not shown:\n{self.screen}"
            raise AssertionError(msg) from None
        self._read_to = found.end()
        return found

    def types(self, keys: str) -> None:
        """Press keys; `\\n` is Enter, `\\x03` Ctrl-C."""
        os.write(self._keyboard, keys.encode())

    async def ends(self) -> int:
        """Wait for the end of the program; gives its exit code."""
        async with asyncio.timeout(PATIENCE):
            return await self.process.wait()


@contextlib.asynccontextmanager
async def seated(*command: str | Path, env: Mapping[str, str], folder: Path) -> AsyncIterator[Seat]:
    """Start a program in a terminal of its own."""
    keyboard, theirs = pty.openpty()
    try:
        process = await asyncio.create_subprocess_exec(
            *map(str, command),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=dict(env),
            cwd=folder,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
    finally:
        os.close(theirs)
    seat = Seat(keyboard, process)
    try:
        yield seat
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        asyncio.get_running_loop().remove_reader(keyboard)
        os.close(keyboard)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
