"""Runs a gateway as a service: lock, signals, systemd, control socket."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from gateway.control import Operation, Stream, Wire, serving, socket_path
from gateway.errors import CannotStart
from gateway.handover import LOCK, Handover
from gateway.lock import only_daemon
from gateway.notify import Systemd
from platforms.console import CHAT, ConsoleAdapter, Screen
from platforms.core.contract import Adapter

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Runner(Protocol):
    """What is run: `gateway.runner.GatewayRunner`."""

    stopping: asyncio.Event
    restarting: asyncio.Event
    hurry: asyncio.Event
    ready: asyncio.Event

    @property
    def operations(self) -> Mapping[str, Operation]:
        """What the control socket offers."""
        ...

    def adapter(self, name: str) -> Adapter | None:
        """One of the adapters in use."""
        ...

    async def run(self) -> None:
        """Until `stopping` is set and everything is drained."""
        ...


class Said(msgspec.Struct, frozen=True):
    """A line from a terminal: words, or that nothing more will be said."""

    say: str = ""
    id: str = ""
    end: bool = False


Then = Callable[[], Awaitable[None]]


async def serve(
    runner: Runner,
    home: Path,
    environ: Mapping[str, str],
    *,
    then: Then | None = None,
    signals: bool = True,
    handover: Handover | None = None,
    starts: contextlib.AbstractContextManager[object] | None = None,
) -> None:
    """Run until told to stop; raises `HoldfastError` for what keeps it from starting.

    `then` is carried out once the gateway is ready. With `signals` the first SIGTERM or SIGINT
    stops, and a second one skips the wait for running turns. At the end of a restart, which a
    signal turns into a stop, the lock is left in `handover`. `starts` is entered behind the lock.
    """
    manager, handover = Systemd(environ), handover or Handover()
    with (
        only_daemon(home, handover.take(LOCK)) as lock,
        _on_signals(runner, manager) if signals else contextlib.nullcontext(),
        starts or contextlib.nullcontext(),
    ):
        async with asyncio.TaskGroup() as beside:
            helpers = [
                beside.create_task(_attend(runner, home, environ, manager, then)),
                beside.create_task(_alive(manager)),
            ]
            try:
                await runner.run()
            finally:
                for helper in helpers:
                    helper.cancel()
        if runner.restarting.is_set():
            handover.keep(LOCK, lock)


# --- beside the runner -----------------------------------------------------------------------


@contextlib.contextmanager
def _on_signals(runner: Runner, manager: Systemd) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def told() -> None:
        if runner.restarting.is_set():
            log.info("told to stop: this is no restart any more")
            runner.restarting.clear()
            manager.tell(*_STOPPING)
            return
        if runner.stopping.is_set():
            log.info("told to stop again: not waiting for running turns")
            runner.hurry.set()
        runner.stopping.set()

    for number in SIGNALS:
        loop.add_signal_handler(number, told)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


async def _attend(
    runner: Runner,
    home: Path,
    environ: Mapping[str, str],
    manager: Systemd,
    then: Then | None,
) -> None:
    """Open the control socket once there is something to control, and say how things stand."""
    await runner.ready.wait()
    console = runner.adapter("console")
    streams = {"chat": chat_stream(console)} if isinstance(console, ConsoleAdapter) else {}
    async with serving(socket_path(home, environ), runner.operations, streams):
        manager.tell("READY=1", "STATUS=Answering.")
        if then:
            await then()
        await runner.stopping.wait()
        manager.tell(*(_reloading() if runner.restarting.is_set() else _STOPPING))
        await asyncio.Event().wait()  # the socket stays open until the runner has ended


_STOPPING = ("STOPPING=1", "STATUS=Finishing what runs.")


def _reloading() -> tuple[str, ...]:
    """What systemd is told of a restart: the process stays, so this is no stop to it."""
    now = int(asyncio.get_running_loop().time() * 1_000_000)
    return ("RELOADING=1", f"MONOTONIC_USEC={now}", "STATUS=Finishing what runs, then restarting.")


async def _alive(manager: Systemd) -> None:
    """Say that the loop still turns; when it hangs, systemd starts the daemon anew."""
    while manager.watchdog:
        manager.tell("WATCHDOG=1")
        await asyncio.sleep(manager.watchdog)


# --- terminals -------------------------------------------------------------------------------


def chat_stream(console: ConsoleAdapter) -> Stream:
    """Let a terminal of another process look at the console's chat."""

    async def stream(wire: Wire, args: Mapping[str, object]) -> None:
        chat = args.get("chat", CHAT)
        if not isinstance(chat, str) or not chat:
            msg = "The chat needs a name."
            raise CannotStart(msg)
        async with console.attach(chat) as screen, asyncio.TaskGroup() as both:
            showing = both.create_task(_show(screen, wire))
            hearing = both.create_task(_hear(screen, wire))
            await asyncio.wait({showing, hearing}, return_when=asyncio.FIRST_COMPLETED)
            if hearing.done() and not hearing.exception() and hearing.result():
                await asyncio.wait({showing})  # what is still to be printed
            showing.cancel()
            hearing.cancel()

    return stream


async def _show(screen: Screen, wire: Wire) -> None:
    async for frame in screen.frames():
        await wire.write(frame)


async def _hear(screen: Screen, wire: Wire) -> bool:
    """Take what is said; True when it is all said and answered, False when the terminal left."""
    while (line := await wire.read()) is not None:
        said = msgspec.json.decode(line, type=Said)
        if said.end:
            await screen.finish()
            return True
        await screen.say(said.say, said.id)
    return False
