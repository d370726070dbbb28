"""Thousands of odd requests to the API of a daemon, and what becomes of it.

A daemon of its own is asked over loopback by several clients at once, each with a connection for
every case (see `api_cases`). None may be answered with a failure of ours; every refusal has one
shape; what is right is answered between all the rest. Afterwards nothing may be left: no turn, no
message that waits, no connection, no memory. `make api-fuzz` runs it.
"""

import argparse
import asyncio
import json
import re
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import h11

from gateway.http.openapi.document import written
from tests.e2e.daemon import Daemon
from tests.fakes.model_script import Script
from tests.fakes.model_server import ModelServer
from tests.faults.api_cases import KEY, LARGE, SLOW, Case, Cases
from tests.faults.api_schema import ODD, served

CLIENTS = 8
PARTS = 5
PATIENCE = 30.0  # for an answer
SHORT = 0.2  # for what may never be answered, since it is no whole request

STATUSES = {200, 303, 307, 400, 401, 403, 404, 405, 408, 413, 422, 429, 431}
"""With nothing broken behind it, whatever is asked."""

ENOUGH = 5_000  # requests; a fifth of fewer does not fill what is kept on purpose
GROWTH = 32 * 2**20
"""How much the daemon may weigh more after the last request than after a fifth of them. What it
kept of each would show: 8,000 times 4 KB. What it keeps on purpose is full by then: the owners of
256 conversations and what has been imported. The weight goes up and down by about 15 MB, as bodies
of 17 MB come and go.
"""
ONE_HEAP = {"MALLOC_ARENA_MAX": "1"}
"""glibc gives threads heaps of their own and keeps the holes that large bodies leave in each; what
is weighed is what the daemon holds, and not what the allocator does not give back."""
LAG = 1.0
"""Seconds for which the loop may be late, at most: 16 MB of JSON are read beside it."""

_SPEC: dict[str, Any] = json.loads(written("0"))["paths"]


@dataclass
class Weight:
    """What the daemon's process holds."""

    memory: int
    files: int
    threads: int

    def __str__(self) -> str:
        return f"{self.memory / 2**20:.1f} MB, {self.files} files, {self.threads} threads"


@dataclass
class Tally:
    """What came of it."""

    kinds: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    silent: int = 0
    wrong: list[str] = field(default_factory=list)
    weights: list[Weight] = field(default_factory=list)  # after each fifth
    lag: str = ""
    turns: int = 0
    seconds: float = 0.0
    log: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        statuses = ", ".join(f"{n} x {status}" for status, n in sorted(self.statuses.items()))
        kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(self.kinds.items()))
        lines = [
            f"{self.kinds.total()} requests ({kinds}) in {self.seconds:.0f} s",
            f"answers: {statuses}; none: {self.silent}",
            f"turns: {self.turns}; loop lag: {self.lag}",
            *(f"after {n} fifths: {each}" for n, each in enumerate(self.weights, 1)),
            *self.wrong[:40],
            f"{len(self.wrong)} wrong",
        ]
        return "\n".join(lines)


# --- a client ----------------------------------------------------------------------------------


class Answer:
    """One response, as far as it came."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        self.status = status
        self.headers = headers
        self.body = b""
        self.whole = False


async def send(port: int, case: Case) -> list[Answer]:
    """Play one case; gives what was answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    try:
        async with asyncio.TaskGroup() as group:
            # Both at once: an answer may come, and the connection go, before all is sent.
            writing = group.create_task(_write(writer, case))
            answers = await _read(reader, case)
            writing.cancel()
        return answers
    finally:
        writer.transport.abort()


async def _write(writer: asyncio.StreamWriter, case: Case) -> None:
    try:
        for piece in case.sent:
            writer.write(piece)
            await writer.drain()
        if case.leaves == "eof":
            writer.write_eof()
    except OSError:
        pass  # it was answered before


async def _read(reader: asyncio.StreamReader, case: Case) -> list[Answer]:
    """Read as long as this client stays."""
    answers: list[Answer] = []
    if case.leaves in {"half", "sent"}:
        return answers
    seconds = SHORT if case.leaves == "eof" else PATIENCE
    try:
        async with asyncio.timeout(seconds):
            await _take(reader, case, answers)
    except TimeoutError:
        if seconds == PATIENCE:
            answers.append(Answer(0, {}))
    return answers


async def _take(reader: asyncio.StreamReader, case: Case, answers: list[Answer]) -> None:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=2**24)
    _asks(connection, case)
    while len(answers) < case.answers or not answers[-1].whole:
        event = connection.next_event()
        match event:
            case h11.NEED_DATA:
                try:
                    data = await reader.read(2**16)
                except OSError:
                    return
                if not data and connection.their_state is not h11.SEND_BODY:
                    return
                connection.receive_data(data)
            case h11.Response():
                headers = {k.decode(): v.decode("latin-1") for k, v in event.headers}
                answers.append(Answer(event.status_code, headers))
            case h11.Data():
                answers[-1].body += event.data
                if case.leaves == "begun":
                    return
            case h11.EndOfMessage():
                answers[-1].whole = True
                if connection.their_state is h11.DONE:
                    connection.start_next_cycle()
                    _asks(connection, case)
            case _:
                if isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
                    return


def _asks(connection: h11.Connection, case: Case) -> None:
    """Tell the reader of answers what was asked; only HEAD changes how they are read."""
    method = "HEAD" if case.method == "head" else "GET"
    connection.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
    connection.send(h11.EndOfMessage())


# --- what is judged ----------------------------------------------------------------------------


def judge(case: Case, answers: list[Answer]) -> Iterator[str]:
    """What is wrong with the answers to a case."""
    if case.leaves == "answered" and not answers and sum(map(len, case.sent)) < LARGE:
        yield "no answer"  # what is cut off in the middle of so much may miss why
    for answer in answers:
        yield from _judge(case, answer)
    if case.good and [answer.status for answer in answers] != [200]:
        yield f"{[answer.status for answer in answers]} instead of 200"
    elif case.good and case.good.encode() not in answers[0].body.replace(b'"ready": ', b'"ready":'):
        yield f"not {case.good}: {answers[0].body[-200:]!r}"


def _judge(case: Case, answer: Answer) -> Iterator[str]:
    if answer.status not in STATUSES:
        yield f"status {answer.status}: {answer.body[:200]!r}"
    replies = _SPEC.get(case.path, {}).get(case.method, {}).get("responses", {})
    if replies and str(answer.status) not in replies:
        yield f"status {answer.status} is not described"
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if answer.status >= 400 and kind == "text/html":
        yield from () if "/enter/" in case.name else [f"a page: {answer.body[:200]!r}"]
    elif answer.status >= 400 and case.method != "head":
        yield from _misshapen(answer, kind)
    elif kind == "text/event-stream" and answer.whole and case.leaves == "answered":
        if b"data: [DONE]" not in answer.body or b'"error":{' in answer.body:
            yield f"a stream that does not end well: {answer.body[-200:]!r}"
    elif replies and answer.status == 200 and kind not in replies["200"]["content"]:
        yield f"{kind} is not described"


def _misshapen(answer: Answer, kind: str) -> Iterator[str]:
    try:
        error = json.loads(answer.body)["error"]
    except (ValueError, KeyError, TypeError):
        yield f"{answer.status} in no shape: {answer.body[:200]!r}"
        return
    if kind != "application/json" or not (answer.whole and error["message"] and error["type"]):
        yield f"{answer.status} in another shape: {answer.body[:200]!r}"
    if "param" not in error or "code" not in error:
        page = error["type"] in {"no_visit", "csrf"}  # the web page's own
        if not page:
            yield f"{answer.status} without param and code: {answer.body[:200]!r}"


# --- the whole ---------------------------------------------------------------------------------


def _script(body: dict[str, Any]) -> Script:
    said = [str(each["content"]) for each in body["messages"] if each["role"] == "user"]
    if said[-1].startswith("hang "):
        return 'H T"so far " HANG'
    if said[-1].startswith(f"{SLOW} "):
        return 'H [T"one " W.02]*6 F stop U D'
    return 'H T"fine" F stop U D'


async def fuzz(requests: int, seed: int, home: Path) -> Tally:
    """Send so many cases of a seed to a daemon of its own; gives what came of it."""
    tally, cases, began = Tally(), Cases(seed), time.monotonic()
    async with ModelServer(_script) as model:
        async with served(model, home, "gateway.drain_seconds=0", env=ONE_HEAP) as daemon:
            for part in range(PARTS):
                numbers = iter(range(requests * part // PARTS, requests * (part + 1) // PARTS))
                await _crowd(daemon, cases, numbers, tally, model)
                tally.weights.append(await settled(daemon))
            tally.lag = await _lag(daemon, tally)
        tally.log = daemon.said
        tally.wrong += [f"log: {line}" for line in daemon.said if ODD.search(line)]
    tally.turns = _left(home / "holdfast.db", tally)
    _weigh(tally)
    tally.seconds = time.monotonic() - began
    return tally


async def _crowd(
    daemon: Daemon, cases: Cases, numbers: Iterator[int], tally: Tally, model: ModelServer
) -> None:
    async def client() -> None:
        for number in numbers:
            case = cases[number]
            answers = await send(daemon.port, case)
            tally.kinds[case.kind] += 1
            tally.statuses.update(answer.status for answer in answers)
            tally.silent += not answers
            tally.wrong += [f"{number} {case!r}: {what}" for what in judge(case, answers)]
            model.requests.clear()

    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(client())


async def settled(daemon: Daemon) -> Weight:
    """What the daemon weighs when nothing is under way any more."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await figures(daemon)
            if not found["holdfast_running_turns"] and not found["holdfast_http_requests"]:
                break
            await asyncio.sleep(0.05)
    place = Path(f"/proc/{daemon.pid}")
    lightest = min([await _memory(place) for _ in range(5)])
    threads = len(list((place / "task").iterdir()))
    return Weight(lightest, len(list((place / "fd").iterdir())), threads)


async def _memory(place: Path) -> int:
    await asyncio.sleep(0.1)
    found = re.search(r"VmRSS:\s+(\d+) kB", (place / "status").read_text(encoding="utf-8"))
    assert found
    return int(found[1]) * 1024


async def figures(daemon: Daemon) -> dict[str, float]:
    """What `/metrics` says."""
    headers = {"authorization": f"Bearer {KEY}"}
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.get(f"{daemon.url}/metrics") as response,
    ):
        page = await response.text()
    lines = (line.rpartition(" ") for line in page.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


async def _lag(daemon: Daemon, tally: Tally) -> str:
    found = await figures(daemon)
    name = "holdfast_loop_lag_seconds"
    buckets = [
        (float(name.partition('le="')[2].rstrip('"}')), count)
        for name, count in found.items()
        if name.startswith("holdfast_loop_lag_seconds_bucket")
    ]
    felt = found[f"{name}_count"]
    least = min((bound for bound, count in buckets if count == felt), default=float("inf"))
    if least > LAG:
        tally.wrong.append(f"the loop was late by more than {LAG:g} s")
    return f"{found[f'{name}_sum'] / felt * 1000:.0f} ms on average, at most {least:g} s"


def _left(database: Path, tally: Tally) -> int:
    """Look what lies in the store; gives how many turns there were."""
    open_ = {
        "turns": "state IN ('queued', 'running')",
        "inbox": "state IN ('waiting', 'running', 'command', 'held')",
        "outbox": "state IN ('pending', 'attempting')",
    }
    with closing(sqlite3.connect(database)) as store:
        for table, where in open_.items():
            (left,) = store.execute(f"SELECT count(*) FROM {table} WHERE {where}").fetchone()  # noqa: S608 - our own words
            if left:
                tally.wrong.append(f"{left} left open in {table}")
        interrupted = "SELECT count(*) FROM turns WHERE state = 'interrupted'"
        (cut,) = store.execute(interrupted).fetchone()
        if cut:
            tally.wrong.append(f"{cut} turns were cut off by the end of the daemon")
        (turns,) = store.execute("SELECT count(*) FROM turns").fetchone()
    return int(turns)


def _weigh(tally: Tally) -> None:
    early, late = tally.weights[0], tally.weights[-1]
    if tally.kinds.total() >= ENOUGH and late.memory - early.memory > GROWTH:
        tally.wrong.append(f"it grew by {(late.memory - early.memory) / 2**20:.1f} MB")
    if late.files > early.files + 4:
        tally.wrong.append("files or connections are left open")
    if late.threads > early.threads + 4:
        tally.wrong.append("there are more and more threads")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=Path, help="where to put what the daemon logged")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        tally = asyncio.run(fuzz(chosen.requests, chosen.seed, Path(home)))
    if chosen.log:
        chosen.log.write_text("\n".join(tally.log), encoding="utf-8")
    sys.stdout.write(f"{tally}\n")
    sys.exit(bool(tally.wrong))


if __name__ == "__main__":
    main()
