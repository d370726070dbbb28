"""A daemon that can be made to hang: `python -m tests.fakes.stuck_daemon HOME`.

SIGUSR1 blocks its event loop for good. SIGUSR2 hangs the thread that writes its database, and the
next one lets it go.
"""

import asyncio
import signal
import sys
import threading
import time
from pathlib import Path

from agent.settings import ModelSettings
from gateway.config.loader import read_environment
from gateway.process.lock import hold_state_folder
from gateway.process.service import serve
from gateway.runner import GatewayRunner
from gateway.settings import Settings


async def main(home: Path) -> None:
    settings = Settings(model=ModelSettings(provider="demo"))
    runner = GatewayRunner(settings, home, specs={}, serve_http=False)
    loop = asyncio.get_running_loop()
    hold = threading.Event()
    hanging: set[asyncio.Task[bool]] = set()

    def writer() -> None:
        assert runner._store
        if hanging:
            hold.set()
        else:
            written = runner._store.database.write(lambda _: hold.wait())
            hanging.add(asyncio.create_task(written))  # noqa: TID251 - it ends with the process

    async def ready() -> None:
        loop.add_signal_handler(signal.SIGUSR1, lambda: time.sleep(3600))
        loop.add_signal_handler(signal.SIGUSR2, writer)

    with hold_state_folder(home) as folder:
        await serve(runner, folder, read_environment(), on_ready=ready)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
