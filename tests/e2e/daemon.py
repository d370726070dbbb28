"""The gateway as a process of its own, and a client that talks to it as the page does."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Self

import aiohttp

from gateway.config.loader import read_environment
from gateway.process import start_log
from tests.fakes import warm_start
from tests.fakes.warm_start import WarmProcess

_PAGE = re.compile(r"Chat in the browser: +http://127\.0\.0\.1:(\d+)/")
_LINK = re.compile(r"http://127\.0\.0\.1:\d+/enter/[\w-]+")
PATIENCE = 40.0
NO_FILE = {"HOLDFAST_CONFIG": os.devnull}
"""What this machine is configured to do is not for tests: there may be keys and tokens of somebody."""

Row = dict[str, Any]


class Daemon:
    """`holdfast run` on a state folder; may be killed and started again.

    A `warm` one need not import the gateway; see `tests.fakes.warm_start`.
    """

    def __init__(
        self, home: Path, *settings: str, env: dict[str, str] | None = None, warm: bool = False
    ) -> None:
        self.home = home
        self.settings = settings
        self.env = env or {}
        self.warm = warm
        self.port = 0
        self.said: list[str] = []  # what it logged, all starts together
        self._heard = asyncio.Event()  # set with each line
        self._process: asyncio.subprocess.Process | WarmProcess | None = None
        self._readers: list[asyncio.Task[None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    def words(self) -> list[str]:
        """What it is started by."""
        sets = [part for each in self.settings for part in ("--set", each)]
        program = str(Path(sys.executable).with_name("holdfast"))
        return [program, "run", "--set", f"http.port={self.port}", *sets]

    async def start(self) -> None:
        """Start it and wait until it says that it is ready."""
        environ = {
            name: value
            for name, value in read_environment().items()
            if not name.startswith(("HOLDFAST", "OPENAI", "ANTHROPIC", "NOTIFY"))
        }
        environ = {**environ, **NO_FILE, "HOLDFAST_HOME": str(self.home), **self.env}
        start = self._start_warm if self.warm else self._start_cold
        self._process, streams = await start(environ)
        linked: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        async with asyncio.timeout(PATIENCE):
            for stream in streams:
                self._readers.append(asyncio.create_task(self._read(stream, linked)))  # noqa: TID251 - ended with the process
            self._readers[0].add_done_callback(lambda _: linked.done() or linked.cancel())
            try:
                await linked
            except asyncio.CancelledError:
                msg = "it ended instead of starting:\n" + "\n".join(self.said)
                raise AssertionError(msg) from None
        self.port = int(linked.result())

    async def _start_cold(
        self, environ: dict[str, str]
    ) -> tuple[asyncio.subprocess.Process, list[asyncio.StreamReader]]:
        process = await asyncio.create_subprocess_exec(
            *self.words(),
            env=environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=2**24,
        )
        assert process.stdout
        assert process.stderr
        return process, [process.stdout, process.stderr]

    async def _start_warm(
        self, environ: dict[str, str]
    ) -> tuple[WarmProcess, list[asyncio.StreamReader]]:
        (out, stdout), (err, stderr) = os.pipe(), os.pipe()
        process = warm_start.start(*self.words()[1:], env=environ, stdout=stdout, stderr=stderr)
        os.close(stdout)
        os.close(stderr)
        return process, [await _reader(out), await _reader(err)]

    async def _read(self, stream: asyncio.StreamReader, linked: asyncio.Future[str]) -> None:
        while line := (await stream.readline()).decode():
            self.said.append(line.rstrip())
            self._heard.set()
            if (match := _PAGE.search(line)) and not linked.done():
                linked.set_result(match[1])

    async def link(self) -> str:
        """Return a new link to the page."""
        said = await self.run("link")
        found = _LINK.search(said)
        assert found, said
        return found[0]

    async def logs(self, text: str) -> str:
        """Wait until it says something; gives the line."""
        async with asyncio.timeout(PATIENCE):
            while not (found := [line for line in self.said if text in line]):
                self._heard.clear()
                await self._heard.wait()
        return found[-1]

    async def run(self, *words: str) -> str:
        """What another command of ours prints about this one."""
        environ = {**read_environment(), **NO_FILE, "HOLDFAST_HOME": str(self.home)}
        out, stdout = os.pipe()
        process = warm_start.start(*words, env=environ, stdout=stdout, stderr=stdout)
        os.close(stdout)
        async with asyncio.timeout(PATIENCE):
            said = await (await _reader(out)).read()
            await process.ended()
        return said.decode()

    async def standing(self) -> dict[str, Any]:
        """What `/readyz` says."""
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"{self.url}/readyz") as response,
        ):
            return {**await response.json(), "status": response.status}

    async def in_trouble(self, about: str) -> str:
        """Wait until `/readyz` names something; gives its line."""
        told: Row = {}
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    for line in (told := await self.standing())["not_ready"]:
                        if about in line:
                            return str(line)
                    await asyncio.sleep(0.05)
        except TimeoutError:
            msg = f"{about!r} is not named: {told}"
            raise AssertionError(msg) from None

    async def well(self) -> None:
        """Wait until `/readyz` names nothing."""
        async with asyncio.timeout(PATIENCE):
            while True:
                if not (await self.standing())["not_ready"]:
                    return
                await asyncio.sleep(0.05)

    async def kill(self) -> None:
        """As a power cut would."""
        self.signal(signal.SIGKILL)
        await self.ended()

    def forget_crashes(self) -> None:
        """Each kill counts for itself: after three the next start would be careful."""
        (self.home / start_log.FILE_NAME).unlink(missing_ok=True)

    async def stop(self) -> int:
        """As systemd would."""
        self.signal(signal.SIGTERM)
        return await self.ended()

    def signal(self, number: signal.Signals) -> None:
        assert self._process
        if self._process.returncode is None:
            self._process.send_signal(number)

    async def ended(self) -> int:
        assert self._process
        async with asyncio.timeout(PATIENCE):
            if isinstance(self._process, WarmProcess):
                code = await self._process.ended()
            else:
                code = await self._process.wait()
            for reader in self._readers:
                await reader
        self._readers.clear()
        return code

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process and self._process.returncode is None:
            await self.kill()


async def _reader(pipe: int) -> asyncio.StreamReader:
    """Read a pipe in the loop that runs, to its end; then it is closed."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=2**24, loop=loop)
    file = os.fdopen(pipe, "rb", buffering=0)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader, loop=loop), file)
    return reader


class Page:
    """The page's side of the daemon's HTTP: a cookie, and conversations."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._http = aiohttp.ClientSession(
            cookie_jar=aiohttp.CookieJar(unsafe=True),
            timeout=aiohttp.ClientTimeout(total=PATIENCE),
            read_bufsize=2**24,  # a row is one line
        )
        self._csrf = ""

    async def __aenter__(self) -> Self:
        await self.enter()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def enter(self) -> None:
        async with self._http.get(await self._daemon.link()) as response:
            assert response.status == 200, await response.text()
        async with self._http.get(f"{self._daemon.url}/web/session") as response:
            self._csrf = (await response.json())["csrf"]

    async def send(self, chat: str, text: str, id_: str) -> int:
        """Post a message; answers with the status, or 0 when the connection broke."""
        return await self._post(chat, "messages", {"id": id_, "text": text})

    async def press(self, chat: str, action: str, id_: str) -> int:
        return await self._post(chat, "actions", {"id": id_, "action": action})

    async def _post(self, chat: str, what: str, body: dict[str, str]) -> int:
        url = f"{self._daemon.url}/web/chats/{chat}/{what}"
        try:
            headers = {"X-Holdfast-CSRF": self._csrf}
            async with self._http.post(url, json=body, headers=headers) as response:
                await response.read()
                return response.status
        except aiohttp.ClientError:
            return 0

    async def rows(self, chat: str) -> list[Row]:
        url = f"{self._daemon.url}/web/chats/{chat}/rows?limit=5000"
        async with self._http.get(url) as response:
            assert response.status == 200, await response.text()
            found: list[Row] = (await response.json())["rows"]
            return found

    async def until(self, chat: str, enough: Callable[[list[Row]], bool]) -> list[Row]:
        """Watch a conversation until its rows are as wanted."""
        rows = {row["id"]: row for row in await self.rows(chat)}
        after = max((row["seq"] for row in rows.values()), default=0)
        if enough(list(rows.values())):
            return list(rows.values())
        try:
            async with asyncio.timeout(PATIENCE):
                async for name, data in self.events(chat, after):
                    if name == "row":
                        rows[data["id"]] = data
                    if name in {"row", "ready"} and enough(list(rows.values())):
                        return list(rows.values())
        except TimeoutError:
            shown = "\n".join(f"{row['author']}: {row['text']}" for row in rows.values())
            msg = f"{chat} never came to be as wanted; it shows:\n{shown}"
            raise AssertionError(msg) from None
        msg = f"the stream of {chat} ended"
        raise AssertionError(msg)

    async def events(self, chat: str, after: int = 0) -> AsyncIterator[tuple[str, Any]]:
        url = f"{self._daemon.url}/web/chats/{chat}/events?after={after}"
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._http.get(url, timeout=timeout) as response:
            assert response.status == 200, await response.text()
            name = ""
            async for line in response.content:
                text = line.decode().rstrip("\n")
                if text.startswith("event: "):
                    name = text[7:]
                elif text.startswith("data: "):
                    yield name, json.loads(text[6:])


def answers(rows: list[Row]) -> list[str]:
    return [row["text"] for row in rows if row["author"] == "answer"]


def notices(rows: list[Row]) -> list[str]:
    return [row["text"] for row in rows if row["author"] == "notice"]
