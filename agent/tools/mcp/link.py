"""One server: keeps it connected, and carries calls to it."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import NoReturn

from agent.errors import ToolError, ToolUnknownOutcome
from agent.settings import McpSettings
from agent.tools.mcp.contract import Arguments, Connect, Listed, NotSent, Session, Unclear
from sessions.values.clock import Clock

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
ANSWER_SECONDS = 30.0  # to connect, and to list the tools
LEAVE_SECONDS = 10.0

_SESSION = "agent.tools.mcp.session"

_log = logging.getLogger(__name__)


class Link:
    """A server that is connected again with growing pauses whenever it is lost.

    One task, the one of `run`, enters and leaves every connection.
    """

    def __init__(
        self,
        settings: McpSettings,
        clock: Clock,
        *,
        changed: Callable[[], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        connect: Connect | None = None,
        patience: float = ANSWER_SECONDS,
    ) -> None:
        self.name = settings.name
        self.tools: tuple[Listed, ...] = ()
        """Those of the last connection; they keep their names while the server is away."""
        self.tried = asyncio.Event()
        """Set once it was connected, or could not be, for the first time."""
        self._settings = settings
        self._clock = clock
        self._changed = changed
        self._sleep = sleep
        self._connect = connect  # None: by the official package
        self._patience = patience
        self._session: Session | None = None
        self._trouble = ""
        self._last_words = ""
        self._look = asyncio.Event()
        self._sure = asyncio.Event()  # not so while it is to be seen whether it is still there
        self._sure.set()
        self._calls = 0  # under way
        self._leaving = False

    @property
    def connected(self) -> bool:
        """Whether calls reach it."""
        return self._session is not None

    @property
    def status(self) -> str:
        """How it stands, in a few words."""
        if self._session is not None:
            return f"connected, {len(self.tools)} tools"
        return f"not connected: {self._trouble}" if self._trouble else "connecting"

    # --- calls -----------------------------------------------------------------------------------

    async def call(self, tool: Listed, shown: str, arguments: Arguments, key: str) -> str:
        """Carry out a call once; never again by itself.

        Args:
            tool: As it was listed when the call was decided on.
            shown: The name the model knows it by.
            arguments: What the call says.
            key: The same for a repeat of the very same call.
        """
        await self._sure.wait()
        session = self._session
        if session is None:
            self._refuse(shown, f"its server {self.name} is not connected; it is being reconnected")
        now = next((each for each in self.tools if each.name == tool.name), None)
        if now is None:
            self._refuse(shown, f"its server {self.name} does not offer it any more")
        if tool.read_only and not now.read_only:
            self._refuse(shown, "it has begun to have side effects, which need to be approved")
        self._calls += 1
        try:
            return await session.call(tool.name, arguments, key)
        except NotSent as error:
            self._doubt(session)
            self._refuse(shown, f"its server {self.name} was not reached: {error}")
        except Unclear as error:
            self._doubt(session)
            lost = f"{shown} gave no answer, its server {self.name} was lost: {error}."
            if tool.read_only:
                raise ToolError(lost) from error
            msg = f"{lost} The call may have taken effect; look before you repeat it."
            raise ToolUnknownOutcome(msg) from error
        finally:
            self._calls -= 1

    def _doubt(self, session: Session) -> None:
        """Let further calls wait until it has been seen whether the server is still there."""
        if self._session is session:
            self._sure.clear()
            self._look.set()

    def _refuse(self, shown: str, why: str) -> NoReturn:
        msg = f"{shown} has NOT run: {why}."
        raise ToolError(msg)

    # --- what a connection tells -----------------------------------------------------------------

    def look_again(self) -> None:
        """See `Hears`."""
        self._look.set()

    def ended(self) -> None:
        """See `Hears`."""
        self._away()
        self._look.set()

    def said(self, line: str) -> None:
        """See `Hears`."""
        self._last_words = line
        _log.debug("%s: %s", self.name, line)

    # --- the connection --------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep it connected until cancelled."""
        connect = self._connect
        if connect is None:
            try:
                connect = await asyncio.to_thread(_official)
            except ImportError as error:
                self._trouble = f"a package is missing ({error}); install holdfast[mcp]"
                _log.error("%s: %s", self.name, self._trouble)
                self.tried.set()
                return
        await self._stay(connect)

    def leave(self) -> None:
        """Have `run` end; its task is to be cancelled, too.

        To be cancelled is not enough: that can be lost where something else has just gone wrong.
        """
        self._leaving = True
        self._look.set()

    async def _stay(self, connect: Connect) -> None:
        pause = FIRST_PAUSE
        while True:
            began = self._clock.monotonic()
            self._last_words = ""
            self._look.clear()
            try:
                await self._visit(connect)
            except Exception as error:  # noqa: BLE001 - whatever a server makes the package raise
                self._trouble = self._described(error)
            finally:
                self._away()
                self.tried.set()
            if self._leaving:
                return
            if self._clock.monotonic() - began > LONGEST_PAUSE:
                pause = FIRST_PAUSE
            _log.warning("%s: %s; trying again in %.0f s", self.name, self._trouble, pause)
            await self._sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _visit(self, connect: Connect) -> None:
        """Connect, stay as long as the server answers, and leave within a bounded time."""
        async with (
            asyncio.timeout(self._patience + LEAVE_SECONDS) as whole,
            contextlib.AsyncExitStack() as opened,
        ):
            async with asyncio.timeout(self._patience):
                session = await opened.enter_async_context(connect(self._settings, self))
                await self._list(session)
            whole.reschedule(None)
            try:
                self._arrived(session)
                await self._attend(session)
            finally:
                self._away()
                whole.reschedule(asyncio.get_running_loop().time() + LEAVE_SECONDS)

    async def _attend(self, session: Session) -> None:
        while True:
            await self._look.wait()
            self._look.clear()
            if self._leaving:
                return
            if self._session is None:
                msg = "its connection ended"
                raise ConnectionError(msg)
            busy = self._calls
            try:
                async with asyncio.timeout(self._patience):
                    await self._list(session)
            except TimeoutError:
                if not busy:
                    raise
                self._look.set()  # many a server does one thing at a time
            else:
                self._sure.set()
                self._changed()

    async def _list(self, session: Session) -> None:
        listed = await session.tools()
        wanted = self._settings.enabled_tools
        if wanted is not None:
            for missing in sorted(set(wanted) - {tool.name for tool in listed}):
                _log.warning("%s has no tool %s", self.name, missing)
            listed = tuple(tool for tool in listed if tool.name in wanted)
        self.tools = listed

    def _arrived(self, session: Session) -> None:
        self._session, self._trouble = session, ""
        _log.info("%s is connected, with %d tools", self.name, len(self.tools))
        self._changed()
        self.tried.set()

    def _away(self) -> None:
        self._sure.set()
        if self._session is not None:
            self._session = None
            self._changed()

    def _described(self, error: Exception) -> str:
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, TimeoutError):
            text = "it does not answer"
        elif isinstance(error, FileNotFoundError):
            text = f"there is no program {self._settings.command!r}"
        else:
            text = str(error) or type(error).__name__
        return f"{text} (it said: {self._last_words})" if self._last_words else text


def _official() -> Connect:
    connect: Connect = import_module(_SESSION).connected
    return connect
