"""Measures code of ours that a library could replace: `python -m tests.bench.libraries`.

Arguments choose among `fetch`, `json`, `metrics` and `imports`; without arguments all of them run.
The decision pages 36 to 38 quote the figures.
"""

import asyncio
import contextlib
import functools
import gc
import json
import random
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpcore2
import httpx2
import jiter
import prometheus_client

from agent.answer.partial_json import PartialString, read_string_members
from agent.web.errors import FetchError
from agent.web.fetch import Fetcher
from agent.web.urls import FetchRules
from gateway.observe.metric_types import MAX_SERIES, OTHER, CounterMetric, HistogramMetric
from gateway.observe.metrics import Metrics
from tests.bench.ledger import cost
from tests.fakes.certificates import certified
from tests.fakes.shelf import Shelf, answer

NAME = "pictures.example"
SIZES = {"10 KB": (10_000, 400), "1 MB": (1_000_000, 60), "10 MB": (10_000_000, 12)}
ROUNDS = 5
HEADERS = {"User-Agent": "Holdfast", "Accept-Encoding": "identity", "Connection": "close"}

Cost = tuple[float, float]
"""Milliseconds of CPU and of wall-clock time."""

# --- fetch ------------------------------------------------------------------------------------


@contextlib.contextmanager
def served(tls_context: ssl.SSLContext | None) -> Iterator[Shelf]:
    """Serve from another thread, so that the CPU time of this one is the client's alone."""
    shelf = Shelf({f"/{size}": answer(bytes(size)) for size, _ in SIZES.values()})
    loop, ready, stop = asyncio.new_event_loop(), threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with shelf.open(tls_context):
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    ready.wait()
    try:
        yield shelf
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


class CheckedNetwork(httpcore2.AsyncNetworkBackend):
    """Network for the HTTP libraries that reaches only the addresses that the rules allow."""

    def __init__(self, rules: FetchRules) -> None:
        self._rules = rules
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the interface is theirs
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        for address in await resolve(host):
            if self._rules.allows(address, port):
                return await self._network.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
        msg = f"{host} is not on the public internet"
        raise FetchError(msg)


class Core:
    """Fetches with httpcore2, over one connection for each fetch."""

    def __init__(self, rules: FetchRules, tls_context: ssl.SSLContext) -> None:
        self._network = CheckedNetwork(rules)
        self._tls = tls_context

    async def get(self, url: str, most: int) -> bytes:
        parse_target = httpcore2.URL(url)
        headers: list[tuple[bytes | str, bytes | str]] = [*HEADERS.items(), ("Host", NAME)]
        async with (
            httpcore2.AsyncHTTPConnection(
                parse_target.origin, self._tls, network_backend=self._network
            ) as connection,
            connection.stream("GET", parse_target, headers=headers) as answer,
        ):
            return await collected(answer.aiter_stream(), most)


class Client:
    """Fetches with one httpx2 client, which takes a network only through a private attribute."""

    def __init__(self, rules: FetchRules, tls_context: ssl.SSLContext) -> None:
        transport = httpx2.AsyncHTTPTransport(verify=tls_context, trust_env=False)
        transport._pool._network_backend = CheckedNetwork(rules)
        self._client = httpx2.AsyncClient(transport=transport, trust_env=False, headers=HEADERS)

    async def get(self, url: str, most: int) -> bytes:
        async with self._client.stream("GET", url) as answer:
            return await collected(answer.aiter_raw(), most)


class Ours:
    """Fetches with the code of the product."""

    def __init__(self, rules: FetchRules, tls_context: ssl.SSLContext) -> None:
        self._fetcher = Fetcher(rules, resolve=resolve, tls=lambda: tls_context)

    async def get(self, url: str, most: int) -> bytes:
        return (await self._fetcher.get(url, most)).content


async def collected(parts: AsyncGenerator[bytes] | AsyncIterator[bytes], most: int) -> bytes:
    received = bytearray()
    async for part in parts:
        received += part
        if len(received) > most:
            break
    return bytes(received)


async def resolve(_: str) -> list[str]:
    return ["127.0.0.1"]


async def fetched(
    make: Callable[[], Ours | Core | Client], url: str, size: int, times: int
) -> Cost:
    """Return CPU and wall-clock milliseconds of one fetch."""
    fetcher = make()
    await fetcher.get(url, size)
    cpu, wall = time.thread_time(), time.perf_counter()
    for _ in range(times):
        assert len(await fetcher.get(url, size)) == size
    return (
        1000 * (time.thread_time() - cpu) / times,
        1000 * (time.perf_counter() - wall) / times,
    )


def measure_fetch() -> None:
    with tempfile.TemporaryDirectory() as folder:
        server, client = certified(Path(folder), NAME)
        for scheme, tls_context in (("http", None), ("https", server)):
            with served(tls_context) as shelf:
                rules = FetchRules(extra_addresses={("127.0.0.1", shelf.port)})
                for label, (size, times) in SIZES.items():
                    url = f"{scheme}://{NAME}:{shelf.port}/{size}"
                    found: dict[str, list[Cost]] = {}
                    for _ in range(ROUNDS):  # in turns, because other programs disturb
                        for kind in (Ours, Core, Client):
                            make = functools.partial(kind, rules, client)
                            cost = asyncio.run(fetched(make, url, size, times))
                            found.setdefault(kind.__name__, []).append(cost)
                    for name, rounds in found.items():
                        cpu, wall = map(min, zip(*rounds, strict=True))
                        say(f"fetch {scheme} {label}, {name}", f"{cpu:8.2f} ms CPU {wall:8.2f} ms")


# --- partial JSON -----------------------------------------------------------------------------


def by_jiter(prefix: str) -> dict[str, PartialString]:
    """Read string read_string_members with jiter; a second parse tells which values are complete."""
    written = prefix.encode()
    try:
        found = jiter.from_json(written, partial_mode="trailing-strings", cache_mode="none")
        complete = jiter.from_json(written, partial_mode="on", cache_mode="none")
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {
        key: PartialString(value, complete=complete.get(key) == value)
        for key, value in found.items()
        if isinstance(value, str)
    }


TEXTS = {
    "escapes": r'{"path":"a\"b","content":"\\\/\b\f\n\r\t\u00e9\u20ac","n":-1.5e3,"t":"end"}',
    "surrogates": r'{"path":"\ud83d\ude00","content":"x\uD83D\uDE00y"}',
    "no ASCII": '{"path":"ü","content":"日本語 😀 ✓"}',
    "numbers": '{"a":0,"b":-1,"c":1.25,"d":1e-7,"e":[1,2.5],"content":"x","f":true,"g":null}',
    "nested": '{"n":[{"a":"]}"},"{",["b"]],"o":{"content":"no","p":{}},"content":"yes"}',
    "duplicate keys": '{"a":"first","a":"second","a":"second","content":"x"}',
    "line ends in a string": '{"path":"a.py","content":"one\n\ttwo","t":"end"}',
    "an unknown escape": r'{"path":"a.py","content":"one \q two","t":"end"}',
    "a lone surrogate": r'{"path":"a.py","content":"one \ude00 two","t":"end"}',
    "a long number": '{"n":' + "9" * 5000 + ',"path":"a.py","content":"x"}',
    "300 brackets": '{"n":' + "[" * 300 + "]" * 300 + ',"path":"a.py","content":"x"}',
    "a NUL from the model": '{"path":"a.py","content":"a\0b"}',
}


def some_object(chance: random.Random, depth: int = 0) -> dict[str, Any]:
    def text() -> str:
        return "".join(chance.choices('ab"\\/\n\tü日😀\x7f', k=chance.randrange(6)))

    def value() -> Any:
        kind = chance.randrange(7 if depth < 3 else 5)
        if kind < 2:
            return text()
        if kind < 5:
            return (chance.randrange(-(10**6), 10**6), chance.random(), None)[kind - 2]
        if kind == 5:
            return [value() for _ in range(chance.randrange(3))]
        return some_object(chance, depth + 1)

    return {text(): value() for _ in range(chance.randrange(5))}


def measure_json() -> None:
    for label, text in TEXTS.items():
        cuts = range(len(text) + 1)
        wrong = sum(by_jiter(text[:cut]) != read_string_members(text[:cut]) for cut in cuts)
        last = len(by_jiter(text)), len(read_string_members(text))
        say(
            f"json {label}",
            f"{wrong:5} of {len(cuts)} cuts differ; read_string_members at the end {last}",
        )
    chance = random.Random(1)  # noqa: S311 - the texts must be the same in every run
    texts = [json.dumps(some_object(chance), ensure_ascii=bool(n % 2)) for n in range(1_000)]
    pairs = [(text, cut) for text in texts for cut in range(len(text) + 1)]
    differing = [
        pair
        for pair in pairs
        if by_jiter(pair[0][: pair[1]]) != read_string_members(pair[0][: pair[1]])
    ]
    say("json 1,000 random valid objects", f"{len(differing):5} of {len(pairs):,} cuts differ")
    body = 'def f(x):\n    return "ü" + x\\n\n' * 2_000
    written = json.dumps({"path": "a.py", "content": body})
    for size in (1_000, 10_000, 60_000):
        for name, read in (("ours", read_string_members), ("jiter", by_jiter)):
            seconds = best(functools.partial(read, written[:size]), 200)
            say(f"json {size:,} characters, {name}", f"{seconds * 1e6:8.1f} µs")
    for name, read in (("ours", read_string_members), ("jiter", by_jiter)):
        growing = [written[:size] for size in range(0, 60_000, 120)]
        seconds = best(lambda read=read, growing=growing: list(map(read, growing)), 1)  # type: ignore[misc]
        say(f"json growing to 60,000 in 500 steps, {name}", f"{seconds * 1e3:8.1f} ms")


# --- metrics ----------------------------------------------------------------------------------


class LibraryCount:
    """A counter of prometheus_client with the limit on label sets that ours has."""

    def __init__(self, name: str, about: str, *labels: str) -> None:
        self._metric = prometheus_client.Counter(name, about, labels, registry=None)
        self._known: set[tuple[str, ...]] = set()

    def add(self, *labels: str, amount: float = 1) -> None:
        self._metric.labels(*bounded(self._known, labels)).inc(amount)


class LibrarySpread:
    """A histogram of prometheus_client with the same limit."""

    def __init__(self, name: str, about: str, *labels: str, bounds: tuple[float, ...]) -> None:
        self._metric = prometheus_client.Histogram(
            name, about, labels, registry=None, buckets=bounds
        )
        self._known: set[tuple[str, ...]] = set()

    def observe(self, seconds: float, *labels: str) -> None:
        metric = self._metric.labels(*bounded(self._known, labels)) if labels else self._metric
        metric.observe(max(0.0, seconds))


def bounded(known: set[tuple[str, ...]], labels: tuple[str, ...]) -> tuple[str, ...]:
    if labels not in known:
        if len(known) >= MAX_SERIES:
            return (OTHER,) * len(labels)
        known.add(labels)
    return labels


def with_library() -> Metrics:
    """Return a ledger that counts with prometheus_client."""
    ledger = Metrics()
    for name, metric in list(vars(ledger).items()):
        theirs: Any = None
        if isinstance(metric, CounterMetric):
            theirs = LibraryCount(metric.name, metric.description, *metric.labels)
        elif isinstance(metric, HistogramMetric):
            theirs = LibrarySpread(
                metric.name, metric.description, *metric.labels, bounds=metric.bounds
            )
        if theirs:
            setattr(ledger, name, theirs)
    return ledger


def measure_metrics() -> None:
    bounds = (0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120)
    for name, count, spread, ledger in (
        ("ours", CounterMetric, HistogramMetric, Metrics),
        ("library", LibraryCount, LibrarySpread, with_library),
    ):
        counter = count("a_total", "A.", "platform", "state")
        times = spread("b_seconds", "B.", "platform", bounds=bounds)
        seconds = best(lambda c=counter: c.add("telegram", "done"), 20_000)  # type: ignore[misc]
        say(f"metrics increment, {name}", f"{seconds * 1e6:8.2f} µs")
        seconds = best(lambda t=times: t.observe(1.5, "telegram"), 20_000)  # type: ignore[misc]
        say(f"metrics observation, {name}", f"{seconds * 1e6:8.2f} µs")
        say(f"metrics turn, {name}", f"{cost(make=ledger) * 1e6:8.1f} µs CPU")
        say(f"metrics memory of an empty ledger, {name}", f"{memory(ledger) / 1024:8.1f} KB")

        def filled(count: Any = count, spread: Any = spread) -> list[Any]:
            counter = count("a_total", "A.", "platform", "state")
            times = spread("b_seconds", "B.", "platform", bounds=bounds)
            for number in range(MAX_SERIES):
                counter.add(str(number), "done")
                times.observe(1.5, str(number))
            return [counter, times]

        say(
            f"metrics memory of {MAX_SERIES} series of each, {name}",
            f"{memory(filled) / 1024:8.1f} KB",
        )


def memory(make: Callable[[], object]) -> int:
    """Return the bytes that an object holds."""
    gc.collect()
    tracemalloc.start()
    made = make()
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del made
    return size


# --- imports ----------------------------------------------------------------------------------

START = "import gateway.runner"
ADDED = {
    "nothing": "",
    "httpcore2": "httpcore2",
    "httpx2": "httpx2",
    "jiter": "jiter",
    "prometheus_client": "prometheus_client",
}


def measure_imports() -> None:
    """Measure how much later a start is ready that imports one more library; rounds alternate."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ADDED}
    for _ in range(15):
        for name, library in ADDED.items():
            code = (
                f"import time; {START}; began = time.process_time()\n"
                f"{f'import {library}' if library else 'pass'}\n"
                "used = time.process_time() - began\n"
                "pages = open('/proc/self/statm').read().split()[1]\n"
                "print(used, 4 * int(pages))"
            )
            ran = subprocess.run(
                [sys.executable, "-c", code], check=True, capture_output=True, text=True
            )
            seconds, size = map(float, ran.stdout.split())
            found[name].append((seconds, size))
    base = statistics.median(size for _, size in found["nothing"])
    for name, rounds in found.items():
        ms = 1000 * statistics.median(seconds for seconds, _ in rounds)
        size = (statistics.median(size for _, size in rounds) - base) / 1024
        say(f"imports at the start, {name}", f"{ms:8.1f} ms CPU {size:+6.1f} MB")


# --- running ----------------------------------------------------------------------------------


def best(work: Callable[[], object], times: int) -> float:
    """Return the CPU seconds of one call; the best round, because other programs disturb."""
    found = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(times):
            work()
        found.append((time.process_time() - began) / times)
    return min(found)


def say(label: str, figure: str) -> None:
    print(f"{label:52} {figure}", flush=True)  # noqa: T201 - printing is the purpose


MEASURES = {
    "fetch": measure_fetch,
    "json": measure_json,
    "metrics": measure_metrics,
    "imports": measure_imports,
}

if __name__ == "__main__":
    for chosen in sys.argv[1:] or MEASURES:
        MEASURES[chosen]()
