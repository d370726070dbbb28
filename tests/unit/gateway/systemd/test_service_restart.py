"""`holdfast service restart`: by the daemon itself if that is enough, else by systemd."""

import asyncio
import os
from pathlib import Path

import pytest
from click.testing import Result
from msgspec.structs import replace

from gateway.operate.cli import restarting
from sessions.values.clock import SystemClock
from tests.unit.gateway.systemd.test_service_command import Place
from tests.unit.gateway.test_cli_restarting import BACK, TASK, Played, daemon

RESTARTED = ["systemctl restart holdfast.service"]


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarting, "POLL_SECONDS", 0.001)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = Place(tmp_path)
    unit = found.here.machine_scope.unit_path
    unit.parent.mkdir(parents=True)
    unit.write_text("")
    return found


async def restarted(
    place: Place, played: Played, *words: str, booted: bool = True
) -> tuple[Result, list[str]]:
    """Return the output and the systemd calls of a restart while a daemon runs."""
    home = place.here.machine_scope.unit_path.parents[3]
    here = replace(place.here, has_systemd=booted)
    async with daemon(home, played):
        done = await asyncio.to_thread(
            lambda: place.run("restart", *words, here=here, HOLDFAST_HOME=str(home))
        )
    return done, place.calls()


def runs(place: Place, pid: int, *, since: float) -> None:
    place.shows(
        f"ActiveState=active\nMainPID={pid}\n"
        f"ExecMainStartTimestampMonotonic={int(since * 1_000_000)}\n"
    )


def now() -> float:
    return SystemClock().monotonic() + 1


async def test_without_systemd_the_daemon_restarts_itself(place: Place) -> None:
    done, calls = await restarted(place, Played(BACK), booted=False)
    assert (done.output, calls) == ("Back after 4 s.\n", [])


@pytest.mark.parametrize("pid", [4711, 12, 0])
async def test_a_daemon_restarts_itself_as_a_service_and_by_hand(place: Place, pid: int) -> None:
    runs(place, pid, since=now())
    done, calls = await restarted(place, Played(BACK, running=[[TASK]]))
    assert done.exception is None, done.output
    assert "interrupted unless finished in time: 1 task." in done.output
    assert done.output.endswith("Back after 4 s.\n")
    assert calls == []


@pytest.mark.parametrize("what", ["unit", "secret"])
@pytest.mark.parametrize("words", [(), ("--when-idle",)])
async def test_changes_to_unit_or_credentials_restart_through_systemd(
    place: Place, what: str, words: tuple[str, ...]
) -> None:
    runs(place, 4711, since=0 if what == "unit" else now())
    if what == "secret":
        folder = place.here.machine_scope.credentials_folder
        folder.mkdir(parents=True)
        token = folder / "TELEGRAM_BOT_TOKEN"
        token.write_text("1:abc")
        _touch(token, 3600)
    played = Played(BACK, running=[[TASK], []])
    done, calls = await restarted(place, played, *words)
    assert done.exception is None, done.output
    assert "1 task" in done.output
    assert (calls, played.asked) == (RESTARTED, [])


async def test_without_a_running_daemon_systemd_starts_it(place: Place) -> None:
    assert (await asyncio.to_thread(place.run, "restart")).exception is None
    assert place.calls() == RESTARTED


def _touch(path: Path, ahead: float) -> None:
    at = SystemClock().now() / 1000 + ahead
    os.utime(path, (at, at))
