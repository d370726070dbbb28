"""Notifications about a restart, and stop signals during a restart."""

import asyncio
import os
import signal
import socket
from pathlib import Path
from typing import Self

import pytest

from gateway.errors import CannotStart
from gateway.process.control_socket import Operation
from gateway.process.handover import Handover
from gateway.process.lock import hold_state_folder
from gateway.process.service import serve
from platforms.core.contract import Adapter


class Patient:
    """A gateway whose running turns never finish on their own."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        self.restarting = asyncio.Event()
        self.skip_drain = asyncio.Event()
        self.ready = asyncio.Event()
        self.operations: dict[str, Operation] = {}
        self.drain_seconds = 10.0

    @property
    def condition(self) -> Self:
        return self

    def adapter(self, name: str) -> Adapter | None:
        return None

    async def run(self) -> None:
        self.ready.set()
        await self.skip_drain.wait()

    def running_turns(self) -> int:
        return 0

    async def release_memory(self) -> None:
        pass

    def describe_status(self) -> str:
        return "Restarting." if self.restarting.is_set() else "Stopping."

    async def wait_first_attempts(self) -> None:
        pass

    async def ping_writer(self) -> None:
        pass

    def writer_steps(self) -> int:
        return 0


class Manager:
    """systemd's end of the socket."""

    def __init__(self, name: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(name))
        self._socket.settimeout(5)

    async def told(self, first: str) -> list[str]:
        """Wait for a notification with this prefix."""
        while True:
            said = (await asyncio.to_thread(self._socket.recv, 999)).decode().splitlines()
            if said[0] == first:
                return said

    def close(self) -> None:
        self._socket.close()


@pytest.mark.parametrize("stopped", [False, True])
async def test_restart_is_a_reload_to_systemd_unless_a_signal_stops_it(
    tmp_path: Path, stopped: bool
) -> None:
    runner, handover, manager = Patient(), Handover(), Manager(tmp_path / "notify")

    async def hear() -> None:
        await manager.told("READY=1")
        runner.restarting.set()
        runner.stopping.set()
        _, since, more, status = await manager.told("RELOADING=1")
        assert since.removeprefix("MONOTONIC_USEC=").isdecimal()
        assert (more, status) == ("EXTEND_TIMEOUT_USEC=40000000", "STATUS=Restarting.")
        if stopped:
            os.kill(os.getpid(), signal.SIGTERM)
            assert (await manager.told("STOPPING=1"))[-1] == "STATUS=Stopping."
            assert not runner.skip_drain.is_set()  # running turns still get their drain time
            os.kill(os.getpid(), signal.SIGTERM)
            await runner.skip_drain.wait()
        runner.skip_drain.set()

    environ = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        tasks.create_task(hear())
        with hold_state_folder(tmp_path) as folder:
            await serve(runner, folder, environ, handover=handover)
    manager.close()
    assert runner.restarting.is_set() is not stopped
    if stopped:
        with hold_state_folder(tmp_path):
            pass
    else:  # the lock is passed on to the next process
        with pytest.raises(CannotStart), hold_state_folder(tmp_path):
            pass
        handover.discard()
