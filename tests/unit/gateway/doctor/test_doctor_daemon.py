"""Doctor checks of the running gateway and of remains of a killed one."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from aiohttp import web

from gateway.config.loader import ConfigOptions
from gateway.operate.doctor.context import DoctorContext, collect_context
from gateway.operate.doctor.daemon import check_daemon, remove_stale_socket
from gateway.process.control_socket import serve_control_socket, socket_path
from gateway.process.lock import find_lock_holder, hold_state_folder
from platforms.core.registry import load_specs
from sessions.values.clock import SystemClock
from tests.fakes.case import only, told


async def taken(home: Path) -> DoctorContext:
    environ = {"HOME": str(home), "HOLDFAST_HOME": str(home)}
    return await collect_context(ConfigOptions(), environ, load_specs(), clock=SystemClock())


@contextlib.asynccontextmanager
async def running(home: Path, *troubles: str, **status: Any) -> AsyncIterator[None]:
    """A stand-in that locks the state folder and answers like the gateway."""

    async def ready(_: web.Request) -> web.Response:
        body = {"ready": not troubles, "not_ready": list(troubles)}
        return web.json_response(body, status=503 if troubles else 200)

    app = web.Application()
    app.router.add_get("/readyz", ready)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/"

    async def standing() -> dict[str, Any]:
        return {"state": "running", "url": url, "running": 2, **status}

    with hold_state_folder(home):
        async with serve_control_socket(socket_path(home, {}), {"status": standing}):
            try:
                yield
            finally:
                await runner.cleanup()


async def test_no_running_gateway_is_ok(tmp_path: Path) -> None:
    found = await check_daemon(await taken(tmp_path))
    assert told(found) == [("ok", "gateway")]
    assert "holdfast run" in found[0].text


async def test_a_healthy_gateway_is_named_with_its_address(tmp_path: Path) -> None:
    async with running(tmp_path, version=version("holdfast")):
        case = await taken(tmp_path)
        found = await check_daemon(case)
    assert told(found) == [("ok", "gateway")]
    assert "running at http://127.0.0.1:" in found[0].text
    assert "2 turns running" in found[0].text
    assert (case.daemon.running, case.daemon.lock_held, case.daemon.lock_holder) == (
        True,
        True,
        str(os.getpid()),
    )


async def test_readiness_problems_are_reported_except_those_checked_elsewhere(
    tmp_path: Path,
) -> None:
    async with running(
        tmp_path, "telegram: another program receives", "disk: full", "gateway: stopping, no new"
    ):
        found = await check_daemon(await taken(tmp_path))
    assert told(found) == [("ok", "gateway"), ("fail", "telegram"), ("warn", "gateway")]
    assert found[1].text == "another program receives"


async def test_a_running_version_other_than_the_installed_one_is_reported(tmp_path: Path) -> None:
    async with running(tmp_path, version="0.0.1", safe_mode="safe mode after 3 crashes"):
        found = await check_daemon(await taken(tmp_path))
    assert "0.0.1 is running, but" in only(found, "version").text
    assert only(found, "safe mode").level == "warn"


async def test_models_and_servers_that_do_not_work_are_reported(tmp_path: Path) -> None:
    degraded = {"model openai": "no key", "MCP server shop": "not connected: 401"}
    async with running(tmp_path, degraded=degraded):
        found = await check_daemon(await taken(tmp_path))
    assert told(found) == [("ok", "gateway"), ("warn", "model openai"), ("warn", "MCP server shop")]


async def test_an_http_port_that_does_not_answer_is_reported(tmp_path: Path) -> None:
    async with running(tmp_path, url="http://127.0.0.1:1"):
        found = await check_daemon(await taken(tmp_path))
    assert [each.level for each in found] == ["ok", "fail"]
    async with running(tmp_path, url=None):
        assert told(await check_daemon(await taken(tmp_path))) == [("ok", "gateway")]


async def test_a_gateway_that_holds_the_lock_without_answering_is_reported(tmp_path: Path) -> None:
    with hold_state_folder(tmp_path):
        case = await taken(tmp_path)
    assert told(await check_daemon(case)) == [("warn", "gateway")]
    assert f"process {os.getpid()}" in (await check_daemon(case))[0].text


async def test_inspecting_the_lock_does_not_take_it(tmp_path: Path) -> None:
    with hold_state_folder(tmp_path):
        pass
    assert find_lock_holder(tmp_path) == (False, "")
    with hold_state_folder(tmp_path):
        assert find_lock_holder(tmp_path) == (True, str(os.getpid()))
        strange = tmp_path / "locks"  # a file system with unusual device numbers
        inode = (tmp_path / "lock").stat().st_ino
        strange.write_text(f"1: FLOCK  ADVISORY  WRITE {os.getpid()} ff:ff:{inode} 0 EOF\nx\n")
        assert find_lock_holder(tmp_path, strange)[0]
        strange.write_text(f"1: FLOCK  ADVISORY  WRITE 1 ff:ff:{inode} 0 EOF\n")
        assert not find_lock_holder(tmp_path, strange)[0]
        assert not find_lock_holder(tmp_path, tmp_path / "nowhere")[0]


async def test_a_stale_socket_is_found_and_removed(tmp_path: Path) -> None:
    path = socket_path(tmp_path, {})
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    case = await taken(tmp_path)
    found = only(await check_daemon(case), "socket")
    assert (found.level, found.mend) == ("warn", "socket")
    assert list(remove_stale_socket(case)) == [(True, f"removed {path}")]
    assert not await asyncio.to_thread(path.exists)
    assert list(remove_stale_socket(case)) == []
    assert told(await check_daemon(case)) == [("ok", "gateway")]


async def test_a_socket_that_cannot_be_removed_is_reported(tmp_path: Path) -> None:
    case = await taken(tmp_path)
    socket_path(tmp_path, {}).mkdir()
    ((well, said),) = remove_stale_socket(case)
    assert (well, "could not be removed" in said) == (False, True)


async def test_a_gateway_that_hangs_is_reported(tmp_path: Path) -> None:
    async def refuses() -> None:
        msg = "not now"
        raise ValueError(msg)

    with hold_state_folder(tmp_path):
        async with serve_control_socket(socket_path(tmp_path, {}), {"status": refuses}):
            case = await taken(tmp_path)
    assert case.daemon.problem == "not now"
    found = only(await check_daemon(case), "gateway")
    assert (found.level, f"process {os.getpid()}" in found.text) == ("fail", True)
