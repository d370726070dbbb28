"""`ServerPrompts`: prompts of MCP servers as commands, whose texts become messages of the sender."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Protocol

from agent.errors import ToolError
from agent.tools.mcp.prompts import (
    OfferedPrompt,
    ParsedArguments,
    describe_usage,
    parse_arguments,
)
from gateway.access.policy import Role
from gateway.commands.contract import Command, CommandCall, CommandOutcome, NoticeReply
from gateway.commands.registry import menu_of
from gateway.side_requests.jobs import CommandJobs
from platforms.core.contract import MenuEntry, Part, Prompt, Text
from sessions.values.frames import to_single_line
from sessions.values.notices import NoticeFields, NoticeId
from sessions.values.text import shorten

_DEADLINE_SECONDS = 30.0
_MAX_CONTENT_LENGTH = 50_000  # characters of the text of a prompt
_MAX_CAUSE_LENGTH = 300
_MAX_SUMMARY_LENGTH = 100
_NO_ANSWER = "it does not answer"


class PromptServers(Protocol):
    """The servers that offer prompts; see `agent.tools.mcp.servers.McpServers`."""

    def prompts(self) -> tuple[OfferedPrompt, ...]:
        """Return the prompts of all servers."""
        ...

    async def get_prompt(
        self, offered: OfferedPrompt, arguments: Mapping[str, str], person: str = ""
    ) -> str:
        """Return the text of a prompt, with the login of a person; raises `ToolError`."""
        ...


HandOver = Callable[[CommandCall, tuple[Part, ...]], Awaitable[None]]
"""Replaces a stored command by a message with these parts."""


class ServerPrompts:
    """The prompts of all servers; see `PromptCommands` for the contract."""

    def __init__(
        self,
        servers: PromptServers,
        *,
        jobs: CommandJobs,
        hand_over: HandOver,
        redact: Callable[[str], str],
    ) -> None:
        self._servers = servers
        self._jobs = jobs
        self._hand_over = hand_over
        self._redact = redact
        self._offered: tuple[OfferedPrompt, ...] = ()  # of which the commands below are made
        self._commands: tuple[Command, ...] = ()
        self._by_word: dict[str, Command] = {}
        self._words: frozenset[str] = frozenset()

    def commands(self) -> tuple[Command, ...]:
        """See `PromptCommands`."""
        self._update()
        return self._commands

    def words(self) -> frozenset[str]:
        """See `PromptCommands`."""
        self._update()
        return self._words

    def find(self, word: str) -> Command | None:
        """See `PromptCommands`."""
        self._update()
        return self._by_word.get(word)

    def _update(self) -> None:
        offered = self._servers.prompts()
        if offered is self._offered:
            return
        self._offered = offered
        self._commands = tuple(_to_command(each, partial(self._use, each)) for each in offered)
        self._by_word = {
            word: command for command in self._commands for word in (command.word, *command.aliases)
        }
        self._words = frozenset(self._by_word)

    async def _use(self, offered: OfferedPrompt, call: CommandCall) -> CommandOutcome:
        arguments = parse_arguments(call.args, offered.prompt.arguments)
        if arguments.missing:
            command = call.command_template.replace("{word}", offered.words[0])
            usage = f"{command} {describe_usage(offered.prompt)}".rstrip()
            missing = " and ".join(f"“{name}”" for name in arguments.missing[:1])
            return NoticeReply(NoticeId.PROMPT_USAGE, {"missing": missing, "usage": usage})
        return self._jobs.start("prompt", call, lambda: self._fetch(offered, arguments, call))

    async def _fetch(
        self, offered: OfferedPrompt, arguments: ParsedArguments, call: CommandCall
    ) -> None:
        try:
            async with self._jobs.deadline(call, _DEADLINE_SECONDS):
                content = await self._servers.get_prompt(offered, arguments.values, call.principal)
        except (ToolError, TimeoutError) as error:
            cause = to_single_line(self._redact(str(error))).rstrip(".") or _NO_ANSWER
            fields: NoticeFields = {
                "server": offered.server,
                "cause": shorten(cause, _MAX_CAUSE_LENGTH),
            }
            await self._jobs.answer(call, NoticeId.PROMPT_FAILED, fields)
            return
        prompt = Prompt(
            server=offered.server,
            name=offered.prompt.name,
            words=f"/{offered.words[0]} {call.args}".rstrip(),
            content=shorten(self._redact(content), _MAX_CONTENT_LENGTH),
        )
        await self._hand_over(
            call, (prompt, Text(arguments.extra)) if arguments.extra else (prompt,)
        )


def prompt_menu(servers: PromptServers) -> tuple[MenuEntry, ...]:
    """Return the prompts of the servers, for the menus of the platforms."""
    return menu_of(_to_command(offered, _not_here) for offered in servers.prompts())


async def _not_here(_call: CommandCall) -> CommandOutcome:
    return NoticeReply(NoticeId.NOT_NOW)


def _to_command(
    offered: OfferedPrompt, handler: Callable[[CommandCall], Awaitable[CommandOutcome]]
) -> Command:
    about = shorten(to_single_line(offered.prompt.description), _MAX_SUMMARY_LENGTH)
    return Command(
        offered.words[0],
        f"{about or 'a prompt'} ({offered.server})",
        handler,
        aliases=offered.words[1:],
        args=describe_usage(offered.prompt),
        role=Role.MEMBER,
    )
