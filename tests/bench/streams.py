"""How long a token takes through the gateway while many turns stream at once.

`python -m tests.bench.streams` lets 300 turns stream with 20 ms between tokens, then 1,000 with
100 ms. All that is ours runs on one core: one gateway with its store, its conversations, its real
model client and a platform in memory that takes live edits at the pace of a messenger. The model
service is another process on another core. The delay of a token is the time from its writing there
to the end of what the turn does with it here, when the chat's lane has its text.
"""

import argparse
import asyncio
import contextlib
import cProfile
import gc
import os
import pstats
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from agent.events import AgentEvent, TextDelta
from agent.settings import ModelSettings
from gateway.access.settings import AccessSettings
from gateway.operate.cli.run import tune_garbage_collector
from gateway.runner import GatewayRunner
from gateway.settings import GatewaySettings, LimitSettings, Settings
from gateway.turns.run import TurnRun
from platforms.core.contract import Live, PlatformSpec, Repeat
from sessions.records import TurnState
from tests.bench.model import Report
from tests.e2e.gateway_kit import Nothing, Screen
from tests.fakes.agent_kit import settings_for
from tests.fakes.dialects.steps import PROTOCOLS, ProtocolName

LIMIT = 0.050
"""Seconds that the median token may take."""

_MOST_WAITED = 0.1  # share of the time; above it a delay says nothing about us
_ASK_EVERY = 100  # tokens: to ask for the CPU time takes longer than most of what is measured
_PATIENCE = 60.0  # beyond the time that the streams themselves take


class Load(msgspec.Struct, frozen=True):
    """How many turns stream at once, and how fast."""

    streams: int
    interval: float
    seconds: float = 10.0
    protocol: ProtocolName = "chat"

    @property
    def times(self) -> int:
        """Tokens of each stream."""
        return max(1, round(self.seconds / self.interval))


LOADS = (Load(300, 0.020), Load(1000, 0.100))


class Heard:
    """What came, and when: the probe does little more than to keep it.

    In two lists: a pair for each token would be a hundred thousand objects for the collector.
    """

    def __init__(self) -> None:
        self.times: list[int] = []
        self.texts: list[str] = []
        self.cpu_first = self.cpu_last = 0  # CPU time at the first token, and when asked last
        self.begun = asyncio.Event()  # the first words come with the headers, the tokens later
        self.first = 0  # index of the first token

    def take(self, text: str) -> None:
        """A piece of text went through a turn."""
        self.times.append(time.monotonic_ns())
        self.texts.append(text)
        if not self.first and text[1:2].isdigit():
            self.first = len(self.times) - 1
            self.cpu_first = time.process_time_ns()
            self.begun.set()
        elif not len(self.times) % _ASK_EVERY:
            self.cpu_last = time.process_time_ns()

    def delays(self) -> list[float]:
        """Seconds from the writing of a token to its arrival, in order of arrival."""
        words = (text.split()[0] for text in self.texts)
        stamped = zip(self.times, words, strict=True)
        return [(at - int(word)) / 1e9 for at, word in stamped if word.isdigit()]


class Outcome(msgspec.Struct, frozen=True):
    """What one load came to."""

    load: Load
    delays: list[float]
    seconds: float  # in which the tokens came
    cpu: float  # seconds that ours took in that time
    waited: float  # seconds in which it could have gone on, but others had the core
    opening: float  # CPU seconds until the first token came: the beginnings of all turns
    service: Report

    @property
    def disturbed(self) -> bool:
        """Others took so much of the core that the delays are theirs as well."""
        return self.waited > _MOST_WAITED * self.seconds

    @property
    def median(self) -> float:
        """The delay that half of the tokens did not reach."""
        return statistics.median(self.delays)

    def quantile(self, share: float) -> float:
        """The delay that this share of the tokens did not exceed."""
        ordered = sorted(self.delays)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def words(self) -> str:
        """All of it in a few lines."""
        count = len(self.delays)
        delays = (
            f"{name} {1000 * self.quantile(share):.1f}"
            for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("most", 1.0))
        )
        return (
            f"{self.load.protocol}: {self.load.streams} turns, a token each every "
            f"{1000 * self.load.interval:.0f} ms\n"
            f"  delay in ms: {', '.join(delays)} (limit of p50: {1000 * LIMIT:.0f})\n"
            f"  {count} tokens in {self.seconds:.1f} s: {count / self.seconds:.0f} a second\n"
            f"  CPU: {100 * self.cpu / self.seconds:.0f} % of one core, "
            f"{1e6 * self.cpu / count:.1f} µs a token, "
            f"{1000 * self.cpu / self.load.streams:.1f} ms a turn of {self.load.times} tokens, "
            f"and {1000 * self.opening / self.load.streams:.1f} ms to begin it\n"
            f"  others had the core for {100 * self.waited / self.seconds:.0f} % of the time; "
            f"the model service was at most {1000 * self.service.latest:.0f} ms late itself"
        )


@contextlib.contextmanager
def _listening(heard: Heard) -> Iterator[None]:
    """Note each piece of text once the turn is through with it."""
    emit = TurnRun._emit

    def listened(work: TurnRun, event: AgentEvent) -> None:
        emit(work, event)
        if type(event) is TextDelta:
            heard.take(event.text)

    with pytest.MonkeyPatch.context() as probed:
        probed.setattr(TurnRun, "_emit", listened)  # the only place where all tokens pass
        yield


@contextlib.asynccontextmanager
async def _service(
    load: Load, core: int | None
) -> AsyncIterator[tuple[str, asyncio.Future[bytes]]]:
    """The other process: its address, and the report that it gives in the end."""
    pinned = [] if core is None else ["--core", str(core)]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.bench.model", "--protocol", load.protocol, "--streams", str(load.streams)),
        *("--interval", str(load.interval), "--times", str(load.times), *pinned),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout
    try:
        async with asyncio.timeout(20):
            port = int(await process.stdout.readline())
        async with asyncio.TaskGroup() as group:
            report = group.create_task(process.stdout.readline())
            yield f"http://127.0.0.1:{port}/v1", report
            report.cancel()
    finally:
        process.kill()
        await process.wait()


def _settings(load: Load, url: str) -> Settings:
    model = settings_for(load.protocol, url)
    fields = {name: getattr(model, name) for name in model.__struct_fields__}
    return Settings(
        gateway=GatewaySettings(drain_seconds=0),
        model=ModelSettings(**fields | {"timeouts": ModelSettings().timeouts}),
        access=AccessSettings(allow=("memory:1001",)),
        limits=LimitSettings(messages_per_minute=100_000),
        platforms={"memory": Nothing()},
    )


async def stream(
    load: Load,
    home: Path,
    *,
    core: int | None = None,
    profile: cProfile.Profile | None = None,
) -> Outcome:
    """Let the turns run; the service runs on the core. Profiled is only the streaming itself."""
    screen = Screen(live=Live.EDIT, repeat=Repeat.ALWAYS, live_interval=1.0)
    spec = PlatformSpec("memory", Nothing, lambda _config, _given: screen)
    heard = Heard()
    async with _service(load, core) as (url, report), asyncio.TaskGroup() as group:
        runner = GatewayRunner(_settings(load, url), home, specs={"memory": spec}, serve_http=False)
        group.create_task(runner.run())
        async with asyncio.timeout(_PATIENCE):
            await runner.ready.wait()
        before = time.process_time_ns()
        with _listening(heard), _collecting_as_the_daemon():
            for number in range(load.streams):
                await screen.say(str(number), "go")
            async with asyncio.timeout(load.seconds + _PATIENCE):
                await heard.begun.wait()
                waited = _waited()
                with profile or contextlib.nullcontext():
                    served = msgspec.json.decode(await report, type=Report)
                waited = _waited() - waited
                await _all_ended(runner, load)
        runner.stopping.set()
    first = heard.first
    return Outcome(
        load,
        heard.delays(),
        (heard.times[-1] - heard.times[first]) / 1e9,
        (heard.cpu_last - heard.cpu_first) / 1e9,
        waited,
        (heard.cpu_first - before) / 1e9,
        served,
    )


def _waited() -> float:
    """Seconds for which our main thread was ready to run and had to wait for the core."""
    try:
        counted = Path("/proc/thread-self/schedstat").read_text(encoding="ascii")
    except OSError:
        return 0.0
    return int(counted.split()[1]) / 1e9


@contextlib.contextmanager
def _collecting_as_the_daemon() -> Iterator[None]:
    usual = gc.get_threshold()
    tune_garbage_collector()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*usual)


async def _all_ended(runner: GatewayRunner, load: Load) -> None:
    """Every turn must have ended well, with all its tokens."""
    store = runner._store
    assert store is not None
    for number in range(load.streams):
        (session,) = await store.sessions.list(key=f"memory:{number}")
        while True:
            (turn,) = await store.turns.of_session(session.id)
            if turn.state is not TurnState.RUNNING:
                break
            await asyncio.sleep(0.05)
        assert turn.state is TurnState.DONE, turn
        assert turn.attempts == 1, turn
        _, answer = await store.sessions.history(session.id)
        assert answer.content.count(" word") == load.times


def main() -> int:
    """Print what each load comes to; fail when a median is over the limit, and the core was ours."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, help="instead of the usual loads")
    parser.add_argument("--interval", type=float, default=0.02)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--protocol", choices=PROTOCOLS, default="chat")
    parser.add_argument("--profile", action="store_true", help="say where the time goes")
    chosen = parser.parse_args()
    loads: tuple[Load, ...] = LOADS
    if chosen.streams:
        loads = (Load(chosen.streams, chosen.interval),)
    cores = sorted(os.sched_getaffinity(0))
    other = cores[1] if len(cores) > 1 else None
    os.sched_setaffinity(0, cores[:1])
    over = False
    for each in loads:
        load = replace(each, seconds=chosen.seconds, protocol=chosen.protocol)
        profile = cProfile.Profile() if chosen.profile else None
        with tempfile.TemporaryDirectory() as home:
            outcome = asyncio.run(stream(load, Path(home), core=other, profile=profile))
        sys.stdout.write(outcome.words() + "\n")
        if outcome.disturbed:
            sys.stdout.write("  disturbed: these delays are not ours alone\n")
        over = over or (outcome.median > LIMIT and not outcome.disturbed)
        if profile:
            pstats.Stats(profile, stream=sys.stdout).sort_stats("tottime").print_stats(45)
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
