"""The command `holdfast`: one file per group of commands, loaded when it is used.

What every start of the program pays for is imported here: click, and nothing of ours that is slow.
"""

import sys
from importlib import import_module

import click

from gateway.process.exit import report_crash, run_to_exit_code
from sessions.values.spelling import did_you_mean

COMMANDS = {
    "run": ("run", "Start the gateway."),
    "chat": ("chat", "Talk to the agent in this terminal."),
    "setup": ("setup", "Set it up: asks for what it needs, and checks it."),
    "link": ("daemon", "Print a one-time link to the web page."),
    "status": ("daemon", "Say how the running gateway is."),
    "service": ("service", "Run the gateway as a service of systemd."),
    "send": ("daemon", "Post a text into a chat."),
    "pair": ("pair", "Let people in, or no more."),
    "sessions": ("sessions", "Look at conversations, stop them, bring them back."),
    "why": ("why", "Show a message's way through the gateway."),
    "config": ("config", "Check and show the configuration."),
    "doctor": ("doctor", "Look for what is wrong, and say what to do about it."),
    "backup": ("backup", "Put everything that must survive into one file."),
    "restore": ("backup", "Put a backup in the place of what is there."),
    "db": ("db", "Look after the database."),
    "selftest": ("selftest", "Break things on purpose, and see that nothing is lost or doubled."),
    "version": ("version", "Print the version."),
}
"""Name of a command: the file it is in, and what it is for."""


class LazyGroup(click.Group):
    """Loads a command's file only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click calls it
        """See `click.FindingGroup`; in the order of the table, the most used first."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """See `click.FindingGroup`."""
        if cmd_name not in COMMANDS:
            return None
        found = getattr(import_module(f"gateway.operate.cli.{COMMANDS[cmd_name][0]}"), cmd_name)
        return found if isinstance(found, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See `click.FindingGroup`; knows what a misspelt command was meant to be."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"There is no command {args[0]!r}{did_you_mean(args[0], COMMANDS)}.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """See `click.FindingGroup`; needs no command's file."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
def root() -> None:
    """Holdfast lets people talk to an AI agent from chat platforms, the web and the terminal.

    Start it with `holdfast run`.
    """


def main() -> None:
    """Be the program."""
    sys.excepthook = report_crash
    sys.exit(run_to_exit_code(lambda: root(prog_name="holdfast")))
