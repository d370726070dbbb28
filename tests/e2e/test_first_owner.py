"""The person who starts the gateway becomes its owner by the printed link."""

import asyncio
import re
import sys
from pathlib import Path

from gateway.config.loader import read_environment
from sessions.values.clock import SystemClock
from tests.fakes.telegram.server import BOT_NAME, TOKEN, serving

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
PATIENCE = 15.0
LINK = re.compile(rf"https://t\.me/{BOT_NAME}\?start=([A-Z0-9]{{8}})\s")


async def test_opening_the_printed_link_makes_a_person_the_owner(tmp_path: Path) -> None:
    passed_on = ("PATH", "COVERAGE", "LANG")
    environ = {
        name: each for name, each in read_environment().items() if name.startswith(passed_on)
    }
    environ |= {"HOME": str(tmp_path), "TELEGRAM_BOT_TOKEN": TOKEN}
    async with serving() as server, asyncio.timeout(PATIENCE):
        api = f"platforms.telegram.base_url={server.url}"
        daemon = await asyncio.create_subprocess_exec(
            *(HOLDFAST, "run", "--set", "http.port=0", "--set", api),
            stdout=asyncio.subprocess.PIPE,
            cwd=tmp_path,
            env=environ,
        )
        try:
            assert daemon.stdout is not None
            said = ""
            while "pair claim" not in said:
                line = await daemon.stdout.readline()
                assert line, "it ended without naming the command for the code"
                said += line.decode()
            assert "/enter/" not in said
            assert not LINK.search(said)
            command = await asyncio.create_subprocess_exec(
                *(HOLDFAST, "pair", "claim"),
                stdout=asyncio.subprocess.PIPE,
                cwd=tmp_path,
                env=environ,
            )
            shown, _ = await command.communicate()
            found = LINK.search(shown.decode())
            assert found
            now = SystemClock().now() // 1000
            server.say(1001, f"/start {found[1]}", date=now)
            await server.shows(1001, "You are now the owner of this gateway")
            server.say(1002, f"/start {found[1]}", user=1002, date=now)
            await server.shows(1002, "This code is not valid")
        finally:
            daemon.terminate()
            await daemon.wait()
