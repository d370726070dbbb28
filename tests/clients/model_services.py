"""The daemon in front of a third-party model server, and requests to its API."""

import contextlib
import json
import re
import tomllib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from tests.clients.kit import ROOT
from tests.e2e.api_kit import KEY, events, finish_of, text_of
from tests.e2e.daemon import Daemon

SECONDS = 120.0
DIALECTS = ("openai", "openai-responses", "anthropic")
"""Values of `model.provider`, one for each protocol."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway's answer to one request for a chat completion."""

    status: int
    text: str = ""
    finish: str = ""
    error: Mapping[str, Any] = {}
    headers: Mapping[str, str] = {}
    usage: Mapping[str, Any] = {}

    @property
    def is_whole(self) -> bool:
        """True if the answer counts as complete."""
        return self.status == 200 and self.finish == "stop" and not self.error

    @property
    def is_honest(self) -> bool:
        """True for a complete answer with text, and for a failure that says what happened."""
        return bool(self.text.strip()) if self.is_whole else bool(self.error.get("message"))


class Api:
    """The gateway's API, asked as its clients do."""

    def __init__(self, daemon: Daemon, http: aiohttp.ClientSession) -> None:
        self.daemon = daemon
        self.model = ""
        self.base = f"{daemon.url}/v1"
        self._http = http

    async def send(self, method: str, path: str, **more: Any) -> tuple[int, dict[str, str], Any]:
        """Return status, headers and body of a response."""
        async with self._http.request(method, f"{self.base}{path}", **more) as response:
            headers = {name.lower(): value for name, value in response.headers.items()}
            return response.status, headers, json.loads(await response.read())

    async def ask(self, text: str, *, stream: bool = False, **more: Any) -> Answer:
        """Ask one question of a conversation of its own."""
        messages = [{"role": "user", "content": text}]
        body = {"model": self.model, "messages": messages, "stream": stream, **more}
        return await (self._stream(body) if stream else self._ask(body))

    async def models(self) -> list[str]:
        """Return the models that the gateway lists."""
        _, _, found = await self.send("GET", "/models")
        return [each["id"] for each in found["data"]]

    async def _ask(self, body: dict[str, Any]) -> Answer:
        status, headers, found = await self.send("POST", "/chat/completions", json=body)
        if status != 200:
            return Answer(status=status, headers=headers, error=found["error"])
        choice = found["choices"][0]
        return Answer(
            status=status,
            headers=headers,
            text=choice["message"]["content"] or "",
            finish=choice["finish_reason"],
            error=found.get("error") or {},
            usage=found["usage"],
        )

    async def _stream(self, body: dict[str, Any]) -> Answer:
        body = {**body, "stream_options": {"include_usage": True}}
        async with self._http.post(f"{self.base}/chat/completions", json=body) as response:
            headers = {name.lower(): value for name, value in response.headers.items()}
            if response.status != 200:
                return Answer(
                    status=response.status, headers=headers, error=(await response.json())["error"]
                )
            found = [event async for event in events(response)]
        records = [event.data for event in found if isinstance(event.data, dict)]
        errors = [each["error"] for each in records if each.get("error")]
        usage = [each["usage"] for each in records if each.get("usage")]
        return Answer(
            status=response.status,
            headers=headers,
            text=text_of(found),
            finish=(finish_of(found) or [""])[-1],
            error=errors[-1] if errors else {},
            usage=usage[-1] if usage else {},
        )


@contextlib.asynccontextmanager
async def gateway_for(home: Path, *settings: str) -> AsyncIterator[Api]:
    """Run the daemon with these settings of its model, and close it at the end."""
    headers = {"authorization": f"Bearer {KEY}"}
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    async with (
        Daemon(home, f'http.api_key="{KEY}"', *settings) as daemon,
        aiohttp.ClientSession(headers=headers, timeout=timeout) as http,
    ):
        api = Api(daemon, http)
        api.model = (await api.models())[0]
        yield api


def model_settings(provider: str, base_url: str, name: str = "", key: str = "sk-none") -> list[str]:
    """Return the settings of a model service; without a name, the service's first model."""
    named = [f'model.name="{name}"'] if name else []
    return [
        f'model.provider="{provider}"',
        f'model.base_url="{base_url}"',
        f'model.api_key="{key}"',
        *named,
    ]


def documented(section: str, provider: str, address: str) -> list[str]:
    """Return the settings that docs/models.md shows for a server, which is at this address."""
    page = (ROOT / "docs/models.md").read_text().partition(f"\n## {section}\n")[2]
    shown = tomllib.loads(page.partition("```toml\n")[2].partition("```")[0])["model"]
    assert shown["provider"] == "openai"
    path = "" if provider == "anthropic" else re.sub(r"^http://[^/]+", "", shown["base_url"])
    real = shown | {"provider": provider, "base_url": address + path}
    return [f"model.{name}={json.dumps(value)}" for name, value in real.items()]
