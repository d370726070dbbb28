"""Doctor checks of this machine: disk, port, sandbox, clock."""

import contextlib
import socket
from collections.abc import AsyncIterator
from email.utils import formatdate
from pathlib import Path

import pytest
from aiohttp import web
from msgspec.structs import replace

from agent.settings import ModelSettings, ShellSettings, ToolSettings
from gateway.operate.doctor.clock import check_clock, skew_finding
from gateway.operate.doctor.context import DaemonInfo, DoctorContext
from gateway.operate.doctor.disk import check_disk
from gateway.operate.doctor.port import check_port
from gateway.operate.doctor.sandbox import check_sandbox
from gateway.settings import GatewaySettings, HttpSettings
from platforms.telegram import TelegramConfig
from sessions.values.clock import SystemClock
from sessions.values.finding import Finding
from sessions.values.secret import Secret
from sessions.values.size import Size
from tests.fakes.case import case_of, only, told

# --- disk ------------------------------------------------------------------------------------


async def test_free_space_is_measured_where_the_state_folder_will_be(tmp_path: Path) -> None:
    found = await check_disk(case_of(tmp_path / "not" / "yet"))
    assert told(found) == [("ok", "room")]
    assert f"free in {tmp_path}" in found[0].text


async def test_low_disk_space_is_reported_by_the_configured_limit(tmp_path: Path) -> None:
    wanted = GatewaySettings(disk_low=Size(10**18))
    found = only(await check_disk(case_of(tmp_path, gateway=wanted)), "room")
    assert found.level == "fail"
    assert "gateway.disk_low" in found.text


# --- the port --------------------------------------------------------------------------------


def listening() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


async def test_a_port_in_use_by_another_program_is_reported(tmp_path: Path) -> None:
    with listening() as other:
        number = other.getsockname()[1]
        case = case_of(tmp_path, http=HttpSettings(port=number))
        found = only(await check_port(case), "port")
        assert (found.level, f"127.0.0.1:{number}" in found.text) == ("fail", True)
        ours = replace(
            case, daemon=DaemonInfo(running=True, status={"url": f"http://127.0.0.1:{number}"})
        )
        assert told(await check_port(ours)) == [("ok", "port")]
    assert told(await check_port(case)) == [("ok", "port")]


async def test_a_port_configured_after_the_start_is_reported(tmp_path: Path) -> None:
    case = case_of(tmp_path, http=HttpSettings(port=8421))
    running = replace(
        case, daemon=DaemonInfo(running=True, status={"url": "http://127.0.0.1:8420"})
    )
    assert told(await check_port(running)) == [("warn", "port")]


async def test_port_zero_is_ok_and_a_foreign_address_is_not(tmp_path: Path) -> None:
    assert told(await check_port(case_of(tmp_path, http=HttpSettings(port=0)))) == [("ok", "port")]
    elsewhere = HttpSettings(host="192.0.2.1", port=8420, api_key=Secret("k"))
    found = only(await check_port(case_of(tmp_path, http=elsewhere)), "port")
    assert (found.level, "cannot listen" in found.text) == ("fail", True)


# --- the sandbox -----------------------------------------------------------------------------


def shell(sandbox: str = "auto") -> ToolSettings:
    return ToolSettings(enabled=("shell",), shell=ShellSettings(sandbox=sandbox))  # type: ignore[arg-type]


def program(folder: Path, text: str) -> dict[str, str]:
    """Return a PATH with a bwrap that runs the given script."""
    (folder / "bwrap").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "bwrap").chmod(0o755)
    return {"PATH": str(folder)}


async def looked(case: DoctorContext) -> Finding:
    return only(await check_sandbox(case), "sandbox")


async def test_the_sandbox_of_this_machine_is_tried(tmp_path: Path) -> None:
    found = await looked(case_of(tmp_path, {"PATH": "/usr/bin:/bin"}))
    assert (found.level, found.text) == ("ok", "bubblewrap works")


async def test_a_missing_sandbox_fails_only_if_tools_need_it(tmp_path: Path) -> None:
    bare = {"PATH": str(tmp_path)}
    assert (await looked(case_of(tmp_path, bare))).level == "ok"
    found = await looked(case_of(tmp_path, bare, tools=shell()))
    assert (found.level, "apt install bubblewrap" in found.fix) == ("fail", True)


async def test_a_sandbox_that_is_not_permitted_reports_the_reason(tmp_path: Path) -> None:
    words = "echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1"
    environ = program(tmp_path, words)
    found = await looked(case_of(tmp_path, environ))
    assert (found.level, found.text) == (
        "warn",
        "bubblewrap does not work here: setting up uid map: Permission denied",
    )
    assert (await looked(case_of(tmp_path, environ, tools=shell()))).level == "fail"
    found = await looked(case_of(tmp_path, program(tmp_path, "exit 7")))
    assert "exit code 7" in found.text


@pytest.mark.quick
async def test_a_sandbox_that_hangs_is_aborted(tmp_path: Path) -> None:
    found = await looked(case_of(tmp_path, program(tmp_path, "exec sleep 600")))
    assert "did not finish within 5 s" in found.text


async def test_a_disabled_sandbox_is_reported_with_its_risk(tmp_path: Path) -> None:
    found = await looked(case_of(tmp_path, tools=shell("none")))
    assert (found.level, "all rights of the daemon" in found.text) == ("warn", True)
    off = ToolSettings(shell=ShellSettings(sandbox="none"))
    assert (await looked(case_of(tmp_path, tools=off))).level == "ok"


# --- the clock -------------------------------------------------------------------------------


class ShiftedClock(SystemClock):
    """A clock that is wrong by the given seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def now(self) -> int:
        return super().now() + round(self._seconds * 1000)


@contextlib.asynccontextmanager
async def service(headers: dict[str, str] | None = None, status: int = 404) -> AsyncIterator[str]:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, headers=headers or {})

    app = web.Application()
    app.router.add_route("*", "/", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


def with_model(home: Path, url: str, seconds: float = 0.0) -> DoctorContext:
    model = ModelSettings(provider="openai", name="m", base_url=url)
    return replace(case_of(home, model=model), clock=ShiftedClock(seconds))


@pytest.mark.parametrize(
    ("seconds", "level", "words"),
    [
        (0, "ok", "agrees with 127.0.0.1"),
        (-5, "ok", "agrees"),
        (60, "warn", "s ahead of"),
        (-90, "warn", "s behind"),
        (600, "fail", "min ahead of"),
        (-20_000, "fail", "h behind"),
        (400_000, "fail", "days ahead of"),
    ],
)
async def test_the_clock_is_compared_with_a_service(
    tmp_path: Path, seconds: float, level: str, words: str
) -> None:
    async with service() as url:
        found = only(await check_clock(with_model(tmp_path, url, seconds)), "clock")
    assert (found.level, words in found.text) == (level, True)
    assert level == "ok" or "timedatectl" in found.fix


async def test_the_next_service_is_asked_if_the_first_sends_no_date(tmp_path: Path) -> None:
    with listening() as gone:
        dead = f"http://127.0.0.1:{gone.getsockname()[1]}"
    async with service() as url:
        case = case_of(
            tmp_path,
            platforms={"telegram": TelegramConfig(token=Secret("t"), base_url=dead)},
            model=ModelSettings(provider="openai", name="m", base_url=url),
        )
        assert "agrees" in only(await check_clock(case), "clock").text


@pytest.mark.parametrize(
    "headers",
    [{"Age": "700", "Date": formatdate(0)}, {"Date": "yesterday, I think"}],
    ids=["out of a cache", "no moment"],
)
async def test_invalid_dates_are_not_compared(tmp_path: Path, headers: dict[str, str]) -> None:
    async with service(headers) as url:
        found = only(await check_clock(with_model(tmp_path, url)), "clock")
    assert (found.level, "does not send the time" in found.text) == ("ok", True)


async def test_without_a_service_the_clock_is_not_compared(tmp_path: Path) -> None:
    assert "no service" in only(await check_clock(case_of(tmp_path)), "clock").text


def test_only_a_large_clock_skew_is_reported() -> None:
    assert [skew_finding(apart, "x").level for apart in (29.9, -29.9, 30, -299, 300, -301)] == [
        "ok", "ok", "warn", "warn", "fail", "fail",
    ]  # fmt: skip
