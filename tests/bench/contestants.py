"""The two programs that are measured, each a process of its own in front of services of its own.

Both run on the same cores, the services on the others where there are enough. What a program used
is read from `/proc`: it and all that it started.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from gateway.config.loader import read_environment
from tests.bench.chat_service import TOKEN
from tests.bench.orders import Order, Reach, Reached, Report

_TICKS = os.sysconf("SC_CLK_TCK")
_SERVICE_SECONDS = 20.0
_MARGIN = 30.0  # beyond the patience that an order has itself
_STOP_SECONDS = 20.0
_OTHERS = ("HOLDFAST", "OPENAI", "ANTHROPIC", "TELEGRAM", "DISCORD", "SLACK", "NOTIFY")

read_report = msgspec.json.Decoder(Report).decode


class Cores(msgspec.Struct, frozen=True):
    """Where the programs run, and where the services."""

    program: int | None = None
    service: int | None = None

    @classmethod
    def of_this_machine(cls) -> "Cores":
        """One for the program, another for the services; where there is one, all share it."""
        there = sorted(os.sched_getaffinity(0))
        return cls(there[0], there[1]) if len(there) > 1 else cls()


class Used(msgspec.Struct, frozen=True):
    """What a program used at a moment."""

    cpu: float  # seconds
    memory: float  # megabytes


def used_by(pid: int) -> Used:
    """Read what a process and those that it started have used."""
    cpu = memory = 0.0
    for each in _family(pid):
        try:
            fields = Path(f"/proc/{each}/stat").read_text(encoding="ascii").rpartition(")")[2]
            status = Path(f"/proc/{each}/status").read_text(encoding="utf-8")
        except OSError:
            continue  # it has ended
        cpu += sum(map(int, fields.split()[11:15])) / _TICKS  # also of those that have ended
        resident = status.partition("VmRSS:")[2].split(maxsplit=1)
        memory += int(resident[0]) / 1024 if resident else 0.0
    return Used(cpu, memory)


def used_by_others() -> float:
    """Seconds of CPU that this machine spent on what is not of this run, since it was started."""
    user, nice, system, _, _, *rest = map(
        int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9]
    )
    return (user + nice + system + sum(rest)) / _TICKS - used_by(os.getpid()).cpu


def _family(pid: int) -> list[int]:
    found = [pid]
    for each in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{each}/task").iterdir():
                found += map(int, (task / "children").read_text(encoding="ascii").split())
    return found


class Services:
    """A Telegram and a model service, for one program."""

    def __init__(self, telegram: str, model: str, chat: asyncio.subprocess.Process) -> None:
        self.telegram = telegram
        self.model = model
        self._chat = chat

    async def order(self, order: Order) -> None:
        """Give an order to the Telegram."""
        assert self._chat.stdin
        self._chat.stdin.write(msgspec.json.encode(order) + b"\n")
        await self._chat.stdin.drain()

    async def report(self, seconds: float) -> Report:
        """Hear what came of an order."""
        assert self._chat.stdout
        async with asyncio.timeout(seconds + _MARGIN):
            report: Report = read_report(await self._chat.stdout.readline())
        return report


@contextlib.asynccontextmanager
async def _service(
    module: str, core: int | None
) -> AsyncIterator[tuple[int, asyncio.subprocess.Process]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", f"tests.bench.{module}", *([] if core is None else [str(core)])),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**24,
    )
    assert process.stdout
    try:
        async with asyncio.timeout(_SERVICE_SECONDS):
            port = int(await process.stdout.readline())
        yield port, process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def services(cores: Cores) -> AsyncIterator[Services]:
    """Run both services."""
    async with (
        _service("answer_service", cores.service) as (model, _),
        _service("chat_service", cores.service) as (telegram, process),
    ):
        yield Services(f"http://127.0.0.1:{telegram}", f"http://127.0.0.1:{model}/v1", process)


class Entrant(Protocol):
    """A program that takes part."""

    name: str

    def command(self, services: Services, home: Path) -> Sequence[str]:
        """How it is started."""
        ...

    def environ(self, services: Services, home: Path) -> dict[str, str]:
        """What it finds in its environment."""
        ...


class Ours:
    """The gateway as it is by default, with everybody let in as often as they like."""

    name = "ours"

    def command(self, services: Services, home: Path) -> Sequence[str]:
        settings = (
            "http.port=0",
            'access.allow=["telegram:*"]',
            "limits.messages_per_minute=1000000",
            f"platforms.telegram.base_url={services.telegram}",
            "model.name=bench",
        )
        sets = [part for each in settings for part in ("--set", each)]
        return [str(Path(sys.executable).with_name("holdfast")), "run", *sets]

    def environ(self, services: Services, home: Path) -> dict[str, str]:
        return {
            "HOLDFAST_HOME": str(home),
            "TELEGRAM_BOT_TOKEN": TOKEN,
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": services.model,
        }


class Floor:
    """The least that does the same job, see `tests.bench.floor`."""

    name = "floor"

    def command(self, services: Services, home: Path) -> Sequence[str]:
        program = Path(__file__).with_name("floor.py")
        return [sys.executable, str(program), services.telegram, TOKEN, services.model]

    def environ(self, services: Services, home: Path) -> dict[str, str]:
        return {}


class Gone(Exception):
    """A program has ended, or did not come up."""

    def __init__(self, name: str, log: Path) -> None:
        said = log.read_text(encoding="utf-8", errors="replace")
        super().__init__(f"{name} does not run. What it said last:\n{said[-4000:]}")


class Contestant:
    """A program and its services; started, measured, killed and started again."""

    def __init__(self, entrant: Entrant, services: Services, home: Path, cores: Cores) -> None:
        self.name = entrant.name
        self.home = home
        self.services = services
        self.start_seconds = 0.0
        self._entrant = entrant
        self._cores = cores
        self._process: asyncio.subprocess.Process | None = None
        self._log = home.parent / f"{home.name}.log"

    async def start(self) -> float:
        """Start it; gives the seconds until it asks Telegram for messages."""
        await self.services.order(Reach())
        await asyncio.sleep(0.05)  # the order is there before the program is
        began = asyncio.get_running_loop().time()
        environ = {
            name: value
            for name, value in read_environment().items()
            if not name.startswith(_OTHERS)
        }
        environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed has its bytecode
        environ |= {
            "HOME": str(self.home),
            "PYTHONPYCACHEPREFIX": str(self.home.parent / "bytecode"),
            **self._entrant.environ(self.services, self.home),
        }
        with self._log.open("ab") as log, _on(self._cores.program):
            self._process = await asyncio.create_subprocess_exec(
                *self._entrant.command(self.services, self.home),
                env=environ,
                cwd=self.home,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        reached = await self.services.report(Reach().seconds)
        if not isinstance(reached, Reached) or not reached.at:
            raise Gone(self.name, self._log)
        self.start_seconds = reached.at / 1e9 - began
        return self.start_seconds

    def used(self) -> Used:
        """What it has used until now."""
        assert self._process
        if self._process.returncode is not None:
            raise Gone(self.name, self._log)
        return used_by(self._process.pid)

    async def kill(self) -> None:
        """As a power cut would."""
        if self._process and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def stop(self) -> None:
        """As systemd would."""
        if self._process and self._process.returncode is None:
            self._process.terminate()
            try:
                async with asyncio.timeout(_STOP_SECONDS):
                    await self._process.wait()
            except TimeoutError:
                await self.kill()

    async def ask(self, order: Order, seconds: float = 60.0) -> Report:
        """Have people do something, and hear how it went."""
        await self.services.order(order)
        return await self.services.report(seconds)


@contextlib.contextmanager
def _on(core: int | None) -> Iterator[None]:
    """What is started here runs on this core."""
    before = os.sched_getaffinity(0)
    if core is not None:
        os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.asynccontextmanager
async def entered(entrant: Entrant, folder: Path, cores: Cores) -> AsyncIterator[Contestant]:
    """Give a contestant that is not started yet, and end it in the end."""
    home = folder / entrant.name
    home.mkdir()
    async with services(cores) as its:
        contestant = Contestant(entrant, its, home, cores)
        try:
            yield contestant
        finally:
            await contestant.kill()
