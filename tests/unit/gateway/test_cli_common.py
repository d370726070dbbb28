"""Commands that need the daemon of their state folder."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.operate.cli import common
from gateway.operate.cli.common import ask_daemon
from gateway.process.control_socket import (
    NotAnswering,
    NotRunning,
    serve_control_socket,
    socket_path,
)
from gateway.process.lock import hold_state_folder


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    return tmp_path


async def status(**_: object) -> Any:
    return {"state": "running"}


async def test_a_command_waits_for_a_daemon_that_is_starting(home: Path) -> None:
    with hold_state_folder(home):
        asked = asyncio.create_task(asyncio.to_thread(ask_daemon, "status"))  # noqa: TID251 - awaited below
        done, _ = await asyncio.wait([asked], timeout=0.2)
        assert not done
        async with serve_control_socket(socket_path(home, {}), {"status": status}):
            assert await asked == {"state": "running"}


def test_without_a_daemon_a_command_does_not_wait() -> None:
    with pytest.raises(NotRunning):
        ask_daemon("status")


def test_a_command_reports_a_daemon_that_stays_silent(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "_START_SECONDS", 0.0)
    with hold_state_folder(home), pytest.raises(NotAnswering, match="is starting or stopping"):
        ask_daemon("status")
