"""systemd's protocol between a real daemon and a real socket."""

import fcntl
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.config.loader import read_environment
from tests.e2e.daemon import PATIENCE, Daemon
from tests.fakes.telegram.server import TOKEN

ROOT = Path(__file__).parents[2]
KEEPALIVE = "WATCHDOG=1"
SILENCE = 1.5
"""Seconds, enough for seven keepalives."""


class Manager:
    """A fake service manager that receives notifications."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.settimeout(PATIENCE)
        self.environ = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "400000"}

    def next(self, *, but: str = KEEPALIVE) -> str:
        while (word := self.socket.recv(9999).decode()) == but:
            pass
        return word

    def wait_for_silence(self) -> None:
        """Wait until no more notifications arrive; those already sent may still arrive."""
        self.socket.settimeout(SILENCE)
        for _ in range(200):
            try:
                self.socket.recv(9999)
            except TimeoutError:
                break
        else:
            raise AssertionError(self.socket.recv(9999))
        self.socket.settimeout(PATIENCE)


@contextmanager
def listening(address: str) -> Iterator[Manager]:
    manager = Manager(address)
    try:
        yield manager
    finally:
        manager.socket.close()


@pytest.mark.parametrize("abstract", [False, True], ids=["path", "abstract"])
async def test_systemd_is_notified_of_start_status_and_end(tmp_path: Path, abstract: bool) -> None:
    address = f"@holdfast-{os.getpid()}" if abstract else str(tmp_path / "notify")
    nowhere = "http://127.0.0.1:9"  # a platform whose first attempt fails
    with listening(address) as manager:
        daemon = Daemon(
            tmp_path / "state",
            f"platforms.telegram.token={TOKEN}",
            f"platforms.telegram.base_url={nowhere}",
            "gateway.drain_seconds=7",
            env=manager.environ,
        )
        async with daemon:
            assert manager.next() == "STATUS=Starting."
            ready = manager.next()
            assert re.fullmatch(
                r"READY=1\nSTATUS=Answering on api, console and web; telegram: .+; idle\.", ready
            ), ready
            assert "Holdfast is running." in daemon.said
            assert manager.next(but="") == KEEPALIVE
            daemon.signal(signal.SIGHUP)
            await daemon.logs("Nothing has changed.")
            assert await daemon.stop() == 0
        end = manager.next()
    assert end.splitlines() == [
        "STOPPING=1",
        "EXTEND_TIMEOUT_USEC=37000000",
        "STATUS=Stopping.",
    ]


def _take_terminal() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may have been started by nohup
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.mark.parametrize("ignored", [False, True], ids=["plain", "with nohup"])
def test_daemon_stops_cleanly_when_its_terminal_closes(tmp_path: Path, ignored: bool) -> None:
    keyboard, theirs = pty.openpty()
    before = ("nohup",) if ignored else ()
    daemon = subprocess.Popen(
        [*before, str(Path(sys.executable).with_name("holdfast")), "run", "--set", "http.port=0"],
        env={**read_environment(), "HOLDFAST_HOME": str(tmp_path)},
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=_take_terminal,  # noqa: PLW1509 - the tests hold no lock in another thread
    )
    os.close(theirs)
    try:
        assert daemon.stdout
        assert daemon.stderr
        assert b"Holdfast is running. Ctrl-C stops it." in daemon.stdout.readline()
        os.close(keyboard)
        words = b"configuration reloaded" if ignored else b"the terminal was closed: stopping"
        while words not in (line := daemon.stderr.readline()):
            assert line
        if ignored:
            assert daemon.poll() is None
            daemon.terminate()
        daemon.communicate(timeout=PATIENCE)
        assert daemon.returncode == 0
    finally:
        daemon.kill()
        daemon.communicate()


def test_watchdog_needs_the_loop_and_the_writer(tmp_path: Path) -> None:
    with listening(str(tmp_path / "notify")) as manager:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.stuck_daemon", str(tmp_path / "state")],
            cwd=ROOT,
            env={**read_environment(), **manager.environ},
            stderr=subprocess.DEVNULL,
        )
        try:
            while not manager.next().startswith("READY=1"):
                pass
            assert manager.next(but="") == KEEPALIVE
            daemon.send_signal(signal.SIGUSR2)  # the writer hangs
            manager.wait_for_silence()
            daemon.send_signal(signal.SIGUSR2)  # and continues
            assert manager.next(but="") == KEEPALIVE
            daemon.send_signal(signal.SIGUSR1)  # the loop is blocked
            manager.wait_for_silence()
            assert daemon.poll() is None
        finally:
            daemon.kill()
            daemon.wait(PATIENCE)
