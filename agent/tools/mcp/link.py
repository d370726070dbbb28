"""The connection to one server, with reconnection and calls."""

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
_ANSWER_SECONDS = 30.0  # to connect, and to list the tools
LEAVE_SECONDS = 10.0

_SESSION_MODULE = "agent.tools.mcp.session"

_log = logging.getLogger(__name__)


class McpConnection:
    """A server that is reconnected, with increasing pauses, whenever the connection is lost.

    Only the task of `run` opens and closes sessions.
    """

    def __init__(
        self,
        settings: McpSettings,
        clock: Clock,
        *,
        on_change: Callable[[], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        connect: Connect | None = None,
        answer_seconds: float = _ANSWER_SECONDS,
    ) -> None:
        self.name = settings.name
        self.tools: tuple[ListedTool, ...] = ()
        """Tools of the last session; they keep their names while the server is disconnected."""
        self.first_attempt_done = asyncio.Event()
        """Set after the first attempt to connect, successful or not."""
        self._settings = settings
        self._clock = clock
        self._on_change = on_change
        self._sleep = sleep
        self._connect = connect  # None: with the official package
        self._answer_seconds = answer_seconds
        self._session: McpSession | None = None
        self._last_error = ""
        self._last_stderr_line = ""
        self._check_requested = asyncio.Event()
        self._confirmed = asyncio.Event()  # cleared while the session is being checked
        self._confirmed.set()
        self._running_calls = 0
        self._stopping = False

    @property
    def connected(self) -> bool:
        """True if the server can be called."""
        return self._session is not None

    @property
    def status(self) -> str:
        """A short description for people."""
        if self._session is not None:
            return f"connected, {len(self.tools)} tools"
        return f"not connected: {self._last_error}" if self._last_error else "connecting"

    # --- calls -----------------------------------------------------------------------------------

    async def call(
        self, tool: ListedTool, shown_name: str, arguments: CallArguments, key: str
    ) -> str:
        """Make a call once, without retries.

        Args:
            tool: The tool as listed when the call was admitted.
            shown_name: The tool's name for the model.
            arguments: The arguments of the call.
            key: The idempotency key; a repeat of the same call has the same key.

        Raises:
            ToolError: The call has not run, or it failed.
            ToolUnknownOutcome: The call may have taken effect.
        """
        await self._confirmed.wait()
        session = self._session
        if session is None:
            self._refuse(
                shown_name, f"its server {self.name} is not connected; it is being reconnected"
            )
        current = next((listed for listed in self.tools if listed.name == tool.name), None)
        if current is None:
            self._refuse(shown_name, f"its server {self.name} no longer offers it")
        if tool.read_only and not current.read_only:
            self._refuse(shown_name, "it now has side effects, which need approval")
        self._running_calls += 1
        try:
            return await session.call(tool.name, arguments, key)
        except CallNotSent as error:
            self._recheck(session)
            self._refuse(shown_name, f"its server {self.name} was not reached: {error}")
        except CallOutcomeUnclear as error:
            self._recheck(session)
            lost = f"{shown_name} returned no result, its server {self.name} was lost: {error}."
            if tool.read_only:
                raise ToolError(lost) from error
            msg = f"{lost} The call may have taken effect; check before you repeat it."
            raise ToolUnknownOutcome(msg) from error
        finally:
            self._running_calls -= 1

    def _recheck(self, session: McpSession) -> None:
        """Check the session; new calls wait until the check is done."""
        if self._session is session:
            self._confirmed.clear()
            self._check_requested.set()

    def _refuse(self, shown_name: str, reason: str) -> NoReturn:
        msg = f"{shown_name} has NOT run: {reason}."
        raise ToolError(msg)

    # --- events of the session -------------------------------------------------------------------

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
        _log.debug("MCP server %s, stderr: %s", self.name, line)

    # --- the connection --------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the server connected until cancelled."""
        connect = self._connect
        if connect is None:
            try:
                connect = await asyncio.to_thread(_load_connect)
            except ImportError as error:
                self._last_error = f"a package is missing ({error}); install holdfast[mcp]"
                _log.error("MCP server %s: %s", self.name, self._last_error)
                self.first_attempt_done.set()
                return
        await self._keep_connected(connect)

    def stop(self) -> None:
        """Make `run` end; the caller must cancel the task of `run` as well.

        A cancellation alone is not enough, because another error can swallow a cancellation.
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
            except Exception as error:  # noqa: BLE001 - a server can make the package raise anything
                self._last_error = self._describe_error(error)
            finally:
                self._set_disconnected()
                self.first_attempt_done.set()
            if self._stopping:
                return
            if self._clock.monotonic() - began > MAX_PAUSE_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            _log.warning(
                "MCP server %s: %s; reconnecting in %.0f s", self.name, self._last_error, pause
            )
            await self._sleep(pause)
            pause = min(pause * 2, MAX_PAUSE_SECONDS)

    async def _connect_once(self, connect: Connect) -> None:
        """Keep a session open while the server answers, then close it within a time limit."""
        async with (
            asyncio.timeout(self._answer_seconds + LEAVE_SECONDS) as limit,
            contextlib.AsyncExitStack() as opened,
        ):
            async with asyncio.timeout(self._answer_seconds):
                session = await opened.enter_async_context(connect(self._settings, self))
                await self._list_tools(session)
            limit.reschedule(None)
            try:
                self._set_connected(session)
                await self._watch_session(session)
            finally:
                self._set_disconnected()
                limit.reschedule(asyncio.get_running_loop().time() + LEAVE_SECONDS)

    async def _watch_session(self, session: McpSession) -> None:
        while True:
            await self._check_requested.wait()
            self._check_requested.clear()
            if self._stopping:
                return
            if self._session is None:
                msg = "the connection ended"
                raise ConnectionError(msg)
            busy = self._running_calls
            try:
                async with asyncio.timeout(self._answer_seconds):
                    await self._list_tools(session)
            except TimeoutError:
                if not busy:
                    raise
                self._check_requested.set()  # the server may handle one request at a time
            else:
                self._confirmed.set()
                self._on_change()

    async def _list_tools(self, session: McpSession) -> None:
        listed = await session.list_tools()
        wanted = self._settings.enabled_tools
        if wanted is not None:
            for missing in sorted(set(wanted) - {tool.name for tool in listed}):
                _log.warning("MCP server %s has no tool %s", self.name, missing)
            listed = tuple(tool for tool in listed if tool.name in wanted)
        self.tools = listed

    def _set_connected(self, session: McpSession) -> None:
        self._session, self._last_error = session, ""
        _log.info("MCP server %s is connected, with %d tools", self.name, len(self.tools))
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
            text = "the server does not answer"
        elif isinstance(error, FileNotFoundError):
            text = f"there is no program {self._settings.command!r}"
        else:
            text = str(error) or type(error).__name__
        return f"{text} (last output: {self._last_stderr_line})" if self._last_stderr_line else text


def _load_connect() -> Connect:
    connect: Connect = import_module(_SESSION_MODULE).connected
    return connect
