"""The gateway as a service: signals, systemd notifications, control socket."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

from gateway.errors import HoldfastError
from gateway.process.chat_stream import chat_stream
from gateway.process.control_socket import (
    Operation,
    serve_control_socket,
    socket_path,
)
from gateway.process.handover import LOCK, Handover
from gateway.process.lock import HeldFolder
from gateway.process.memory import MemoryHolder, reclaim_memory
from gateway.process.systemd_notify import (
    ManagedDaemon,
    SystemdNotifier,
    feed_watchdog,
    notify_lifecycle,
    stop_notification,
)
from platforms.console import ConsoleAdapter
from platforms.core.contract import Adapter

log = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class RunningDaemon(ManagedDaemon, MemoryHolder, Protocol):
    """The daemon: `gateway.process.health.GatewayHealth`."""


class Runner(Protocol):
    """The gateway to run: `gateway.runner.GatewayRunner`."""

    ready: asyncio.Event
    stopping: asyncio.Event
    restarting: asyncio.Event
    skip_drain: asyncio.Event

    @property
    def condition(self) -> RunningDaemon:
        """State reported to the service manager, and memory."""
        ...

    @property
    def operations(self) -> Mapping[str, Operation]:
        """Operations offered on the control socket."""
        ...

    def adapter(self, name: str) -> Adapter | None:
        """Return an adapter by name; None if it is not in use."""
        ...

    async def run(self) -> None:
        """Run until `stopping` is set and everything is drained."""
        ...


OnReady = Callable[[], Awaitable[None]]


async def serve(
    runner: Runner,
    folder: HeldFolder,
    environ: Mapping[str, str],
    *,
    on_ready: OnReady | None = None,
    handle_signals: bool = True,
    handover: Handover | None = None,
    start_log: contextlib.AbstractContextManager[object] | None = None,
    say: Callable[[str], None] | None = None,
) -> None:
    """Run the gateway until a stop; raises `HoldfastError` if it cannot start.

    `on_ready` is called once the gateway is ready. With `handle_signals` the first SIGTERM or
    SIGINT stops the gateway and a second one skips the wait for running turns. SIGHUP reloads the
    configuration, or stops if the controlling terminal is gone. A restart passes the folder's lock
    on in `handover`; a stop signal during a restart turns it into a stop. `start_log` is entered
    for the whole run. `say` shows a line to the person who pressed Ctrl-C.
    """
    manager = SystemdNotifier(environ)
    opened, hung_up = asyncio.Event(), asyncio.Event()
    with (
        _handling_signals(runner, manager, hung_up.set, say)
        if handle_signals
        else contextlib.nullcontext(),
        start_log or contextlib.nullcontext(),
    ):
        async with asyncio.TaskGroup() as beside:
            helpers = [
                beside.create_task(
                    _run_control_socket(runner, folder.home, environ, opened, on_ready)
                ),
                beside.create_task(notify_lifecycle(runner.condition, manager, opened)),
                beside.create_task(feed_watchdog(runner.condition, manager)),
                beside.create_task(_reload_on_hangup(runner, hung_up)),
                beside.create_task(reclaim_memory(runner.condition)),
            ]
            try:
                await runner.run()
            finally:
                for helper in helpers:
                    helper.cancel()
        if handover and runner.restarting.is_set():
            handover.pass_on(LOCK, folder.lock)


# --- signals and helpers ---------------------------------------------------------------------


@contextlib.contextmanager
def _handling_signals(
    runner: Runner,
    manager: SystemdNotifier,
    on_hangup: Callable[[], None],
    say: Callable[[str], None] | None,
) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def called_off() -> bool:
        """Turn a restart in progress into a stop; True if there was one."""
        if not runner.restarting.is_set():
            return False
        log.info("stop signal during a restart: stopping instead")
        runner.restarting.clear()
        manager.notify(*stop_notification(runner.condition))
        return True

    def on_stop_signal(number: int) -> None:
        if called_off():
            return
        if runner.stopping.is_set():
            log.info("second stop signal: not waiting for running turns")
            runner.skip_drain.set()
        elif say and number == signal.SIGINT:
            say("Stopping … press Ctrl-C again to skip the wait for running answers.")
        else:
            log.info("stop signal: waiting for running turns; a second signal skips the wait")
        runner.stopping.set()

    # Under `nohup` SIGHUP is ignored: then the end of the terminal is no reason to stop.
    leaves_with_terminal = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN and _has_terminal()

    def hung_up() -> None:
        if leaves_with_terminal and not _has_terminal():
            log.info("the terminal was closed: stopping")
            called_off()
            runner.stopping.set()
        else:
            on_hangup()

    actions: dict[int, Callable[[], None]] = {
        number: partial(on_stop_signal, number) for number in STOP_SIGNALS
    }
    actions[signal.SIGHUP] = hung_up
    for number, action in actions.items():
        loop.add_signal_handler(number, action)
    try:
        yield
    finally:
        for number in actions:
            loop.remove_signal_handler(number)


async def _reload_on_hangup(runner: Runner, hung_up: asyncio.Event) -> None:
    """Reload the configuration at each SIGHUP; errors go to the log."""
    await runner.ready.wait()  # a SIGHUP during the start takes effect afterwards
    while True:
        await hung_up.wait()
        hung_up.clear()
        with contextlib.suppress(HoldfastError):
            if reload := runner.operations.get("reload"):
                await reload()


def _has_terminal() -> bool:
    """Return True if this process has a controlling terminal that has not hung up."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


async def _run_control_socket(
    runner: Runner,
    home: Path,
    environ: Mapping[str, str],
    socket_opened: asyncio.Event,
    on_ready: OnReady | None,
) -> None:
    """Serve the control socket once the gateway is ready."""
    await runner.ready.wait()
    console = runner.adapter("console")
    streams = {"chat": chat_stream(console)} if isinstance(console, ConsoleAdapter) else {}
    async with serve_control_socket(socket_path(home, environ), runner.operations, streams):
        socket_opened.set()
        if on_ready:
            await on_ready()
        await asyncio.Event().wait()  # cancelled when the runner has ended
