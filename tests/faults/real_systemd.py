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
from tests.faults.machine import Machine, Unbootable, booted

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
PATIENCE = 60.0
SLOW = 4.0
STATE = "/var/lib/holdfast"
QUICK = "[Service]\nRestartSec=1\nWatchdogSec=4\n"
_TWO_TIMES = re.compile(
    r"20\d\d-\d\d-\d\dT\S+ .*20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z (info|warning|error)"
)


class Town:
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


async def installed(town: Town) -> str:
    dry = await town.holdfast("service", "install", "--dry-run", env=town.environ)
    assert TOKEN not in dry
    assert "enable holdfast.service" in dry
    await town.run("test", "!", "-e", "/etc/systemd/system/holdfast.service")
    said = await town.holdfast("service", "install", env=town.environ)
    assert "Holdfast is installed as a service" in said, said
    found = await town.shown()
    assert "telegram" in found["StatusText"], found
    verified = await town.run(
        "systemd-analyze", "verify", "--man=no", "/etc/systemd/system/holdfast.service"
    )
    assert not verified, verified
    kept = "/etc/holdfast/credentials"
    modes = await town.run("stat", "-c", "%a %U", kept, f"{kept}/TELEGRAM_BOT_TOKEN")
    assert modes.split() == ["700", "root", "600", "root"], modes
    owner = await town.run("stat", "-L", "-c", "%a %U", STATE)
    assert owner.split() == ["700", "holdfast"], owner
    user = (await town.run("ps", "-o", "user=", "-p", found["MainPID"])).strip()
    assert user == "holdfast", user
    return f"“{found['StatusText']}”, as user {user}"


async def answers(town: Town) -> str:
    await town.is_answered()
    said = await town.holdfast("service", "status")
    assert "telegram" in said, said
    url = json.loads(await town.holdfast("status", "--json"))["url"]
    live = await asyncio.create_subprocess_exec(
        sys.executable, "-c",
        "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read())",
        f"{url}livez",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert b"ok" in (await live.communicate())[0]
    assert "/enter/" in await town.holdfast("link")
    assert "telegram:1001" in await town.holdfast("sessions", "list")
    refused = await town.holdfast("run", code=1)
    assert "belongs to this machine's service" in refused, refused
    return "a message, /livez, and root's `status`, `link`, `sessions list`"


async def reloads(town: Town) -> str:
    before = await town.shown()
    await town.holdfast("service", "reload")
    await town.is_answered()
    assert (await town.shown())["MainPID"] == before["MainPID"]
    assert "configuration reloaded" in await town.holdfast("service", "logs", "-n", "20")
    return "the same process, and a line in its log"


async def restarts(town: Town) -> str:
    before = await town.shown()
    await town.holdfast("service", "restart")
    after = await town.shown()
    assert after["MainPID"] == before["MainPID"]  # it becomes the new program: nothing is refused
    assert after["NRestarts"] == before["NRestarts"]
    assert "restart finished after" in await town.holdfast("service", "logs", "-n", "20")
    await town.is_answered()
    return "the same process, begun anew, answers"


async def quickened(town: Town) -> str:
    """Shorter waits, by a drop-in as an operator would write it."""
    folder = "/etc/systemd/system/holdfast.service.d"
    await town.run("sh", "-c", f"mkdir {folder} && printf '{QUICK}' > {folder}/quick.conf")
    await town.run("systemctl", "daemon-reload")
    await town.holdfast("service", "restart")
    return "by a drop-in: RestartSec=1, WatchdogSec=4"


async def comes_back(town: Town) -> str:
    before = await town.shown()
    await town.run("kill", "-9", before["MainPID"])
    word = next(town._words)
    town.say(word)
    await town.until(
        lambda now: now["ActiveState"] == "active" and now["MainPID"] != before["MainPID"]
    )
    await town.telegram.until(lambda: town._answers(word) == 1, PATIENCE)
    return "what was said meanwhile is answered"


async def hangs(town: Town) -> str:
    before = await town.shown()
    begun = time.monotonic()
    await town.run("kill", "-STOP", before["MainPID"])
    await town.until(
        lambda now: now["ActiveState"] == "active" and now["MainPID"] != before["MainPID"]
    )
    took = time.monotonic() - begun
    assert "Watchdog timeout" in await town.log()
    await town.is_answered()
    return f"killed by the watchdog and started anew within {took:.0f} s"


async def stays_while_locked(town: Town) -> str:
    before = await town.shown()
    hold = (
        "import sqlite3, sys; other = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "other.execute('BEGIN IMMEDIATE'); print('held', flush=True); sys.stdin.read()"
    )
    holder = town.machine.popen(sys.executable, "-c", hold, f"{STATE}/holdfast.db")
    assert holder.stdout
    assert await asyncio.to_thread(holder.stdout.readline) == "held\n"
    await asyncio.sleep(16)  # four times as long as the watchdog waits
    assert (await town.shown())["MainPID"] == before["MainPID"]
    await asyncio.to_thread(holder.communicate)
    await town.is_answered()
    return "not killed in 16 s of a locked database, and it answers afterwards"


async def stays_down(town: Town) -> str:
    """With a configuration that cannot work."""
    await town.run("sh", "-c", "echo '[gatewy]' > /etc/holdfast/holdfast.toml")
    said = await town.holdfast("service", "restart", code=1)
    assert "nothing was interrupted" in said, said
    assert "gatewy" in said, said
    await town.is_answered()
    await town.run("sh", "-c", "systemctl restart holdfast || true")  # as when the machine starts
    found = await town.until(lambda now: now["SubState"] == "failed")
    assert found["ExecMainStatus"] == "78", found
    assert "failed" in await town.holdfast("service", "status", code=1)
    refused = await town.holdfast("service", "install", code=78, env=town.environ)
    assert "gatewy" in refused
    await town.run("rm", "/etc/holdfast/holdfast.toml")
    await town.holdfast("service", "start")
    await town.is_answered()
    return "not restarted into it; by systemd: exit code 78, failed, not tried again"


async def drains(town: Town) -> str:
    town.say("slowly please")
    await asyncio.sleep(SLOW / 4)
    begun = time.monotonic()
    await town.holdfast("service", "stop")
    took = time.monotonic() - begun
    assert town._answers("slowly please") == 1, town.telegram.screen(1001)
    found = await town.shown()
    assert (found["ActiveState"], found["Result"]) == ("inactive", "success"), found
    return f"the running answer came before the end, after {took:.1f} s"


async def logs_well(town: Town) -> str:
    said = await town.holdfast("service", "logs", "-n", "1000")
    lines = said.splitlines()
    assert lines
    twice = [line for line in lines if _TWO_TIMES.search(line)]
    assert not twice, twice
    signs = [line for line in lines if re.search(r"<\d>", line)]
    assert not signs, signs
    warned = await town.run(
        "journalctl", "-u", "holdfast", "-p", "warning", "-o", "cat", "--no-pager"
    )
    assert "configuration reloaded" not in warned  # which is but information
    return f"{len(lines)} lines, none with two times"


async def gone(town: Town) -> str:
    said = await town.holdfast("service", "uninstall")
    assert STATE in said
    await town.run("test", "!", "-e", "/etc/systemd/system/holdfast.service")
    await town.run("test", "-f", f"{STATE}/holdfast.db")
    return "the unit is gone, the state is not"


async def sandboxes(town: Town) -> str:
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
        done = await asyncio.to_thread(town.machine.run, "sh", "-c", script)
        outcomes.append(done.returncode == 0)
    assert outcomes == [True, False], outcomes
    return "bwrap runs in the form with room for it, and only in that one"


async def of_a_user(town: Town) -> str:
    name = "ann"
    await town.run("useradd", "--create-home", name)
    await town.run("chmod", "711", "/root")  # this Python may lie there
    number = (await town.run("id", "-u", name)).strip()
    await town.run("loginctl", "enable-linger", name)
    await town.run("systemctl", "start", f"user@{number}.service")
    env = {**town.environ, "HOME": f"/home/{name}"}
    as_user = ("setpriv", f"--reuid={number}", f"--regid={number}", "--init-groups")
    command = (*as_user, HOLDFAST, "service")
    said = await town.run(*command, "install", code=1, env=env)
    assert "needs root" in said, said
    said = await town.run(*command, "install", "--user", env=env)
    assert "Holdfast is installed as a service" in said, said
    await town.is_answered()
    assert "telegram" in await town.run(*command, "status", env={"HOME": env["HOME"]})
    await town.run(*command, "restart", env={"HOME": env["HOME"]})
    await town.is_answered()
    logged = await town.run("journalctl", f"_UID={number}", "-o", "cat", "--no-pager")
    assert "gateway.connections.supervision: telegram is connected" in logged, logged
    said = await town.run(*command, "uninstall", env={"HOME": env["HOME"]})
    assert f"/home/{name}/.local/share/holdfast" in said, said
    return f"without root: {render_user_unit(ServiceUnit()).count('=')} keys that its manager takes"


Part = Callable[[Town], Awaitable[str]]

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
                town = Town(machine, telegram, model)
                for name, part in PARTS.items():
                    begun = time.monotonic()
                    try:
                        found = await part(town)
                    except BaseException:
                        print(f"{name:<24} FAILED\n{await town.log()}", file=sys.stderr)  # noqa: T201 - a report
                        raise
                    print(f"{name:<24} {found}  ({time.monotonic() - begun:.1f} s)")  # noqa: T201
    except Unbootable as error:
        print(f"No machine can be booted here: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
