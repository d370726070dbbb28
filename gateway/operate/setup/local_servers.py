"""Model servers on this machine, found on their usual ports."""

import asyncio
import contextlib
from collections.abc import Mapping

from msgspec import Struct

from agent.probe import ProbeTimeouts, probe_model
from agent.settings import TargetSettings
from sessions.values.clock import Clock

SERVER_PORTS: Mapping[int, str] = {
    11434: "Ollama",
    1234: "LM Studio",
    8080: "llama.cpp",
    8000: "vLLM",
}


_CONNECT_SECONDS = 0.5


_LIST_SECONDS = 2.0


class LocalModelServer(Struct, frozen=True):
    """A model server that answers."""

    name: str
    base_url: str
    models: tuple[str, ...]


async def find_servers(
    clock: Clock, ports: Mapping[int, str] = SERVER_PORTS
) -> tuple[LocalModelServer, ...]:
    """Probe all ports at once; a port that lists no models is not a model server."""
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(_probe_port(port, name, clock)) for port, name in ports.items()]
    return tuple(filter(None, (task.result() for task in asked)))


async def _probe_port(port: int, name: str, clock: Clock) -> LocalModelServer | None:
    with contextlib.suppress(OSError):  # no listener
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        base_url = f"http://127.0.0.1:{port}/v1"
        settings = TargetSettings(provider="openai", base_url=base_url)
        probed = await probe_model(
            settings, clock=clock, request_answers=False, timeouts=ProbeTimeouts(list=_LIST_SECONDS)
        )
        if probed.offered:
            return LocalModelServer(name, base_url, probed.offered)
    return None
