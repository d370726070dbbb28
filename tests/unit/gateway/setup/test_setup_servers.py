import asyncio

from gateway.operate.setup.local_servers import LocalModelServer, find_servers
from sessions.values.clock import SystemClock
from tests.fakes.model_server import ModelServer


async def free_port() -> int:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port


async def test_only_servers_that_list_models_are_found() -> None:
    async def turned_away(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    page = await asyncio.start_server(turned_away, "127.0.0.1", 0)
    async with (
        page,
        ModelServer(models=("qwen3:8b", "llama3.2")) as model,
        ModelServer(models=()) as empty,
    ):
        ports = {
            await free_port(): "nobody",
            model.port: "Ollama",
            page.sockets[0].getsockname()[1]: "a page",
            empty.port: "a server without a model",
        }
        found = await find_servers(SystemClock(), ports)
    assert found == (LocalModelServer("Ollama", model.url, ("qwen3:8b", "llama3.2")),)
    assert model.requests == []  # no model request was made
