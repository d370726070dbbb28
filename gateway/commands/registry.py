"""All commands, the gate each passes, and the help that follows from them."""

from collections.abc import Iterable

from gateway.access.policy import Role
from gateway.commands import conversation, people, system
from gateway.commands.contract import Command, CommandCall, CommandOutcome, NoticeReply
from platforms.core.contract import MenuEntry
from sessions.values.notices import NoticeId


class CommandRegistry:
    """Commands by word; two that claim the same word are an error at start."""

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
        """Everything that is a command, aliases too."""
        return frozenset(self._by_word)

    def menu(self) -> tuple[MenuEntry, ...]:
        """Every command once, for the menus of the platforms."""
        commands = {id(command): command for command in self._by_word.values()}
        return tuple(
            MenuEntry(
                each.word,
                each.summary,
                each.args,
                admin=each.role is Role.ADMIN,
                aliases=each.aliases,
            )
            for each in commands.values()
        )

    async def run(self, word: str, call: CommandCall) -> CommandOutcome:
        """The one gate: role first, then the handler."""
        command = self._by_word[word]
        if call.role < command.role:
            return NoticeReply(NoticeId.ADMINS_ONLY)
        return await command.handler(call)

    def help(self, role: Role, command_template: str) -> str:
        """One line per command that this role may use, in the platform's own form."""
        commands = {id(command): command for command in self._by_word.values()}
        return "\n".join(
            f"{command_template.replace('{word}', command.word)} {command.args}".rstrip()
            + f" · {command.summary}"
            for command in commands.values()
            if command.role <= role
        )


async def _help(call: CommandCall) -> CommandOutcome:
    return NoticeReply(NoticeId.HELP, {"list": COMMANDS.help(call.role, call.command_template)})


COMMANDS = CommandRegistry(
    (
        *people.COMMANDS[:1],
        Command("help", "this list", _help, role=Role.GUEST),
        *conversation.COMMANDS,
        *system.MODEL_COMMANDS,
        *people.COMMANDS[1:],
        *system.GATEWAY_COMMANDS,
    )
)
