"""Reports and recovery when the disk is full or the store does not accept writes."""

import asyncio
import contextlib
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.observe import disk
from gateway.settings import GatewaySettings
from platforms.core.contract import Live
from sessions.values.size import Size
from tests.e2e.gateway_kit import PATIENCE, GatewayKit, Screen, gateway, opened, talkative
from tests.e2e.test_operating import SERVED, address, get, not_ready
from tests.fakes.model_server import ModelServer

CHIEF = "9"
ADMINS = ("memory:9",)
NEVER = GatewaySettings(drain_seconds=0, disk_low=Size(0))


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Mount a small disk that a test can fill."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only who may mount a disk can fill one")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path, leave: int = 0) -> None:
    with (folder / "ballast").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while (left := disk.free_bytes(folder)) > leave:
            file.write(bytes(min(left - leave, 1 << 16)))


def empty(folder: Path) -> None:
    (folder / "ballast").unlink()


def check_alerts(kit: GatewayKit) -> None:
    """Make the daemon check its alerts now."""
    kit.runner._alert_wakeup.set()


async def wait_until_ready(kit: GatewayKit) -> None:
    async with asyncio.timeout(PATIENCE):
        while await not_ready(kit):
            pass


async def test_full_disk_is_reported_and_messages_are_answered_afterwards(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "state") as folder:
        async with (
            ModelServer(talkative) as model,
            gateway(folder, model, gateway=NEVER, **SERVED) as kit,
        ):
            assert await not_ready(kit) == []
            fill(folder)
            (problem,) = await not_ready(kit)
            assert problem == (
                f"store: The database {folder}/holdfast.db cannot be used: the disk is full"
            )
            assert await get(f"{address(kit)}livez") == (200, "ok\n")
            with pytest.raises(asyncio.CancelledError):  # not acknowledged
                await kit.screen.say("1001", "hello", event="one")
            empty(folder)
            await wait_until_ready(kit)
            await kit.screen.say("1001", "hello", event="one")  # so the platform delivers it again
            await kit.screen.shows("1001", "echo: hello")


async def test_admins_get_one_notice_when_the_disk_is_low_and_one_when_it_recovers(
    tmp_path: Path,
) -> None:
    screen = Screen(live=Live.EDIT, live_interval=0.01, burst=1000)
    low = GatewaySettings(drain_seconds=0, disk_low=Size(12_000_000))
    with small_disk(tmp_path / "state") as folder:
        async with ModelServer(talkative) as model:
            async with gateway(folder, model, screen, gateway=low, admins=ADMINS) as kit:
                fill(folder, leave=8_000_000)
                check_alerts(kit)
                await screen.shows(CHIEF, "🛠 The disk is nearly full", f"left in {folder}")
                check_alerts(kit)
                await screen.say("1001", "what else?")
                await screen.shows("1001", "echo: what else?")
            async with gateway(folder, model, screen, gateway=low, admins=ADMINS) as kit:
                empty(folder)
                check_alerts(kit)
                await screen.shows(CHIEF, "✅ The disk has free space again")
                await screen.say("1001", "and now?")
                await screen.shows("1001", "echo: and now?")
        assert len(screen.messages(CHIEF)) == 2
        async with opened(folder) as store:
            assert await store.get_value("operators", "book") == "{}"


async def test_hanging_store_is_reported_and_does_not_delay_other_requests(
    tmp_path: Path,
) -> None:
    loop = asyncio.get_running_loop()
    async with (
        ModelServer(talkative) as model,
        gateway(tmp_path, model, gateway=NEVER, **SERVED) as kit,
    ):
        await kit.screen.say("1001", "hello")
        await kit.screen.shows("1001", "echo: hello")
        kit.runner._report_problem("memory", "something else is wrong, too")
        with contextlib.closing(sqlite3.connect(tmp_path / "holdfast.db")) as other:
            other.execute("BEGIN IMMEDIATE")  # another program locks the database
            began = loop.time()
            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(not_ready(kit)) for _ in range(20)]
                assert await get(f"{address(kit)}livez") == (200, "ok\n")
                assert loop.time() - began < 1.5
            assert loop.time() - began < 4  # 2 s plus a margin for a busy machine
            for each in asked:
                assert each.result() == [
                    "memory: something else is wrong, too",
                    "store: nothing could be written within 2 s",
                ]
            other.rollback()
        kit.runner._report_problem("memory", "")
        await wait_until_ready(kit)
