"""The API of a whole gateway, as OpenAI's own library meets it, and as it stands on the wire."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from openai import AsyncOpenAI
from openai.types.responses import Response

from gateway.config.loader import read_environment
from gateway.settings import HttpSettings
from sessions.values.secret import Secret
from tests.e2e.daemon import NO_FILE, Daemon
from tests.e2e.gateway_kit import GatewayKit, gateway
from tests.fakes import warm_start
from tests.fakes.http_client import library_client
from tests.fakes.model_server import ModelServer

KEY = "key-of-the-api"
HTTP = HttpSettings(port=0, api_key=Secret(KEY), ui=False)
PATIENCE = 8.0
OPEN = ("queued", "in_progress")


class Event(msgspec.Struct, frozen=True):
    """One event of a stream; a comment has no data."""

    name: str
    data: Any = None


class Wire:
    """Requests as bytes: what no library of OpenAI's shows."""

    def __init__(self, base: str, key: str = KEY) -> None:
        self.base = base
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE))

    async def close(self) -> None:
        await self._http.close()

    @contextlib.asynccontextmanager
    async def opened(
        self, text: str, *, headers: dict[str, str] | None = None, **more: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Ask for a stream, and stay as long as the block."""
        body = {"model": "scripted", "messages": user(text), "stream": True, **more}
        async with self._http.post(
            f"{self.base}/chat/completions", json=body, headers=self._headers | (headers or {})
        ) as response:
            yield response

    async def stream(
        self, text: str, *, headers: dict[str, str] | None = None, **more: Any
    ) -> list[Event]:
        async with self.opened(text, headers=headers, **more) as response:
            assert response.status == 200, await response.text()
            return [event async for event in events(response)]

    async def send(
        self, method: str, path: str, *, headers: dict[str, str] | None = None, **more: Any
    ) -> tuple[int, dict[str, str], Any]:
        """Status, headers, and body."""
        async with self._http.request(
            method, f"{self.base}{path}", headers=self._headers | (headers or {}), **more
        ) as response:
            found = {name.lower(): value for name, value in response.headers.items()}
            return response.status, found, json.loads(await response.read())

    async def ask(
        self, text: str, *, headers: dict[str, str] | None = None, **more: Any
    ) -> tuple[int, dict[str, str], Any]:
        body = {"model": "scripted", "messages": user(text), **more}
        return await self.send("POST", "/chat/completions", json=body, headers=headers)


def user(text: str) -> Any:
    return [{"role": "user", "content": text}]


async def events(response: aiohttp.ClientResponse) -> AsyncIterator[Event]:
    """The events of a stream, its comments among them."""
    name = ""
    async for line in response.content:
        said = line.decode().rstrip("\n")
        if said.startswith(":"):
            yield Event(said)
        elif said.startswith("event: "):
            name = said[7:]
        elif said.startswith("data: "):
            data = said[6:]
            yield Event(name, data if data == "[DONE]" else json.loads(data))
            name = ""


def chunks(found: list[Event]) -> Iterator[dict[str, Any]]:
    """Those events that OpenAI would have sent as well."""
    for event in found:
        if not event.name and isinstance(event.data, dict) and "choices" in event.data:
            yield event.data


def text_of(found: list[Event]) -> str:
    return "".join(
        choice["delta"].get("content") or "" for each in chunks(found) for choice in each["choices"]
    )


def finish_of(found: list[Event]) -> list[str]:
    """Every reason to end that a stream gave."""
    given = [choice["finish_reason"] for each in chunks(found) for choice in each["choices"]]
    return [each for each in given if each]


def named(found: list[Event], name: str) -> list[dict[str, Any]]:
    return [event.data for event in found if event.name == name]


class ApiKit:
    """A gateway with the API's clients at its door."""

    def __init__(self, kit: GatewayKit, wire: Wire, client: AsyncOpenAI) -> None:
        self.kit = kit
        self.wire = wire
        self.client = client
        self.chat = client.chat.completions

    async def sessions(self, key: str = "") -> list[tuple[str, str | None]]:
        """State and reason of each session, the newest first."""
        assert self.kit.runner._store
        found = await self.kit.runner._store.sessions.list(key=key or None)
        return [(each.state.value, each.reason and each.reason.value) for each in found]


@contextlib.asynccontextmanager
async def served(
    home: Path, model: ModelServer, *, http: HttpSettings = HTTP, **more: Any
) -> AsyncIterator[ApiKit]:
    async with gateway(home, model, served=True, http=http, **more) as kit:
        assert kit.runner._http_server
        base = f"{kit.runner._http_server.url}v1"
        wire = Wire(base)
        async with library_client(base, KEY) as client:
            try:
                yield ApiKit(kit, wire, client)
            finally:
                await wire.close()


async def polled(
    retrieve: Callable[[], Awaitable[Response]], *, until: tuple[str, ...] = ()
) -> Response:
    """Poll as a client does, until the status is one of these, or the answer has ended."""
    async with asyncio.timeout(PATIENCE):
        while True:
            answer = await retrieve()
            if answer.status in until or (not until and answer.status not in OPEN):
                return answer
            await asyncio.sleep(0.02)


def daemon_for(home: Path, model: ModelServer) -> Daemon:
    """Return a daemon, not yet started, whose API takes `KEY`."""
    return Daemon(
        home,
        'model.provider="openai"',
        'model.name="scripted"',
        f'model.base_url="{model.url}"',
        'model.api_key="sk-none"',
        f'http.api_key="{KEY}"',
        warm=True,
    )


def why(home: Path, *words: str) -> str:
    """Return the output of `holdfast why` on a state folder."""
    env = {**read_environment(), **NO_FILE, "HOLDFAST_HOME": str(home)}
    found = warm_start.run("why", *words, env=env, cwd=home)
    found.check_returncode()
    return found.stdout
