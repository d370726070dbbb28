"""Processes of `holdfast` that need not import it: each is a fork of one that has.

Half a second of CPU is spent on the imports of a daemon, and a tenth on those of a small command.
Apart from the imports such a process is one of its own: arguments, environment, folder, standard
streams, signals, exit code, and `kill -9`. Tests about the start itself use the installed program.
"""

import asyncio
import atexit
import contextlib
import functools
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

PROGRAM = str(Path(sys.executable).with_name("holdfast"))
ROOT = Path(__file__).parents[2]
IMPORTS = {
    "platforms.telegram.": "platforms.telegram.adapter",
    "platforms.discord.": "platforms.discord.adapter",
    "platforms.slack.": "platforms.slack.adapter",
    "model.provider=anthropic": "agent.providers.anthropic.messages",
}
"""Modules that a daemon imports because of a setting, by the beginning of the setting."""


@functools.cache
def _server() -> socket.socket:
    """Start the program that forks; it ends with this process."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.warm_server", str(its.fileno())],
            pass_fds=[its.fileno()],
            cwd=ROOT,
        )

    def end() -> None:
        ours.close()
        server.wait(10)

    atexit.register(end)
    return ours


class WarmProcess:
    """A command that runs."""

    def __init__(self, report: socket.socket) -> None:
        self._report = report
        self._told = report.makefile("rb")
        pid = self._told.readline()
        assert pid, "the program that forks has ended"
        self.pid = int(pid)
        self.returncode: int | None = None

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the end of the process is known."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, seconds: float | None = None) -> int:
        """Wait for the end; gives the exit code as `subprocess` does."""
        if self.returncode is None:
            self._report.settimeout(seconds)
            told = self._told.readline()
            assert told, "the program that forks has ended"
            self.returncode = int(told)
            self._told.close()
            self._report.close()
        return self.returncode

    async def ended(self) -> int:
        """Wait for the end in the loop that runs."""
        if self.returncode is None:
            loop = asyncio.get_running_loop()
            told = asyncio.Event()
            loop.add_reader(self._report, told.set)
            try:
                await told.wait()
            finally:
                loop.remove_reader(self._report)
        return self.wait()


def start(
    *words: str,
    env: Mapping[str, str],
    cwd: Path | None = None,
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
) -> WarmProcess:
    """Start `holdfast WORDS`; the streams are file descriptors, and nothing without one."""
    ours, its = socket.socketpair()
    with its, open(os.devnull, "r+b") as nothing:  # noqa: PTH123
        given = [nothing.fileno() if each is None else each for each in (stdin, stdout, stderr)]
        request = {
            "argv": [PROGRAM, *words],
            "env": dict(env),
            "cwd": str(cwd or Path.cwd()),
            "imports": [
                module
                for setting, module in IMPORTS.items()
                if any(each.startswith(setting) for each in words)
            ],
        }
        socket.send_fds(_server(), [json.dumps(request).encode()], [its.fileno(), *given])
    return WarmProcess(ours)


def run(
    *words: str, env: Mapping[str, str], cwd: Path, said: str = "", seconds: float = 40.0
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end on pipes, as `subprocess.run` does."""
    pipes = [os.pipe() for _ in range(3)]
    (stdin, to), (out, stdout), (err, stderr) = pipes
    process = start(*words, env=env, cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr)
    for each in (stdin, stdout, stderr):
        os.close(each)
    os.write(to, said.encode())  # no test says more than a pipe holds
    os.close(to)
    read = {out: b"", err: b""}
    until = time.monotonic() + seconds
    with selectors.DefaultSelector() as ready:
        for each in read:
            ready.register(each, selectors.EVENT_READ)
        while ready.get_map():
            found = ready.select(until - time.monotonic())
            if not found:
                process.kill()
                raise subprocess.TimeoutExpired([PROGRAM, *words], seconds)
            for key, _ in found:
                more = os.read(key.fd, 2**16)
                read[key.fd] += more
                if not more:
                    ready.unregister(key.fd)
                    os.close(key.fd)
    code = process.wait(seconds)
    return subprocess.CompletedProcess(
        [PROGRAM, *words], code, read[out].decode(), read[err].decode()
    )
