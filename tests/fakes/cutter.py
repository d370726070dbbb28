"""Stands between a store and PostgreSQL, and loses connections in the middle of a commit."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Literal

import sqlalchemy as sa

How = Literal["before", "after", "late"]
HOWS: tuple[How, ...] = ("before", "after", "late")
"""The commit never reaches the server; is carried out, but its answer is lost; or it reaches the
server when the store has long given the connection up."""

_LONGEST = 0.5  # seconds for which a late commit is held back where no other one comes


class Cutter:
    """Cuts the connections whose commits have these numbers, counted over all connections."""

    def __init__(self, url: str, plan: Mapping[int, How] | None = None) -> None:
        self._server = sa.make_url(url)
        self.plan = dict(plan or {})
        self.commits = 0
        self.refuses = False  # nobody gets through any more
        self.refused = 0
        self._another = asyncio.Event()  # a commit of another connection was answered

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Take connections; gives the URL that leads through here."""
        async with asyncio.TaskGroup() as carriers:
            carrying: list[asyncio.Task[None]] = []

            def carry(near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
                carrying.append(carriers.create_task(self._carry(near, back)))

            async with await asyncio.start_server(carry, "127.0.0.1", 0) as server:
                port = server.sockets[0].getsockname()[1]
                yield self._server.set(port=port).render_as_string(hide_password=False)
                server.close()
                for task in carrying:
                    task.cancel()

    async def _carry(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        if self.refuses:
            self.refused += 1
            back.close()
            return
        far, forth = await asyncio.open_connection("127.0.0.1", self._server.port)
        try:
            with contextlib.suppress(ConnectionError):
                async with asyncio.TaskGroup() as tasks:
                    answers = tasks.create_task(self._answers(far, back))
                    while data := await near.read(65536):
                        if how := self._how(data):
                            answers.cancel()
                            await asyncio.wait([answers])  # nobody else may read when it is cut
                            await self._cut(how, data, far, forth, back)
                            break
                        forth.write(data)
                    answers.cancel()
        finally:
            forth.close()
            back.close()

    def _how(self, data: bytes) -> How | None:
        if b"COMMIT" not in data:
            return None
        self.commits += 1
        return self.plan.get(self.commits - 1)

    async def _cut(
        self,
        how: How,
        data: bytes,
        far: asyncio.StreamReader,
        forth: asyncio.StreamWriter,
        back: asyncio.StreamWriter,
    ) -> None:
        if how == "late":
            back.close()
            self._another.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LONGEST):
                    await self._another.wait()
        if how != "before":
            forth.write(data)
            await far.read(65536)

    async def _answers(self, far: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        while data := await far.read(65536):
            back.write(data)
            if b"COMMIT" in data:
                self._another.set()
