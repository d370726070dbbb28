"""All commands, the check of roles before each, and the help text."""

from collections.abc import Iterable

from gateway.access.policy import Role
from gateway.commands import conversation, people, system
from gateway.commands.contract import Command, CommandCall, CommandOutcome, NoticeReply
from platforms.core.contract import MenuEntry
from sessions.values.notices import NoticeId


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
        commands = {id(command): command for command in self._by_word.values()}
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
            for command in commands.values()
        )

    async def run(self, word: str, call: CommandCall) -> CommandOutcome:
        """Check the role, then run the handler; every command passes here."""
        command = self._by_word[word]
        if call.role < command.role:
            return NoticeReply(NoticeId.ADMINS_ONLY)
        return await command.handler(call)

    def help(self, role: Role, command_template: str) -> str:
        """Return one line per command that this role may use, in the platform's form."""
        commands = {id(command): command for command in self._by_word.values()}
        return "\n".join(
            f"{command_template.replace('{word}', command.word)} {command.args_for(role)}".rstrip()
            + f" · {command.summary}"
            for command in commands.values()
            if command.role <= role
        )


async def _help(call: CommandCall) -> CommandOutcome:
    return NoticeReply(NoticeId.HELP, {"list": COMMANDS.help(call.role, call.command_template)})


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
