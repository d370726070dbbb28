"""`ServerLogins`: `/mcp`, with logins at MCP servers by a link in a private chat.

The person opens the link, and the login ends with a redirect to this machine. A browser on another
machine cannot open that page; the person sends its address to the chat instead. A login belongs to
the person who asked for the link: the address must have the state of that login, and the exchange of
its code needs a secret that never leaves this process (PKCE).
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from agent.settings import McpSettings
from agent.tools.mcp.contract import LoginFailed, LoginPrompt, OnLoginSecrets
from gateway.access.policy import Role
from gateway.commands.contract import CommandCall, CommandOutcome, NoticeReply
from gateway.inbound.routing import PASTED
from gateway.mcp.redirect import (
    AwaitedRedirect,
    LoginRefused,
    OtherLogin,
    listen_for_redirect,
)
from gateway.notices.sender import NoticeSender
from gateway.side_requests.jobs import CommandJobs
from sessions.errors import StoreError
from sessions.values.frames import to_single_line
from sessions.values.notices import NoticeFields, NoticeId
from sessions.values.tasks import start_task
from sessions.values.text import shorten

log = logging.getLogger(__name__)

_LOGIN_SECONDS = 600.0
_LINK_SECONDS = 60.0  # until the server has told the address of its login page
_MAX_CAUSE_LENGTH = 300


class LoginServers(Protocol):
    """The servers that use logins; see `agent.tools.mcp.servers.McpServers`."""

    def use_login(self, server: str, person: str = "") -> None:
        """Connect with a login that was just stored."""
        ...

    def missing_logins(self, person: str) -> list[str]:
        """Return the servers at which a person has to log in."""
        ...

    def status(self) -> Mapping[str, str]:
        """Return a short description of each server."""
        ...

    async def accept_instructions(self, server: str) -> bool:
        """Accept the changed instructions of a server; False if there are none."""
        ...


class _OpenLogin(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A login that has begun."""

    settings: McpSettings
    person: str  # whose login it is; empty for a shared one
    call: CommandCall  # of the person who logs in
    awaited: AwaitedRedirect
    address: asyncio.Future[str]  # of the login page


class ServerLogins:
    """Open logins at the servers; see `McpCommands` for the contract."""

    def __init__(
        self,
        settings: Sequence[McpSettings],
        folder: Path,
        *,
        servers: LoginServers,
        jobs: CommandJobs,
        notices: NoticeSender,
        tasks: asyncio.TaskGroup,
        on_secrets: OnLoginSecrets,
        login_seconds: float = _LOGIN_SECONDS,
    ) -> None:
        self._settings = {server.name: server for server in settings}
        self._folder = folder
        self._servers = servers
        self._jobs = jobs
        self._notices = notices
        self._tasks = tasks
        self._on_secrets = on_secrets
        self._login_seconds = login_seconds
        self._open: dict[tuple[str, str], _OpenLogin] = {}  # by server and person
        self._running: dict[tuple[str, str], asyncio.Task[None]] = {}  # the same

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """End all open logins at the end of the block."""
        try:
            yield
        finally:
            for task in self._running.values():
                task.cancel()

    async def mcp(self, call: CommandCall) -> CommandOutcome:
        """See `McpCommands`."""
        verb, _, rest = call.args.partition(" ")
        name, _, code = rest.strip().partition(" ")
        match verb.lower():
            case "":
                return self._list(call)
            case "login" if name:
                return await self._log_in(call, name, code.strip())
            case "accept" if name and not code:
                return await self._accept(call, name)
            case verb if verb == PASTED:
                return self._take_address(call, rest)
        accept = "accept" if call.role is Role.ADMIN else ""
        return NoticeReply(NoticeId.MCP_USAGE, {"accept": accept})

    def _list(self, call: CommandCall) -> CommandOutcome:
        missing = self._servers.missing_logins(call.principal)
        command = call.command_template.replace("{word}", "mcp")
        lines = []
        for name, state in self._servers.status().items():
            personal = self._settings[name].login == "person"
            if personal:
                shown = (
                    f"you can log in: {command} login {name}" if name in missing else "logged in"
                )
            elif call.role is Role.ADMIN:
                shown = state
            else:
                continue
            lines.append(f"{name}: {shown}")
        text = "\n".join(lines) or "There's no MCP server at which you can log in."
        return NoticeReply(NoticeId.MCP_LIST, {"list": text})

    async def _accept(self, call: CommandCall, name: str) -> CommandOutcome:
        if call.role is not Role.ADMIN:
            return NoticeReply(NoticeId.ADMINS_ONLY)
        if name not in self._settings:
            return NoticeReply(NoticeId.MCP_UNKNOWN, {"name": _plain(name)})
        if await self._servers.accept_instructions(name):
            return NoticeReply(NoticeId.MCP_ACCEPTED, {"server": name})
        return NoticeReply(NoticeId.MCP_NOTHING_TO_ACCEPT, {"server": name})

    # --- logins ---------------------------------------------------------------------------------

    async def _log_in(self, call: CommandCall, name: str, code: str) -> CommandOutcome:
        settings = self._settings.get(name)
        if settings is None:
            return NoticeReply(NoticeId.MCP_UNKNOWN, {"name": _plain(name)})
        personal = settings.login == "person"
        if not personal and call.role is not Role.ADMIN:
            return NoticeReply(NoticeId.ADMINS_ONLY)
        if settings.url is None:
            return NoticeReply(NoticeId.MCP_NO_LOGIN, {"server": name})
        if not call.direct:
            return NoticeReply(NoticeId.MCP_LOGIN_PRIVATE, {"server": name})
        person = call.principal if personal else ""
        if not code:
            return self._jobs.start("mcp", call, lambda: self._send_link(call, settings, person))
        if "://" in code:
            return self._take_address(call, code)
        login = self._open.get((name, person))
        if login is None or login.call.principal != call.principal or not login.address.done():
            return NoticeReply(NoticeId.MCP_LOGIN_OTHER)
        login.awaited.take_code(code)
        return NoticeReply(NoticeId.MCP_LOGIN_CHECK)

    def _take_address(self, call: CommandCall, address: str) -> CommandOutcome:
        for login in tuple(self._open.values()):
            if login.call.principal != call.principal:
                continue
            try:
                login.awaited.take_address(address)
            except OtherLogin:
                continue
            except LoginRefused:
                return NoticeReply(NoticeId.MCP_LOGIN_CHECK)  # the end of the login tells the cause
            except LoginFailed as error:
                fields = _failure(login.settings.name, error)
                return NoticeReply(NoticeId.MCP_LOGIN_FAILED, fields)
            return NoticeReply(NoticeId.MCP_LOGIN_CHECK)
        return NoticeReply(NoticeId.MCP_LOGIN_OTHER)

    async def _send_link(self, call: CommandCall, settings: McpSettings, person: str) -> None:
        """Begin a login in place of an open one, and answer the command with the link."""
        name = settings.name
        if earlier := self._running.get((name, person)):
            earlier.cancel()
            await asyncio.wait({earlier})
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        login = _OpenLogin(
            settings=settings, person=person, call=call, awaited=AwaitedRedirect(), address=address
        )
        task = start_task(self._tasks, self._run(login), name=f"login at {name}")
        if task is None:
            return
        self._open[name, person], self._running[name, person] = login, task
        either: set[asyncio.Future[Any]] = {task, address}
        await asyncio.wait(either, timeout=_LINK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if address.done():
            minutes = max(1, round(self._login_seconds / 60))
            fields: NoticeFields = {"server": name, "address": address.result(), "min": minutes}
            await self._jobs.answer(call, NoticeId.MCP_LOGIN_LINK, fields)
        else:  # the login has ended with a notice, or the server does not answer
            task.cancel()
            await self._jobs.answer(call, NoticeId.MCP_LOGIN_CHECK, {})

    async def _run(self, login: _OpenLogin) -> None:
        """Wait for the end of a login, and tell the person about it."""
        key = login.settings.name, login.person
        try:
            end = await self._finish(login)
            await self._notices.send(end.notice, login.call.context.address, end.fields)
        except StoreError as error:
            log.warning("the end of the login at %s was not reported: %s", key[0], error)
        finally:
            if self._open.get(key) is login:
                del self._open[key], self._running[key]

    async def _finish(self, login: _OpenLogin) -> NoticeReply:
        from agent.tools.mcp.login import log_in, store_for  # noqa: PLC0415 - slow

        settings, name = login.settings, login.settings.name
        store = store_for(self._folder, settings, self._on_secrets, login.person)
        port = (settings.oauth and settings.oauth.redirect_port) or 0
        by_itself = settings.oauth is not None and settings.oauth.grant == "client_credentials"
        try:
            async with (
                asyncio.timeout(self._login_seconds),
                listen_for_redirect(port, login.awaited, login.address.set_result) as prompt,
            ):
                used: LoginPrompt | None = None if by_itself else prompt
                needed = await log_in(settings, store, used)
        except TimeoutError:
            return NoticeReply(NoticeId.MCP_LOGIN_EXPIRED, {"server": name})
        except (LoginFailed, OSError) as error:
            log.warning("the login at MCP server %s did not succeed: %s", name, error)
            return NoticeReply(NoticeId.MCP_LOGIN_FAILED, _failure(name, error))
        self._servers.use_login(name, login.person)
        if not needed:
            return NoticeReply(NoticeId.MCP_NO_LOGIN, {"server": name})
        log.info("logged in at MCP server %s, by %s", name, login.call.principal)
        return NoticeReply(NoticeId.MCP_LOGGED_IN, {"server": name})


def _failure(server: str, error: Exception) -> NoticeFields:
    cause = shorten(to_single_line(str(error)).rstrip("."), _MAX_CAUSE_LENGTH)
    return {"server": server, "cause": cause or "the login server does not answer"}


def _plain(name: str) -> str:
    return shorten(to_single_line(name), _MAX_CAUSE_LENGTH)
