"""All commands, the check of roles before each, and the help text."""

from collections.abc import Iterable

from msgspec import structs

from gateway.access.policy import Role
from gateway.commands import conversation, people, system
from gateway.commands.contract import Command, CommandCall, CommandOutcome, NoticeReply
from platforms.core.contract import MenuEntry
from sessions.values.notices import NoticeId
from sessions.values.visible_text import escape_markdown


class CommandRegistry:
    """Commands by word; raises `ValueError` if two commands share a word."""

    def __init__(self, commands: Iterable[Command]) -> None:
        self._by_word: dict[str, Command] = {}
        for command in commands:
            for word in (command.word, *command.aliases):
                if word in self._by_word:
                    msg = f"two commands are called {word!r}"
                    raise ValueError(msg)
                self._by_word[word] = command

    @property
    def words(self) -> frozenset[str]:
        """All command words, including aliases."""
        return frozenset(self._by_word)

    def is_private(self, word: str) -> bool:
        """Return True if the answer of a command is only for the person who asked."""
        return self._by_word[word].private

    def menu(self) -> tuple[MenuEntry, ...]:
        """Return each command once, for the menus of the platforms."""
        return menu_of({id(command): command for command in self._by_word.values()}.values())

    async def run(self, word: str, call: CommandCall) -> CommandOutcome:
        """Run a command of this registry, or a prompt; see `run_command`."""
        command = self._by_word.get(word) or call.services.prompts.find(word)
        if command is None:  # a prompt that is gone
            return NoticeReply(NoticeId.NOT_NOW)
        return await run_command(command, call)

    def help(self, role: Role, command_template: str) -> str:
        """Return one line per command that this role may use, in the platform's form."""
        commands = {id(command): command for command in self._by_word.values()}
        return describe_commands(commands.values(), role, command_template)


def menu_of(commands: Iterable[Command]) -> tuple[MenuEntry, ...]:
    """Return commands as entries of the menus of the platforms."""
    return tuple(
        MenuEntry(
            command.word,
            command.summary,
            command.args,
            admin=command.role is Role.ADMIN,
            aliases=command.aliases,
            private=command.private,
            admin_args=command.admin_args,
        )
        for command in commands
    )


async def run_command(command: Command, call: CommandCall) -> CommandOutcome:
    """Check the role, then run the handler; every command passes here."""
    if call.role < command.role:
        return NoticeReply(NoticeId.ADMINS_ONLY)
    return await command.handler(call)


def describe_commands(commands: Iterable[Command], role: Role, command_template: str) -> str:
    """Return one line per command that a role may use, in the platform's form."""
    return "\n".join(
        f"{command_template.replace('{word}', command.word)} {command.args_for(role)}".rstrip()
        + f" · {command.summary}"
        for command in commands
        if command.role <= role
    )


async def _help(call: CommandCall) -> CommandOutcome:
    fields = {"list": COMMANDS.help(call.role, call.command_template)}
    shown = [
        structs.replace(
            each, summary=escape_markdown(each.summary), args=escape_markdown(each.args)
        )
        for each in call.services.prompts.commands()
    ]
    if prompts := describe_commands(shown, call.role, call.command_template):
        fields["prompts"] = prompts
    return NoticeReply(NoticeId.HELP, fields)


COMMANDS = CommandRegistry(
    (
        *people.COMMANDS[:1],
        Command("help", "show this list", _help, role=Role.GUEST),
        *conversation.COMMANDS,
        *system.MODEL_COMMANDS,
        *people.COMMANDS[1:],
        *system.GATEWAY_COMMANDS,
    )
)
