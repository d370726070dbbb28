"""Holdfast as a service of a real systemd: installed, asked, killed, hung, stopped, taken away.

`python -m tests.faults.real_systemd` boots a machine inside of this one, see `tests.faults.machine`,
and needs root. A small Telegram and a small model on loopback are what the service talks to.
"""

import asyncio
import itertools
import json
import re
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from gateway.operate.systemd.unit import ServiceUnit, render_system_unit, render_user_unit
from sessions.values.clock import SystemClock
from tests.fakes.dialects.requests import last_user_text
from tests.fakes.model_script import Script
from tests.fakes.model_server import ModelServer, echo
from tests.fakes.telegram.server import TOKEN, TelegramServer, serving
from tests.faults.installing import documented
from tests.faults.machine import Machine, Unbootable, booted

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
PATIENCE = 60.0
SLOW = 4.0
STATE = "/var/lib/holdfast"
QUICK = "[Service]\nRestartSec=1\nWatchdogSec=4\n"
_TWO_TIMES = re.compile(
    r"20\d\d-\d\d-\d\dT\S+ .*20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z (info|warning|error)"
)


class ThreePlatforms:
    """The machine, and who talks to the service on it."""

    def __init__(self, machine: Machine, telegram: TelegramServer, model: ModelServer) -> None:
        self.machine = machine
        self.telegram = telegram
        self.environ = {
            "TELEGRAM_BOT_TOKEN": TOKEN,
            "HOLDFAST_PLATFORMS__TELEGRAM__BASE_URL": telegram.url,
            "OPENAI_API_KEY": "sk-of-the-test",
            "OPENAI_BASE_URL": f"{model.url}/v1",
            "HOLDFAST_HTTP__PORT": "0",
            "HOLDFAST_ACCESS__ALLOW": '["telegram:1001"]',
        }
        self._words = (f"word{number}" for number in itertools.count())

    async def run(self, *words: str, code: int = 0, env: dict[str, str] | None = None) -> str:
        done = await asyncio.to_thread(self.machine.run, *words, env=env)
        said = done.stdout + done.stderr
        assert done.returncode == code, f"{' '.join(words)}: {done.returncode}\n{said}"
        return said

    async def holdfast(self, *words: str, code: int = 0, env: dict[str, str] | None = None) -> str:
        return await self.run(HOLDFAST, *words, code=code, env=env)

    async def shown(self) -> dict[str, str]:
        names = "ActiveState,SubState,MainPID,NRestarts,StatusText,ExecMainStatus,Result"
        said = await self.run("systemctl", "show", "holdfast", f"--property={names}")
        return dict(line.partition("=")[::2] for line in said.splitlines())

    async def until(self, well: Callable[[dict[str, str]], bool]) -> dict[str, str]:
        found = await self.shown()
        try:
            async with asyncio.timeout(PATIENCE):
                while not well(found):
                    await asyncio.sleep(0.2)
                    found = await self.shown()
        except TimeoutError:
            msg = f"the service never came to be as wanted: {found}\n{await self.log()}"
            raise AssertionError(msg) from None
        return found

    async def log(self) -> str:
        return await self.run("journalctl", "-u", "holdfast", "-n", "40", "--no-pager")

    def say(self, text: str) -> None:
        self.telegram.say(1001, text, date=SystemClock().now() // 1000)

    async def is_answered(self) -> None:
        word = next(self._words)
        self.say(word)
        await self.telegram.until(lambda: self._answers(word) > 0, PATIENCE)
        assert self._answers(word) == 1

    def _answers(self, word: str) -> int:
        return sum(f"echo: {word}" in text for text in self.telegram.screen(1001))


async def installed(three_platforms: ThreePlatforms) -> str:
    dry = await three_platforms.holdfast(
        "service", "install", "--dry-run", env=three_platforms.environ
    )
    assert TOKEN not in dry
    assert "enable holdfast.service" in dry
    await three_platforms.run("test", "!", "-e", "/etc/systemd/system/holdfast.service")
    said = await three_platforms.holdfast("service", "install", env=three_platforms.environ)
    assert "Holdfast is installed as a service" in said, said
    found = await three_platforms.shown()
    assert "telegram" in found["StatusText"], found
    verified = await three_platforms.run(
        "systemd-analyze", "verify", "--man=no", "/etc/systemd/system/holdfast.service"
    )
    assert not verified, verified
    kept = "/etc/holdfast/credentials"
    modes = await three_platforms.run("stat", "-c", "%a %U", kept, f"{kept}/TELEGRAM_BOT_TOKEN")
    assert modes.split() == ["700", "root", "600", "root"], modes
    owner = await three_platforms.run("stat", "-L", "-c", "%a %U", STATE)
    assert owner.split() == ["700", "holdfast"], owner
    user = (await three_platforms.run("ps", "-o", "user=", "-p", found["MainPID"])).strip()
    assert user == "holdfast", user
    return f"“{found['StatusText']}”, as user {user}"


async def answers(three_platforms: ThreePlatforms) -> str:
    await three_platforms.is_answered()
    said = await three_platforms.holdfast("service", "status")
    assert "telegram" in said, said
    url = json.loads(await three_platforms.holdfast("status", "--json"))["url"]
    live = await asyncio.create_subprocess_exec(
        sys.executable, "-c",
        "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read())",
        f"{url}livez",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert b"ok" in (await live.communicate())[0]
    assert "/enter/" in await three_platforms.holdfast("link")
    assert "telegram:1001" in await three_platforms.holdfast("sessions", "list")
    refused = await three_platforms.holdfast("run", code=1)
    assert "belongs to this machine's service" in refused, refused
    return "a message, /livez, and root's `status`, `link`, `sessions list`"


async def reloads(three_platforms: ThreePlatforms) -> str:
    before = await three_platforms.shown()
    await three_platforms.holdfast("service", "reload")
    await three_platforms.is_answered()
    assert (await three_platforms.shown())["MainPID"] == before["MainPID"]
    assert "configuration reloaded" in await three_platforms.holdfast("service", "logs", "-n", "20")
    return "the same process, and a line in its log"


async def restarts(three_platforms: ThreePlatforms) -> str:
    before = await three_platforms.shown()
    await three_platforms.holdfast("service", "restart")
    after = await three_platforms.shown()
    assert after["MainPID"] == before["MainPID"]  # it becomes the new program: nothing is refused
    assert after["NRestarts"] == before["NRestarts"]
    assert "restart finished after" in await three_platforms.holdfast("service", "logs", "-n", "20")
    await three_platforms.is_answered()
    return "the same process, begun anew, answers"


async def quickened(three_platforms: ThreePlatforms) -> str:
    """Shorter waits, by a drop-in as an operator would write it."""
    folder = "/etc/systemd/system/holdfast.service.d"
    await three_platforms.run(
        "sh", "-c", f"mkdir {folder} && printf '{QUICK}' > {folder}/quick.conf"
    )
    await three_platforms.run("systemctl", "daemon-reload")
    await three_platforms.holdfast("service", "restart")
    return "by a drop-in: RestartSec=1, WatchdogSec=4"


async def comes_back(three_platforms: ThreePlatforms) -> str:
    before = await three_platforms.shown()
    await three_platforms.run("kill", "-9", before["MainPID"])
    word = next(three_platforms._words)
    three_platforms.say(word)
    await three_platforms.until(
        lambda now: now["ActiveState"] == "active" and now["MainPID"] != before["MainPID"]
    )
    await three_platforms.telegram.until(lambda: three_platforms._answers(word) == 1, PATIENCE)
    return "what was said meanwhile is answered"


async def hangs(three_platforms: ThreePlatforms) -> str:
    before = await three_platforms.shown()
    begun = time.monotonic()
    await three_platforms.run("kill", "-STOP", before["MainPID"])
    await three_platforms.until(
        lambda now: now["ActiveState"] == "active" and now["MainPID"] != before["MainPID"]
    )
    took = time.monotonic() - begun
    assert "Watchdog timeout" in await three_platforms.log()
    await three_platforms.is_answered()
    return f"killed by the watchdog and started anew within {took:.0f} s"


async def stays_while_locked(three_platforms: ThreePlatforms) -> str:
    before = await three_platforms.shown()
    hold = (
        "import sqlite3, sys; other = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "other.execute('BEGIN IMMEDIATE'); print('held', flush=True); sys.stdin.read()"
    )
    holder = three_platforms.machine.popen(sys.executable, "-c", hold, f"{STATE}/holdfast.db")
    assert holder.stdout
    assert await asyncio.to_thread(holder.stdout.readline) == "held\n"
    await asyncio.sleep(16)  # four times as long as the watchdog waits
    assert (await three_platforms.shown())["MainPID"] == before["MainPID"]
    await asyncio.to_thread(holder.communicate)
    await three_platforms.is_answered()
    return "not killed in 16 s of a locked database, and it answers afterwards"


async def stays_down(three_platforms: ThreePlatforms) -> str:
    """With a configuration that cannot work."""
    await three_platforms.run("sh", "-c", "echo '[gatewy]' > /etc/holdfast/holdfast.toml")
    said = await three_platforms.holdfast("service", "restart", code=1)
    assert "nothing was interrupted" in said, said
    assert "gatewy" in said, said
    await three_platforms.is_answered()
    await three_platforms.run(
        "sh", "-c", "systemctl restart holdfast || true"
    )  # as when the machine starts
    found = await three_platforms.until(lambda now: now["SubState"] == "failed")
    assert found["ExecMainStatus"] == "78", found
    assert "failed" in await three_platforms.holdfast("service", "status", code=1)
    refused = await three_platforms.holdfast(
        "service", "install", code=78, env=three_platforms.environ
    )
    assert "gatewy" in refused
    await three_platforms.run("rm", "/etc/holdfast/holdfast.toml")
    await three_platforms.holdfast("service", "start")
    await three_platforms.is_answered()
    return "not restarted into it; by systemd: exit code 78, failed, not tried again"


async def drains(three_platforms: ThreePlatforms) -> str:
    three_platforms.say("slowly please")
    await asyncio.sleep(SLOW / 4)
    begun = time.monotonic()
    await three_platforms.holdfast("service", "stop")
    took = time.monotonic() - begun
    assert three_platforms._answers("slowly please") == 1, three_platforms.telegram.screen(1001)
    found = await three_platforms.shown()
    assert (found["ActiveState"], found["Result"]) == ("inactive", "success"), found
    return f"the running answer came before the end, after {took:.1f} s"


async def logs_well(three_platforms: ThreePlatforms) -> str:
    said = await three_platforms.holdfast("service", "logs", "-n", "1000")
    lines = said.splitlines()
    assert lines
    twice = [line for line in lines if _TWO_TIMES.search(line)]
    assert not twice, twice
    signs = [line for line in lines if re.search(r"<\d>", line)]
    assert not signs, signs
    warned = await three_platforms.run(
        "journalctl", "-u", "holdfast", "-p", "warning", "-o", "cat", "--no-pager"
    )
    assert "configuration reloaded" not in warned  # which is but information
    return f"{len(lines)} lines, none with two times"


async def gone(three_platforms: ThreePlatforms) -> str:
    said = await three_platforms.holdfast("service", "uninstall")
    assert STATE in said
    await three_platforms.run("test", "!", "-e", "/etc/systemd/system/holdfast.service")
    await three_platforms.run("test", "-f", f"{STATE}/holdfast.db")
    (removal,) = documented("Uninstall", STATE)
    await three_platforms.run("sh", "-c", removal.removeprefix("sudo "))
    left = await three_platforms.run(
        "find", "/etc", "/var/lib", "/var/log", "-xdev", "-name", "*holdfast*"
    )
    assert not left, left
    return "the unit is gone, the state is not; the documented command removes the rest"


async def sandboxes(three_platforms: ThreePlatforms) -> str:
    """The form that leaves room for bubblewrap does so, the other one does not."""
    sandbox = (
        "#!/bin/sh\nexec bwrap --unshare-all --die-with-parent --ro-bind /usr /usr --symlink usr/lib "
        "/lib --symlink usr/lib64 /lib64 --symlink usr/bin /bin --proc /proc --dev /dev --tmpfs /tmp "
        '--bind "$STATE_DIRECTORY" /work --chdir /work sh -c "cat /proc/self/status >x && test -s x"\n'
    )
    program = Path("/usr/local/bin/in-sandbox")
    once = "[Service]\nType=oneshot\nWatchdogSec=0\nRestart=no\n"
    outcomes = []
    for roomy in (True, False):
        text = render_system_unit(ServiceUnit(program=program, uses_sandbox=roomy)).replace(
            "Type=notify", "Type=oneshot"
        )
        script = (
            f"cat >{program} <<'EOF'\n{sandbox}EOF\nchmod 755 {program}\n"
            f"cat >/run/systemd/system/sandbox.service <<'EOF'\n{text}\n{once}EOF\n"
            "mkdir -p /etc/holdfast/credentials; systemctl daemon-reload; systemctl start sandbox"
        )
        done = await asyncio.to_thread(three_platforms.machine.run, "sh", "-c", script)
        outcomes.append(done.returncode == 0)
    assert outcomes == [True, False], outcomes
    return "bwrap runs in the form with room for it, and only in that one"


async def of_a_user(three_platforms: ThreePlatforms) -> str:
    name = "ann"
    await three_platforms.run("useradd", "--create-home", name)
    await three_platforms.run("chmod", "711", "/root")  # this Python may lie there
    number = (await three_platforms.run("id", "-u", name)).strip()
    await three_platforms.run("loginctl", "enable-linger", name)
    await three_platforms.run("systemctl", "start", f"user@{number}.service")
    env = {**three_platforms.environ, "HOME": f"/home/{name}"}
    as_user = ("setpriv", f"--reuid={number}", f"--regid={number}", "--init-groups")
    command = (*as_user, HOLDFAST, "service")
    said = await three_platforms.run(*command, "install", code=1, env=env)
    assert "needs root" in said, said
    said = await three_platforms.run(*command, "install", "--user", env=env)
    assert "Holdfast is installed as a service" in said, said
    await three_platforms.is_answered()
    assert "telegram" in await three_platforms.run(*command, "status", env={"HOME": env["HOME"]})
    await three_platforms.run(*command, "restart", env={"HOME": env["HOME"]})
    await three_platforms.is_answered()
    logged = await three_platforms.run("journalctl", f"_UID={number}", "-o", "cat", "--no-pager")
    assert "gateway.connections.supervision: telegram is connected" in logged, logged
    said = await three_platforms.run(*command, "uninstall", env={"HOME": env["HOME"]})
    assert f"/home/{name}/.local/share/holdfast" in said, said
    return f"without root: {render_user_unit(ServiceUnit()).count('=')} keys that its manager takes"


Part = Callable[[ThreePlatforms], Awaitable[str]]

PARTS: dict[str, Part] = {
    "install": installed,
    "a message is answered": answers,
    "reload": reloads,
    "restart": restarts,
    "shorter waits": quickened,
    "kill -9": comes_back,
    "a process that hangs": hangs,
    "a locked database": stays_while_locked,
    "a broken configuration": stays_down,
    "stop": drains,
    "the journal": logs_well,
    "uninstall": gone,
    "sandbox": sandboxes,
    "the service of a user": of_a_user,
}


def slow_or_echo(body: dict[str, Any]) -> Script:
    """Answer at once, unless it is asked to take its time."""
    return echo(SLOW / 4 if "slowly" in last_user_text(body) else 0.0)(body)


async def main() -> int:
    try:
        with booted() as machine:
            async with serving() as telegram, ModelServer(slow_or_echo) as model:
                three_platforms = ThreePlatforms(machine, telegram, model)
                for name, part in PARTS.items():
                    begun = time.monotonic()
                    try:
                        found = await part(three_platforms)
                    except BaseException:
                        print(f"{name:<24} FAILED\n{await three_platforms.log()}", file=sys.stderr)  # noqa: T201 - a report
                        raise
                    print(f"{name:<24} {found}  ({time.monotonic() - begun:.1f} s)")  # noqa: T201
    except Unbootable as error:
        print(f"No machine can be booted here: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
