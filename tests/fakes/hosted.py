"""An app on a free port of this machine."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import ASGIApp

from gateway.http import HttpServer


@asynccontextmanager
async def hosted(app: ASGIApp) -> AsyncIterator[HttpServer]:
    """Serve an app inside the block."""
    server = HttpServer("127.0.0.1", 0)
    server.bind()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(server.serve(app))
        yield server
        task.cancel()
