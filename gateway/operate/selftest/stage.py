"""The daemon as a separate process, with temporary state and configuration."""

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from gateway.errors import CannotStart
from gateway.operate.selftest.chat_service import TOKEN, FakeTelegram
from gateway.operate.selftest.model_service import FakeModel
from gateway.operate.selftest.plain_http import serve
from sessions.values.clock import Clock

_START_SECONDS = 20.0
_STOP_SECONDS = 15.0

_INHERITED_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "SSL_CERT_FILE", "VIRTUAL_ENV")
_CONFIGURATION = """
[gateway]
drain_seconds = 5
log_level = "warning"
[model]
provider = "openai"
name = "selftest"
base_url = "http://127.0.0.1:{model}/v1"
api_key = "selftest"
[model.timeouts]
first_token = 2.0
first_token_soft = 1.0
gap_text = 1.0
gap_tool = 1.0
backoff = 0.05
[access]
allow = ["telegram:*"]
[limits]
messages_per_minute = 10000
[platforms.telegram]
token = "{token}"
base_url = "http://127.0.0.1:{chat}"
[http]
port = 0
ui = false
"""


class SelfTestGateway:
    """The stand-in services, and a daemon that can be killed and started again."""

    def __init__(
        self, folder: Path, environ: Mapping[str, str], chat: FakeTelegram, model: FakeModel
    ) -> None:
        self.chat = chat
        self.model = model
        self.home = folder / "state"
        self._folder = folder
        self._environ = {name: environ[name] for name in _INHERITED_VARIABLES if name in environ}
        self._process: asyncio.subprocess.Process | None = None

    def configure(self, chat: int, model: int) -> None:
        """Write the configuration for services on these ports."""
        file = self._folder / "holdfast.toml"
        file.write_text(_CONFIGURATION.format(chat=chat, model=model, token=TOKEN))
        file.chmod(0o600)

    async def start(self) -> None:
        """Start the daemon and wait for the READY=1 notification, as systemd would."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifications:
            notify_path = self._folder / "notify"
            notify_path.unlink(missing_ok=True)
            notifications.bind(str(notify_path))
            notifications.setblocking(False)  # noqa: FBT003 - positional-only
            with (self._folder / "log").open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-c", "from gateway.operate.cli import main; main()", "run"),
                    *("--config", str(self._folder / "holdfast.toml")),
                    cwd=self._folder,
                    env={
                        **self._environ,
                        "HOLDFAST_HOME": str(self.home),
                        "NOTIFY_SOCKET": str(notify_path),
                    },
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            try:
                async with asyncio.timeout(_START_SECONDS), asyncio.TaskGroup() as either:
                    ready = either.create_task(_wait_ready(notifications))
                    ended = either.create_task(self._process.wait())
                    await asyncio.wait({ready, ended}, return_when=asyncio.FIRST_COMPLETED)
                    started = ready.done()
                    ready.cancel()
                    ended.cancel()
            except TimeoutError:
                started = False
        if not started:
            await self.kill()
            lines = (self._folder / "log").read_text(errors="replace").splitlines()
            msg = f"The gateway does not start: {lines[-1] if lines else 'its log is empty'}"
            raise CannotStart(msg)

    async def kill(self) -> None:
        """Kill the daemon with SIGKILL."""
        await self._terminate(signal.SIGKILL)

    async def stop(self) -> int | None:
        """Stop the daemon with SIGTERM; return the exit code, or None after a timeout."""
        return await self._terminate(signal.SIGTERM)

    async def _terminate(self, number: signal.Signals) -> int | None:
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return process.returncode if process else None
        process.send_signal(number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                return await process.wait()
        process.kill()
        await process.wait()
        return None


async def _wait_ready(notifications: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    while b"READY=1" not in await loop.sock_recv(notifications, 4096):
        pass


@contextlib.asynccontextmanager
async def open_gateway(
    folder: Path, environ: Mapping[str, str], clock: Clock
) -> AsyncIterator[SelfTestGateway]:
    """Open the stand-in services and a daemon that is not started yet."""
    chat, model = FakeTelegram(clock), FakeModel()
    async with serve(chat.handle_request) as chat_port, serve(model.handle_request) as model_port:
        stage = SelfTestGateway(folder, environ, chat, model)
        stage.configure(chat_port, model_port)
        try:
            yield stage
        finally:
            await stage.kill()
