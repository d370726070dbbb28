"""How long a token takes through the daemon to whoever reads it over the API, many streams at once.

`python -m tests.bench.api_streams` starts `holdfast run` on one core. The model service
(`tests.bench.model`) and the readers are lean processes on another; every token says when it was
written, and a reader takes bytes as the socket gives them. The delay of a token is the time from its
writing there to its arrival in the reader, so everything of ours lies in between, twice the kernel too.

Three loads: 500 streams that all speak, with 100 ms between tokens (about what the services of the
large models give) and with 50 ms; and 500 of which 50 say nothing for a while and 100 have readers
that take nothing and are to be cut off.
"""

import argparse
import asyncio
import contextlib
import gc
import json
import os
import re
import socket
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from sessions.records import TurnState
from tests.bench.contestants import Cores, used_by
from tests.bench.model import MUCH, SILENT, Report
from tests.e2e.daemon import Daemon
from tests.e2e.gateway_kit import opened

LIMIT = 0.050
"""Seconds that the median token may take."""

SLOW_AFTER = 2
"""Seconds after which a reader that takes nothing is cut off; most users have 30."""

_KEY = "key-of-the-bench"
_MORE_THREADS = 8  # that the daemon may have besides those of its beginning, whatever the load
_MOST_MEMORY = 0.25  # megabytes of a stream
_MOST_KEPT = 2.0  # megabytes more of one that is not read
_MOST_WAITED = 0.1  # share of the time; above it a delay says nothing about us
_PATIENCE = 60.0  # beyond the time that the streams themselves take
_TICKS = os.sysconf("SC_CLK_TCK")
_SIGN = b": keepalive"
_STAMP = re.compile(rb" (\d{19}) word")
_LONGEST = 25  # bytes of it


class Load(msgspec.Struct, frozen=True):
    """How many streams there are at once, and what they do."""

    speaking: int = 500
    silent: int = 0
    stalled: int = 0
    interval: float = 0.100  # seconds between the tokens of a stream
    seconds: float = 10.0
    keepalive: float = 1.0  # seconds of silence; most users have 15
    judged: bool = True  # whether the median is promised

    @property
    def streams(self) -> int:
        return self.speaking + self.silent + self.stalled

    @property
    def times(self) -> int:
        """Tokens of each stream."""
        return max(1, round(self.seconds / self.interval))


LOADS = (
    Load(),
    Load(interval=0.050, judged=False),
    Load(speaking=350, silent=50, stalled=100),
)


class Reader(asyncio.Protocol):
    """One client: asks, and notes what comes and when."""

    transport: asyncio.Transport

    def __init__(self, readers: "Readers", request: bytes, *, stalls: bool) -> None:
        self._readers = readers
        self._request = request
        self._stalls = stalls
        self._torn = b""
        self.signs: list[float] = []  # signs of life
        self.wrote: list[float] = []  # the question, and everything that came behind the headers
        self._headed = False
        self.tokens = 0
        self.spoke_at = 0.0
        self.whole = False  # its end came
        self.cut = False  # there was none, but the connection is gone

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self._request)
        self.wrote.append(time.monotonic_ns() / 1e9)
        if self._stalls:
            transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        at = now / 1e9
        if not self._headed:  # they are written with what comes first, and may come before it
            self._headed = True
            data = data.partition(b"\r\n\r\n")[2]
            if not data:
                return
        self.wrote.append(at)
        new = max(0, len(self._torn) - len(_SIGN) + 1)  # a sign that ends before was seen before
        data = self._torn + data
        end = 0
        for found in _STAMP.finditer(data):
            if not self._stalls:
                self._readers.took(now, int(found[1]))
            self.tokens += 1
            self.spoke_at = self.spoke_at or at
            end = found.end()
        if data.find(_SIGN, new) >= 0:
            self.signs.append(at)
        if b"data: [DONE]" in data:
            self.whole = True
            self._readers.ended(self)
        self._torn = data[max(end, len(data) - _LONGEST) :]

    def connection_lost(self, exc: Exception | None) -> None:
        self.cut = not self.whole
        self._readers.ended(self)

    def hasty(self, keepalive: float) -> Iterator[str]:
        """Say where a sign of life came although something else had just come."""
        for before, after in pairwise(self.wrote):
            if after in self.signs and after - before < keepalive / 2:
                yield f"a sign of life {after - before:.2f} s after something else"

    def miscounted(self, keepalive: float) -> Iterator[str]:
        """Say where silence did not have exactly the signs of life that belong to it."""
        said = [at for at in self.wrote if at not in self.signs]
        for before, after in pairwise(said):
            found = sum(before < at < after for at in self.signs)
            room = (after - before) / keepalive
            least = room - 1.1
            if before == said[0]:  # when the question was heard is not known
                least = 0
            if not least <= found <= room + 0.1:
                yield f"{found} signs of life in {after - before:.2f} s"


class Readers:
    """All clients, and the delays of all that they read."""

    def __init__(self, expected: int) -> None:
        self.by_kind: dict[str, list[Reader]] = {}
        self.all_came = asyncio.Event()
        self.delays: list[tuple[int, int]] = []  # nanoseconds: when, and how late
        self.begun = asyncio.Event()  # the first token
        self._open: set[Reader] = set()
        self._none_open = asyncio.Event()
        self._expected = expected  # tokens

    def took(self, now: int, written: int) -> None:
        self.delays.append((now, now - written))
        if not self.begun.is_set():
            self.begun.set()
        if len(self.delays) == self._expected:
            self.all_came.set()

    def ended(self, reader: Reader) -> None:
        self._open.discard(reader)
        if not self._open:
            self._none_open.set()

    async def open(self, port: int, kind: str, count: int) -> None:
        """Ask `count` times; a reader that stalls has little room of its own."""
        loop = asyncio.get_running_loop()
        for _ in range(count):
            mark = {"silent": SILENT, "stalled": MUCH}.get(kind, "go")
            reader = Reader(self, _request(mark), stalls=kind == "stalled")
            place = socket.socket()
            if kind == "stalled":
                place.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            place.setblocking(False)  # noqa: FBT003 - as the socket wants it
            await loop.sock_connect(place, ("127.0.0.1", port))
            self.by_kind.setdefault(kind, []).append(reader)
            if kind != "stalled":
                self._open.add(reader)
            await loop.create_connection(lambda made=reader: made, sock=place)  # type: ignore[misc]  # bound now

    async def all_ended(self) -> None:
        """Wait for those that read; those that stall look what became of them in the meantime."""
        await self._none_open.wait()
        stalled = self.by_kind.get("stalled", [])
        for reader in stalled:
            self._open.add(reader)
            reader.transport.resume_reading()
        self._none_open.clear()
        if stalled:
            await self._none_open.wait()

    def close(self) -> None:
        for reader in (each for kind in self.by_kind.values() for each in kind):
            reader.transport.abort()


def _request(text: str) -> bytes:
    body = json.dumps({"messages": [{"role": "user", "content": text}], "stream": True}).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {_KEY}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Moment(msgspec.Struct, frozen=True):
    """What the machine and the daemon had used until then."""

    at: float
    cpu: float  # seconds of the daemon
    of_core: float  # seconds that its core was busy
    waited: float  # seconds that we ourselves could have gone on, but had no core
    threads: int
    memory: float  # megabytes

    @classmethod
    def of(cls, pid: int, core: int) -> "Moment":
        used = used_by(pid)
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        line = re.search(rf"^cpu{core} (.*)$", Path("/proc/stat").read_text(), re.MULTILINE)
        assert line
        user, nice, system, _, _, *others = map(int, line[1].split()[:8])
        waited = int(Path("/proc/self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
        threads = int(status.partition("Threads:")[2].split(maxsplit=1)[0])
        busy = (user + nice + system + sum(others)) / _TICKS
        return cls(time.monotonic(), used.cpu, busy, waited, threads, used.memory)


class Outcome(msgspec.Struct, frozen=True):
    """What one load came to."""

    load: Load
    delays: list[float]  # in seconds, sorted
    idle: Moment
    full: Moment  # when all streams have begun
    over: Moment  # when the last token is written
    most_threads: int
    most_memory: float
    service: Report
    keepalives: dict[str, int]
    turns: dict[str, int]  # how many came to which end
    faults: list[str]
    late: list[str]  # what may be the fault of a busy machine

    @property
    def seconds(self) -> float:
        return self.over.at - self.full.at

    @property
    def cpu(self) -> float:
        return self.over.cpu - self.full.cpu

    @property
    def others(self) -> float:
        """The share of the time in which others had the daemon's core, or ours."""
        own_core = self.over.of_core - self.full.of_core - self.cpu
        return max(own_core, self.over.waited - self.full.waited) / self.seconds

    @property
    def disturbed(self) -> bool:
        return self.others > _MOST_WAITED

    @property
    def median(self) -> float:
        return statistics.median(self.delays)

    def quantile(self, share: float) -> float:
        return self.delays[min(len(self.delays) - 1, int(share * len(self.delays)))]

    def broken(self) -> list[str]:
        """Say which promises were not kept; that of time only where nobody disturbed."""
        found = list(self.faults)
        if self.load.judged and not self.disturbed:
            found += self.late
            if self.median > LIMIT:
                found.append(f"the median is {1000 * self.median:.0f} ms")
        if self.most_threads > self.idle.threads + _MORE_THREADS:
            found.append(f"{self.idle.threads} threads became {self.most_threads}")
        load = self.load
        room = 20 + _MOST_MEMORY * load.streams + _MOST_KEPT * load.stalled
        if self.most_memory > self.idle.memory + room:
            found.append(f"{self.idle.memory:.0f} MB became {self.most_memory:.0f}")
        return found

    def words(self) -> str:
        """All of it in a few lines."""
        load, count = self.load, len(self.delays)
        delays = ", ".join(
            f"{name} {1000 * self.quantile(share):.1f}"
            for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("most", 1.0))
        )
        each = (self.full.memory - self.idle.memory) * 1024 / load.streams
        signs = ", ".join(f"{kind} {number}" for kind, number in self.keepalives.items())
        ends = ", ".join(f"{number} {state}" for state, number in sorted(self.turns.items()))
        return (
            f"{load.streams} streams ({load.silent} silent, {load.stalled} with readers that take "
            f"nothing), a token each every {1000 * load.interval:.0f} ms\n"
            f"  delay in ms: {delays} (limit of p50: {1000 * LIMIT:.0f})\n"
            f"  {count} tokens in {self.seconds:.1f} s; CPU: "
            f"{100 * self.cpu / self.seconds:.0f} % of one core, "
            f"{1e6 * self.cpu / self.service.tokens:.0f} µs a token, "
            f"{1000 * (self.full.cpu - self.idle.cpu) / load.streams:.1f} ms to begin a stream\n"
            f"  threads: {self.idle.threads} before, at most {self.most_threads}; memory: "
            f"{self.idle.memory:.0f} MB before, {each:.0f} KB for each stream, at most "
            f"{self.most_memory:.0f} MB\n"
            f"  signs of life: {signs}; turns: {ends}; readers cut off: {self.service.left}"
            f" within {self.service.left_within:.1f} s\n"
            f"  others had the cores for {100 * self.others:.0f} % of the time; the model service "
            f"was at most {1000 * self.service.latest:.0f} ms late itself"
        )


@contextlib.asynccontextmanager
async def _service(load: Load) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.bench.model", "--streams", str(load.streams)),
        *("--interval", str(load.interval), "--times", str(load.times)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout
    try:
        async with asyncio.timeout(20):
            port = int(await process.stdout.readline())
        yield f"http://127.0.0.1:{port}/v1", process
    finally:
        process.kill()
        await process.wait()


def _daemon(home: Path, url: str, load: Load) -> Daemon:
    return Daemon(
        home,
        "model.provider=openai",
        "model.name=bench",
        f"model.base_url={url}",
        f"http.api_key={_KEY}",
        f"http.sse_keepalive={load.keepalive}",
        f"http.slow_after={SLOW_AFTER}s",
        "limits.messages_per_minute=1000000",
        "gateway.drain_seconds=0",
        env={"OPENAI_API_KEY": "sk-none"},
    )


async def measure(load: Load, home: Path, cores: Cores) -> Outcome:
    """Run a load on a daemon of its own."""
    readers = Readers(load.speaking * load.times)
    _run_on(cores.service)
    async with _service(load) as (url, service):
        _run_on(cores.program)
        daemon = _daemon(home, url, load)
        async with daemon:
            _run_on(cores.service)
            outcome = await _measured(load, daemon, readers, service, cores.program or 0)
            readers.close()
            await daemon.stop()
    return replace(outcome, **await _looked_up(load, home, readers))


async def _measured(
    load: Load,
    daemon: Daemon,
    readers: Readers,
    service: asyncio.subprocess.Process,
    core: int,
) -> Outcome:
    assert service.stdout
    idle = Moment.of(daemon.pid, core)
    for kind, count in (
        ("stalled", load.stalled),
        ("silent", load.silent),
        ("speaking", load.speaking),
    ):
        await readers.open(daemon.port, kind, count)
    async with asyncio.timeout(load.seconds + _PATIENCE), asyncio.TaskGroup() as group:
        await readers.begun.wait()
        full = Moment.of(daemon.pid, core)
        seen = [full]
        watching = group.create_task(_watch(daemon.pid, core, seen))
        await readers.all_came.wait()
        over = Moment.of(daemon.pid, core)
        report = msgspec.json.decode(await service.stdout.readline(), type=Report)
        watching.cancel()
        await readers.all_ended()
    return Outcome(
        load,
        sorted(late / 1e9 for _, late in readers.delays),
        idle,
        full,
        over,
        max(each.threads for each in seen),
        max(each.memory for each in (*seen, over)),
        report,
        {},
        {},
        [],
        [],
    )


async def _watch(pid: int, core: int, seen: list[Moment]) -> None:
    while True:
        await asyncio.sleep(0.5)
        seen.append(Moment.of(pid, core))


async def _looked_up(load: Load, home: Path, readers: Readers) -> dict[str, Any]:
    """What became of all streams, as their readers saw it and as it is stored."""
    faults, late = [], []
    for kind, found in readers.by_kind.items():
        if kind == "stalled":
            if not all(each.cut for each in found):
                faults.append(f"{sum(not each.cut for each in found)} were not cut off")
            continue
        late += [f"{kind}: {fault}" for each in found for fault in each.hasty(load.keepalive)]
        late += [f"{kind}: {fault}" for each in found for fault in each.miscounted(load.keepalive)]
        if not all(each.whole for each in found):
            faults.append(f"{kind}: {sum(not each.whole for each in found)} came to no end")
    speaking, silent = readers.by_kind.get("speaking", []), readers.by_kind.get("silent", [])
    if any(each.tokens != load.times for each in speaking):
        faults.append("speaking: tokens are missing")
    if not all(each.signs for each in silent):
        faults.append("silent: no signs of life")
    signs = {
        "speaking": sum(at > each.spoke_at for each in speaking for at in each.signs),
        "silent": sum(len(each.signs) for each in silent),
    }
    if signs["speaking"]:  # before its first token each has waited until all had begun
        late.append(f"speaking: {signs['speaking']} signs of life")
    states: Counter[str] = Counter()
    async with opened(home) as store:
        for session in await store.sessions.list(limit=10 * load.streams):
            for turn in await store.turns.of_session(session.id):
                cause = f" ({turn.cause})" if turn.cause else ""
                states[f"{turn.state.value}{cause}"] += 1
    wanted = {TurnState.DONE.value: load.speaking + load.silent}
    if load.stalled:
        wanted[f"{TurnState.STOPPED.value} (left)"] = load.stalled
    if states != Counter(wanted):
        faults.append(f"turns: {dict(states)}")
    return {"keepalives": signs, "turns": dict(states), "faults": faults, "late": late}


def _run_on(core: int | None) -> None:
    """From now on we run there, and what we start."""
    if core is not None:
        os.sched_setaffinity(0, {core})


def main() -> int:
    """Print what each load comes to; fail when a promise is broken that is ours to keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, help="that all speak, instead of the usual loads")
    parser.add_argument("--interval", type=float, default=0.1, help="seconds between tokens")
    parser.add_argument("--seconds", type=float, default=10.0)
    chosen = parser.parse_args()
    loads: tuple[Load, ...] = LOADS
    if chosen.streams:
        loads = (Load(chosen.streams, interval=chosen.interval),)
    cores = Cores.of_this_machine()
    gc.freeze()
    failed = False
    for each in loads:
        with tempfile.TemporaryDirectory() as home:
            load = replace(each, seconds=chosen.seconds)
            outcome = asyncio.run(measure(load, Path(home), cores))
        sys.stdout.write(outcome.words() + "\n")
        if outcome.disturbed:
            sys.stdout.write("  disturbed: these delays are not ours alone\n")
        for fault in outcome.broken()[:20]:
            sys.stdout.write(f"! {fault}\n")
        sys.stdout.flush()
        failed = failed or bool(outcome.broken())
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
