"""A chat whose daemon ends and comes back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from gateway.operate.cli.remote import BACK_NOTE, ENDED_NOTE, DaemonGone, RemoteChat
from gateway.process.chat_stream import ChatFinished, InputStored, TerminalInput
from gateway.process.control_socket import ControlConnection, NotAnswering, NotRunning
from platforms.console import AnswerFrame, StatusFrame, TerminalFrame


class Other:
    """The daemon's side of a chat's successive connections."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._met: asyncio.Queue[ControlConnection] = asyncio.Queue()
        self._wires: list[ControlConnection] = []  # both ends

    def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._met.put_nowait(self._kept(ControlConnection(reader, writer)))

    async def join(self) -> ControlConnection:
        return self._kept(ControlConnection(*await asyncio.open_unix_connection(self.path)))

    def _kept(self, wire: ControlConnection) -> ControlConnection:
        self._wires.append(wire)
        return wire

    async def close(self) -> None:
        for wire in self._wires:
            await wire.close()

    async def next(self) -> ControlConnection:
        async with asyncio.timeout(5):
            return await self._met.get()


@pytest.fixture
async def other(tmp_path: Path) -> AsyncIterator[Other]:
    made = Other(tmp_path / "socket")
    server = await asyncio.start_unix_server(made.meet, made.path)
    yield made
    await made.close()
    server.close()


async def hears(wire: ControlConnection) -> TerminalInput:
    async with asyncio.timeout(5):
        line = await wire.read()
    assert line
    return msgspec.json.decode(line, type=TerminalInput)


@contextlib.asynccontextmanager
async def reading(remote: RemoteChat) -> AsyncIterator[list[TerminalFrame]]:
    """Collect frames while the block runs, and then to the end."""
    shown: list[TerminalFrame] = []

    async def read() -> None:
        async for frame in remote.frames():
            shown.append(frame)  # noqa: PERF401 - the list is read meanwhile

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(read())
        yield shown


async def test_only_unconfirmed_messages_are_sent_again_in_order(
    other: Other,
) -> None:
    remote = RemoteChat(await other.join(), other.join)
    first = await other.next()
    async with reading(remote) as shown:
        for text in ("one", "two", "three"):
            await remote.send(text)
        await remote.finish()
        said = [await hears(first) for _ in range(4)]
        await first.write(InputStored(said[0].id))
        await first.write(AnswerFrame(item="a", text="1"))
        await first.close()
        second = await other.next()
        assert [await hears(second) for _ in range(3)] == said[1:]
        await second.write(ChatFinished())
        await second.close()
    assert shown == [AnswerFrame(item="a", text="1"), StatusFrame(""), ENDED_NOTE, BACK_NOTE]
    assert said[3].of == tuple(each.id for each in said[:3])


async def test_a_daemon_that_dies_right_after_reconnecting_is_awaited_again(other: Other) -> None:
    remote = RemoteChat(await other.join(), other.join)
    async with reading(remote) as shown:
        await remote.finish()
        for _ in range(2):
            await (await other.next()).close()
        last = await other.next()
        assert (await hears(last)).end
        await last.write(ChatFinished())
    assert shown.count(ENDED_NOTE) == 2


async def test_a_daemon_that_ends_before_answering_does_not_end_the_chat(other: Other) -> None:
    ways = iter((NotAnswering, NotRunning))

    async def join() -> ControlConnection:
        for failure in ways:
            raise failure
        return await other.join()

    remote = RemoteChat(await other.join(), join)
    async with reading(remote):
        await (await other.next()).close()
        await remote.finish()
        last = await other.next()
        assert (await hears(last)).end
        await last.write(ChatFinished())


async def test_a_script_does_not_wait_forever(other: Other) -> None:
    async def join() -> ControlConnection:
        raise NotRunning

    remote = RemoteChat(await other.join(), join, rejoin_seconds=0.3)
    await (await other.next()).close()
    with pytest.raises(ExceptionGroup) as ended:
        async with reading(remote):
            await remote.send("one")
    assert isinstance(ended.value.exceptions[0], DaemonGone)
