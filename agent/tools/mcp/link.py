"""One server: keeps it connected, and carries calls to it."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import NoReturn

from agent.errors import ToolError, ToolUnknownOutcome
from agent.settings import McpSettings
from agent.tools.mcp.contract import (
    CallArguments,
    CallNotSent,
    CallOutcomeUnclear,
    Connect,
    ListedTool,
    McpSession,
)
from sessions.values.clock import Clock

FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1.0, 60.0
ANSWER_SECONDS = 30.0  # to connect, and to list the tools
LEAVE_SECONDS = 10.0

_SESSION_MODULE = "agent.tools.mcp.session"

_log = logging.getLogger(__name__)


class McpConnection:
    """A server that is connected again with growing pauses whenever it is lost.

    One task, the one of `run`, enters and leaves every connection.
    """

    def __init__(
        self,
        settings: McpSettings,
        clock: Clock,
        *,
        on_change: Callable[[], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        connect: Connect | None = None,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self.name = settings.name
        self.tools: tuple[ListedTool, ...] = ()
        """Those of the last connection; they keep their names while the server is away."""
        self.first_attempt_done = asyncio.Event()
        """Set once it was connected, or could not be, for the first time."""
        self._settings = settings
        self._clock = clock
        self._on_change = on_change
        self._sleep = sleep
        self._connect = connect  # None: by the official package
        self._answer_seconds = answer_seconds
        self._session: McpSession | None = None
        self._last_error = ""
        self._last_stderr_line = ""
        self._check_requested = asyncio.Event()
        self._confirmed = asyncio.Event()  # not so while it is to be seen whether it is still there
        self._confirmed.set()
        self._running_calls = 0  # under way
        self._stopping = False

    @property
    def connected(self) -> bool:
        """Whether calls reach it."""
        return self._session is not None

    @property
    def status(self) -> str:
        """How it stands, in a few words."""
        if self._session is not None:
            return f"connected, {len(self.tools)} tools"
        return f"not connected: {self._last_error}" if self._last_error else "connecting"

    # --- calls -----------------------------------------------------------------------------------

    async def call(
        self, tool: ListedTool, shown_name: str, arguments: CallArguments, key: str
    ) -> str:
        """Carry out a call once; never again by itself.

        Args:
            tool: As it was listed when the call was decided on.
            shown_name: The name the model knows it by.
            arguments: What the call says.
            key: The same for a repeat of the very same call.
        """
        await self._confirmed.wait()
        session = self._session
        if session is None:
            self._refuse(
                shown_name, f"its server {self.name} is not connected; it is being reconnected"
            )
        now = next((each for each in self.tools if each.name == tool.name), None)
        if now is None:
            self._refuse(shown_name, f"its server {self.name} does not offer it any more")
        if tool.read_only and not now.read_only:
            self._refuse(shown_name, "it has begun to have side effects, which need to be approved")
        self._running_calls += 1
        try:
            return await session.call(tool.name, arguments, key)
        except CallNotSent as error:
            self._recheck(session)
            self._refuse(shown_name, f"its server {self.name} was not reached: {error}")
        except CallOutcomeUnclear as error:
            self._recheck(session)
            lost = f"{shown_name} gave no answer, its server {self.name} was lost: {error}."
            if tool.read_only:
                raise ToolError(lost) from error
            msg = f"{lost} The call may have taken effect; look before you repeat it."
            raise ToolUnknownOutcome(msg) from error
        finally:
            self._running_calls -= 1

    def _recheck(self, session: McpSession) -> None:
        """Let further calls wait until it has been seen whether the server is still there."""
        if self._session is session:
            self._confirmed.clear()
            self._check_requested.set()

    def _refuse(self, shown_name: str, reason: str) -> NoReturn:
        msg = f"{shown_name} has NOT run: {reason}."
        raise ToolError(msg)

    # --- what a connection tells -----------------------------------------------------------------

    def on_tools_changed(self) -> None:
        """See `ServerListener`."""
        self._check_requested.set()

    def on_disconnected(self) -> None:
        """See `ServerListener`."""
        self._set_disconnected()
        self._check_requested.set()

    def on_stderr_line(self, line: str) -> None:
        """See `ServerListener`."""
        self._last_stderr_line = line
        _log.debug("%s: %s", self.name, line)

    # --- the connection --------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep it connected until cancelled."""
        connect = self._connect
        if connect is None:
            try:
                connect = await asyncio.to_thread(_load_connect)
            except ImportError as error:
                self._last_error = f"a package is missing ({error}); install holdfast[mcp]"
                _log.error("%s: %s", self.name, self._last_error)
                self.first_attempt_done.set()
                return
        await self._keep_connected(connect)

    def stop(self) -> None:
        """Have `run` end; its task is to be cancelled, too.

        To be cancelled is not enough: that can be lost where something else has just gone wrong.
        """
        self._stopping = True
        self._check_requested.set()

    async def _keep_connected(self, connect: Connect) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            began = self._clock.monotonic()
            self._last_stderr_line = ""
            self._check_requested.clear()
            try:
                await self._connect_once(connect)
            except Exception as error:  # noqa: BLE001 - whatever a server makes the package raise
                self._last_error = self._describe_error(error)
            finally:
                self._set_disconnected()
                self.first_attempt_done.set()
            if self._stopping:
                return
            if self._clock.monotonic() - began > MAX_PAUSE_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            _log.warning("%s: %s; trying again in %.0f s", self.name, self._last_error, pause)
            await self._sleep(pause)
            pause = min(pause * 2, MAX_PAUSE_SECONDS)

    async def _connect_once(self, connect: Connect) -> None:
        """Connect, stay as long as the server answers, and leave within a bounded time."""
        async with (
            asyncio.timeout(self._answer_seconds + LEAVE_SECONDS) as whole,
            contextlib.AsyncExitStack() as opened,
        ):
            async with asyncio.timeout(self._answer_seconds):
                session = await opened.enter_async_context(connect(self._settings, self))
                await self._list_tools(session)
            whole.reschedule(None)
            try:
                self._set_connected(session)
                await self._watch_session(session)
            finally:
                self._set_disconnected()
                whole.reschedule(asyncio.get_running_loop().time() + LEAVE_SECONDS)

    async def _watch_session(self, session: McpSession) -> None:
        while True:
            await self._check_requested.wait()
            self._check_requested.clear()
            if self._stopping:
                return
            if self._session is None:
                msg = "its connection ended"
                raise ConnectionError(msg)
            busy = self._running_calls
            try:
                async with asyncio.timeout(self._answer_seconds):
                    await self._list_tools(session)
            except TimeoutError:
                if not busy:
                    raise
                self._check_requested.set()  # many a server does one thing at a time
            else:
                self._confirmed.set()
                self._on_change()

    async def _list_tools(self, session: McpSession) -> None:
        listed = await session.list_tools()
        wanted = self._settings.enabled_tools
        if wanted is not None:
            for missing in sorted(set(wanted) - {tool.name for tool in listed}):
                _log.warning("%s has no tool %s", self.name, missing)
            listed = tuple(tool for tool in listed if tool.name in wanted)
        self.tools = listed

    def _set_connected(self, session: McpSession) -> None:
        self._session, self._last_error = session, ""
        _log.info("%s is connected, with %d tools", self.name, len(self.tools))
        self._on_change()
        self.first_attempt_done.set()

    def _set_disconnected(self) -> None:
        self._confirmed.set()
        if self._session is not None:
            self._session = None
            self._on_change()

    def _describe_error(self, error: Exception) -> str:
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, TimeoutError):
            text = "it does not answer"
        elif isinstance(error, FileNotFoundError):
            text = f"there is no program {self._settings.command!r}"
        else:
            text = str(error) or type(error).__name__
        return f"{text} (it said: {self._last_stderr_line})" if self._last_stderr_line else text


def _load_connect() -> Connect:
    connect: Connect = import_module(_SESSION_MODULE).connected
    return connect
