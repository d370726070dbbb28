"""The connection to one server, with reconnection and calls."""

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NoReturn, TypeVar

import msgspec

from agent.errors import ToolError, ToolUnknownOutcome
from agent.settings import McpSettings
from agent.tools.contract import ReportProgress
from agent.tools.mcp.changes import claims_of
from agent.tools.mcp.contract import (
    CONNECTION_ENDED,
    CallArguments,
    CallHooks,
    CallNotSent,
    CallOutcomeUnclear,
    Connect,
    ListedPrompt,
    ListedTool,
    LoginRequired,
    McpSession,
    OnLoginSecrets,
    ServerOutput,
    SessionEnded,
    ignore_secrets,
)
from agent.tools.mcp.memory import ToolMemory
from agent.tools.mcp.package_log import SERVER, limit_package_logs
from agent.tools.mcp.stderr import StderrTail
from sessions.values.clock import Clock
from sessions.values.exceptions import error_text, first_error
from sessions.values.frames import to_single_line
from sessions.values.text import count_of

FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1.0, 60.0
_ANSWER_SECONDS = 30.0  # to connect, and to list the tools
LEAVE_SECONDS = 10.0
_BURST_LISTS, _BURST_SECONDS = 10, 10.0  # lists of changed tools within these seconds
_REPORT_SECONDS = 60.0  # between two log lines about unreadable output


_SEVERE_LEVELS = frozenset({"warning", "error", "critical", "alert", "emergency"})
_MAX_LOG_LENGTH = 500  # characters of a log message of a server
_LOGS_PER_MINUTE = 10

T = TypeVar("T")

_log = logging.getLogger(__name__)


class _LogAllowance:
    """Allows a few log lines per minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = -_REPORT_SECONDS
        self._used = 0

    def take(self) -> bool:
        """True if another line may be logged."""
        now = self._clock.monotonic()
        if now - self._since >= _REPORT_SECONDS:
            self._since, self._used = now, 0
        self._used += 1
        return self._used <= _LOGS_PER_MINUTE


class LoginAccess(msgspec.Struct, frozen=True, kw_only=True):
    """The stored logins that connections use."""

    folder: Path
    on_secrets: OnLoginSecrets = ignore_secrets
    person: str = ""  # whose login is used, at a server where each person has one


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
        memory: ToolMemory | None = None,
        answer_seconds: float = _ANSWER_SECONDS,
        logins: LoginAccess | None = None,
    ) -> None:
        self.name = settings.name
        self.settings = settings
        self.tools: tuple[ListedTool, ...] = ()
        """Tools of the last session; they keep their names while the server is disconnected."""
        self.prompts: tuple[ListedPrompt, ...] = ()
        """Prompts of the last session; they keep their words while the server is disconnected."""
        self.disabled_tools: frozenset[str] = frozenset()
        """Names of the server's other tools, which the settings do not offer."""
        self.first_attempt_done = asyncio.Event()
        """Set after the first attempt to connect, successful or not."""
        self._clock = clock
        self._on_change = on_change
        self._sleep = sleep
        self._connect = connect  # None: with the official package
        self._logins = logins
        self.person = logins.person if logins else ""
        """The only person who may use the connection; empty if all may."""
        self._memory_name = f"{self.name} ({self.person})" if self.person else self.name
        self.needs_login = False
        """True if the last attempt to connect failed for lack of a login."""
        self._retry = asyncio.Event()  # ends the pause before the next attempt to connect
        self._memory = memory or ToolMemory(clock)
        self._answer_seconds = answer_seconds
        self._session: McpSession | None = None
        self._last_error = ""
        self._stderr = StderrTail()
        self._change_times: list[float] = []  # of the latest announced changes
        self._next_list: asyncio.TimerHandle | None = None  # after too many changes
        self._missing_tools: frozenset[str] = frozenset()  # of `enabled_tools`, as logged
        self._end_reason = ""  # of the current session
        self._unreadable_lines = 0  # since the last report
        self._unreadable_example = ""
        self._unreadable_report: asyncio.TimerHandle | None = None  # the next possible one
        self._log_allowance = _LogAllowance(clock)
        self._check_requested = asyncio.Event()
        self._confirmed = asyncio.Event()  # cleared while the session is being checked
        self._confirmed.set()
        self._running_calls = 0
        self._has_accepted_instructions = False
        self._was_connected = False  # by the current attempt
        self._renewing = False  # the server has ended the session, and calls wait for a new one
        self._stopping = False

    @property
    def connected(self) -> bool:
        """True if the server can be called."""
        return self._session is not None or self._renewing

    @property
    def has_resources(self) -> bool:
        """True if the server is connected and offers resources."""
        return self._session is not None and self._session.has_resources

    @property
    def instructions(self) -> str:
        """The server's notes for the model; empty while it is not connected.

        Changed notes are left out until an admin has accepted them.
        """
        if self._session is None or not self._has_accepted_instructions:
            return ""
        return self._session.instructions

    @property
    def status(self) -> str:
        """A short description for people."""
        if self._session is not None:
            return f"connected, {count_of(len(self.tools), 'tool')}"
        return f"not connected: {self._last_error}" if self._last_error else "connecting"

    # --- calls -----------------------------------------------------------------------------------

    async def call(
        self,
        tool: ListedTool,
        shown_name: str,
        arguments: CallArguments,
        key: str,
        hooks: CallHooks,
    ) -> ServerOutput:
        """Make a call once.

        A call in a session that the server has ended, for instance by a restart, has certainly not
        run. It is made once more, in a new session.

        Args:
            tool: The tool as listed when the call was admitted.
            shown_name: The tool's name for the model.
            arguments: The arguments of the call.
            key: The idempotency key; a repeat of the same call has the same key.
            hooks: What the call can tell people, and ask them.

        Raises:
            ToolError: The call has not run, or it failed.
            ToolUnknownOutcome: The call may have taken effect.
        """
        for renewed in (False, True):
            session = await self._session_for(tool, shown_name)
            self._running_calls += 1
            try:
                return await session.call(tool.name, arguments, key, hooks)
            except SessionEnded as error:
                if renewed:
                    self._recheck(session)
                    self._refuse(shown_name, f"its server {self.name} ended the session twice")
                _log.info("MCP server %s: %s; opening a new one", self.name, error)
                self._renew(session)
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
        raise AssertionError  # the second pass returns or raises

    async def _session_for(self, tool: ListedTool, shown_name: str) -> McpSession:
        """Return the session for a call, after checking that the tool is still the same one."""
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
        if claims_of(tool) != claims_of(current):
            self._refuse(shown_name, f"its server {self.name} has just changed it")
        if tool.change:
            await self._accept_change(tool)
        return session

    async def accept_instructions(self) -> bool:
        """Give the changed instructions to the model; return False if there are none."""
        accepted = await self._memory.accept_instructions(self._memory_name)
        if accepted:
            self._has_accepted_instructions = True
            self._on_change()
        return accepted

    async def list_resources(self) -> str:
        """Return the resources of the server as lines for the model; raises `ToolError`."""
        return await self._read("list_resources", lambda session: session.list_resources())

    async def read_resource(self, uri: str, report_progress: ReportProgress) -> ServerOutput:
        """Return a resource of the server; raises `ToolError`."""
        return await self._read(
            "read_resource", lambda session: session.read_resource(uri, report_progress)
        )

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> str:
        """Return the text of a prompt; raises `ToolError`."""
        return await self._read(name, lambda session: session.get_prompt(name, arguments))

    async def _read(self, name: str, request: Callable[[McpSession], Awaitable[T]]) -> T:
        """Make a request without effects; once more in a new session if the session has ended."""
        for renewed in (False, True):
            await self._confirmed.wait()
            session = self._session
            if session is None:
                self._refuse(name, f"the server {self.name} is not connected")
            self._running_calls += 1
            try:
                return await request(session)
            except SessionEnded:
                if renewed:
                    break
                self._renew(session)
            except (CallNotSent, CallOutcomeUnclear) as error:
                self._recheck(session)
                msg = f"{name} did not complete, the server {self.name} was lost: {error}."
                raise ToolError(msg) from error
            finally:
                self._running_calls -= 1
        msg = f"{name} did not complete: the server {self.name} ended the session twice."
        raise ToolError(msg)

    async def _accept_change(self, tool: ListedTool) -> None:
        """Trust a changed tool, because a call is made only after an admin has allowed it."""
        await self._memory.accept(self._memory_name, tool)
        accepted = msgspec.structs.replace(tool, change="")
        self.tools = tuple(accepted if each.name == tool.name else each for each in self.tools)
        self._on_change()

    def _recheck(self, session: McpSession) -> None:
        """Check the session; new calls wait until the check is done."""
        if self._session is session:
            self._confirmed.clear()
            self._check_requested.set()

    def _renew(self, session: McpSession) -> None:
        """Replace the session; new calls wait until there is another one, or no connection."""
        if self._session is session:
            self._renewing = True
            self._confirmed.clear()
            self._check_requested.set()

    def _refuse(self, shown_name: str, reason: str) -> NoReturn:
        msg = f"{shown_name} has NOT run: {reason}."
        raise ToolError(msg)

    # --- events of the session -------------------------------------------------------------------

    def on_tools_changed(self) -> None:
        """See `ServerListener`; after a burst of changes, the next list waits."""
        if self._next_list is not None:
            return
        loop = asyncio.get_running_loop()
        recent = [at for at in self._change_times if loop.time() - at < _BURST_SECONDS]
        self._change_times = [*recent, loop.time()]
        if len(recent) < _BURST_LISTS:
            self._check_requested.set()
        else:
            self._next_list = loop.call_later(_BURST_SECONDS, self._list_late)

    def _list_late(self) -> None:
        self._next_list = None
        self._check_requested.set()

    def on_disconnected(self, reason: str = CONNECTION_ENDED) -> None:
        """See `ServerListener`."""
        self._end_reason = self._end_reason or reason
        self._set_disconnected()
        self._check_requested.set()

    def on_unreadable_output(self, lines: int, example: str) -> None:
        """See `ServerListener`; a warning at once, and then at most one per minute."""
        self._unreadable_lines += lines
        self._unreadable_example = self._unreadable_example or example
        if self._unreadable_report is None:
            self._report_unreadable_output()

    def _report_unreadable_output(self) -> None:
        self._unreadable_report = None
        if not self._unreadable_lines:
            return
        _log.warning(
            "MCP server %s printed %s outside of the protocol, such as %r",
            self.name,
            count_of(self._unreadable_lines, "line"),
            self._unreadable_example,
        )
        self._unreadable_lines, self._unreadable_example = 0, ""
        self._unreadable_report = asyncio.get_running_loop().call_later(
            _REPORT_SECONDS, self._report_unreadable_output
        )

    def on_stderr_line(self, line: str) -> None:
        """See `ServerListener`."""
        self._stderr.add(line, self._clock.monotonic())
        _log.debug("MCP server %s, stderr: %s", self.name, line)

    def on_log_message(self, level: str, text: str) -> None:
        """See `ServerListener`; warnings and errors are logged, a few per minute."""
        severe = level in _SEVERE_LEVELS and self._log_allowance.take()
        line = to_single_line(text)[:_MAX_LOG_LENGTH]
        _log.log(logging.WARNING if severe else logging.DEBUG, "MCP server %s: %s", self.name, line)

    # --- the connection --------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the server connected until cancelled."""
        SERVER.set(self.name)
        connect = self._connect
        if connect is None:
            try:
                connect = await asyncio.to_thread(_load_connect, self._logins)
            except ImportError as error:
                self._last_error = f"a package is missing ({error}); install holdfast[mcp]"
                _log.error("MCP server %s: %s", self.name, self._last_error)
                self.first_attempt_done.set()
                return
        try:
            await self._keep_connected(connect)
        finally:
            self._renewing = False
            self._set_disconnected()
            for timer in (self._unreadable_report, self._next_list):
                if timer:
                    timer.cancel()

    def reconnect(self) -> None:
        """Connect again at once, with the login that is stored now."""
        if self._session is not None:
            self._renew(self._session)
        self._retry.set()

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
            self._end_reason = ""
            self._stderr.clear()
            self._was_connected = False
            self._check_requested.clear()
            try:
                await self._connect_once(connect)
            except Exception as error:  # noqa: BLE001 - a server can make the package raise anything
                ended = isinstance(first_error(error), SessionEnded)
                self._renewing = ended and self._was_connected
                self._last_error = self._describe_error(error)
                if self.needs_login != isinstance(first_error(error), LoginRequired):
                    self.needs_login = not self.needs_login
                    self._on_change()
            finally:
                self._set_disconnected()
                self.first_attempt_done.set()
            if self._stopping:
                return
            if self._renewing:
                continue
            if self._clock.monotonic() - began > MAX_PAUSE_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            _log.warning(
                "MCP server %s: %s; reconnecting in %.0f s", self.name, self._last_error, pause
            )
            await self._pause(pause)
            pause = min(pause * 2, MAX_PAUSE_SECONDS)

    async def _pause(self, seconds: float) -> None:
        self._retry.clear()
        async with asyncio.TaskGroup() as group:
            tasks = (
                group.create_task(self._rest(seconds), name=f"mcp {self.name} pause"),
                group.create_task(self._retry.wait(), name=f"mcp {self.name} retry"),
            )
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()

    async def _rest(self, seconds: float) -> None:
        await self._sleep(seconds)

    async def _connect_once(self, connect: Connect) -> None:
        """Keep a session open while the server answers, then close it within a time limit."""
        async with (
            asyncio.timeout(self._answer_seconds + LEAVE_SECONDS) as limit,
            contextlib.AsyncExitStack() as opened,
        ):
            async with asyncio.timeout(self._answer_seconds):
                session = await opened.enter_async_context(connect(self.settings, self))
                await self._list_offers(session)
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
            if self._renewing:
                raise SessionEnded
            if self._session is None:
                raise ConnectionError(self._end_reason)
            busy = self._running_calls
            try:
                async with asyncio.timeout(self._answer_seconds):
                    await self._list_offers(session)
            except TimeoutError:
                if not busy:
                    raise
                self._check_requested.set()  # the server may handle one request at a time
            else:
                if not self._check_requested.is_set():  # else the list may be older than the doubt
                    self._confirmed.set()
                self._on_change()

    async def _list_offers(self, session: McpSession) -> None:
        await self._list_tools(session)
        if self.settings.instructions:
            self._has_accepted_instructions = await self._memory.review_instructions(
                self._memory_name, session.instructions
            )
        if not self.settings.prompts:
            return
        try:
            self.prompts = await session.list_prompts()
        except SessionEnded:
            raise
        except (ToolError, CallNotSent, CallOutcomeUnclear) as error:
            _log.warning("MCP server %s does not list its prompts: %s", self.name, error)

    async def _list_tools(self, session: McpSession) -> None:
        listed = await session.list_tools()
        missing = self.settings.expected_tools - {tool.name for tool in listed}
        for name in sorted(missing - self._missing_tools):
            _log.warning("MCP server %s has no tool %s", self.name, name)
        self._missing_tools = missing
        offered = tuple(tool for tool in listed if self.settings.offers(tool.name))
        self.disabled_tools = frozenset({tool.name for tool in listed}) - {
            tool.name for tool in offered
        }
        self.tools = await self._memory.review(self._memory_name, offered)

    def _set_connected(self, session: McpSession) -> None:
        self._session, self._last_error, self.needs_login = session, "", False
        if not self._renewing:
            _log.info(
                "MCP server %s is connected, with %s", self.name, count_of(len(self.tools), "tool")
            )
        self._renewing, self._was_connected = False, True
        self._confirmed.set()
        self._on_change()
        self.first_attempt_done.set()

    def _set_disconnected(self) -> None:
        if self._renewing:  # calls wait for the new session, and the tools stay on offer
            self._session = None
            return
        self._confirmed.set()
        if self._session is not None:
            self._session = None
            self._on_change()

    def _describe_error(self, error: Exception) -> str:
        cause = first_error(error)
        if isinstance(cause, TimeoutError):
            text = "the server does not answer"
        elif isinstance(cause, FileNotFoundError):
            folder = self.settings.cwd
            missing_folder = folder is not None and not folder.expanduser().is_dir()
            text = (
                f"there is no folder {str(folder)!r}"
                if missing_folder
                else f"there is no program {self.settings.command!r}"
            )
        else:
            text = error_text(cause)
        cause_line = self._stderr.cause(self._clock.monotonic())
        return f"{text} (it printed: {to_single_line(cause_line)})" if cause_line else text


def _load_connect(logins: LoginAccess | None) -> Connect:
    from agent.tools.mcp.session import connected

    limit_package_logs()
    if logins is None:
        return connected
    return functools.partial(
        connected, logins=logins.folder, on_secrets=logins.on_secrets, person=logins.person
    )
