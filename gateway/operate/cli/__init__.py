"""The `holdfast` command: one module per group of commands, imported on first use.

Every command pays for the imports of this module: click, and nothing slow.

    common, platforms      shared options, store access and output; the platform helpers of `config`
    run, chat, terminal, remote
                           the daemon, and the chat in a terminal with or without one
    mcp                    MCP servers
    daemon, pair, keys, sessions, restarting
                           commands that talk to the running daemon
    why, doctor, selftest, db, backup, config, setup, service
                           diagnosis, maintenance and installation
"""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module

import click

from gateway.process.exit import report_crash, run_to_exit_code

_COMMANDS = {
    "run": ("run", "Start the gateway."),
    "chat": ("chat", "Talk to the agent in this terminal."),
    "setup": ("setup", "Ask for everything needed, check it, and write the configuration."),
    "link": ("daemon", "Print a one-time link to the web page."),
    "status": ("daemon", "Show the state of the running gateway."),
    "service": ("service", "Run the gateway as a systemd service."),
    "send": ("daemon", "Post a message to a chat."),
    "pair": ("pair", "Give people access, or take it away."),
    "keys": ("keys", "Manage the keys of API clients."),
    "sessions": ("sessions", "List, show, stop and restore conversations."),
    "mcp": ("mcp", "Add, list, try and log in at MCP servers."),
    "why": ("why", "Trace a message through the gateway."),
    "config": ("config", "Check and show the configuration."),
    "doctor": ("doctor", "Find problems and explain how to fix them."),
    "backup": ("backup", "Back up the database and files to one file."),
    "restore": ("backup", "Restore a backup over the current state."),
    "db": ("db", "Upgrade and check the database."),
    "selftest": ("selftest", "Test crash recovery on a throwaway gateway."),
    "version": ("version", "Print the version."),
}
"""Command name: the module that defines the command, and the one-line help."""


_OTHER_SYSTEM = (
    "holdfast: Holdfast runs on Linux only. On macOS run it in a container, on Windows in WSL 2; see "
    "docs/install.md."
)


class LazyGroup(click.Group):
    """Group that imports a command's module only when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click calls it
        """See `click.Group`; the most used commands come first."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """See `click.Group`."""
        if cmd_name not in _COMMANDS:
            return None
        command = getattr(import_module(f"gateway.operate.cli.{_COMMANDS[cmd_name][0]}"), cmd_name)
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See `click.Group`; suggests the closest command name for a typo."""
        if args[0] not in _COMMANDS and not args[0].startswith("-"):
            raise click.NoSuchCommand(args[0], possibilities=_COMMANDS, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """See `click.Group`; prints the table without importing any command's module."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in _COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="holdfast", message="%(package)s %(version)s")
def root() -> None:
    """Holdfast lets people talk to an AI agent from chat platforms, the web and the terminal.

    Start it with `holdfast run`.
    """


def main() -> None:
    """Run the program and exit with the command's exit code."""
    if not is_supported_system(sys.platform):
        sys.exit(_OTHER_SYSTEM)
    sys.excepthook = report_crash
    if not wants_json(sys.argv[1:]):
        sys.exit(run_to_exit_code(lambda: root(prog_name="holdfast")))
    sys.exit(
        run_to_exit_code(
            _run_for_program,
            lambda error: _print_failure(str(error), error.exit_code, error.data),
        )
    )


def is_supported_system(name: str) -> bool:
    """Return True on Linux: the control socket and the file tools need functions of its kernel."""
    return name.startswith("linux")


def wants_json(arguments: Sequence[str]) -> bool:
    """Return True if the command line has `--json`, even if the command does not exist."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options


def _run_for_program() -> None:
    """Run the command; wrong usage prints a document too, besides the text on stderr."""
    try:
        sys.exit(root.main(prog_name="holdfast", standalone_mode=False))
    except click.ClickException as error:
        _print_failure(error.format_message(), error.exit_code, {})
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(1)


def _print_failure(message: str, exit_code: int, data: Mapping[str, object]) -> None:
    """Print the document of a failure; see docs/operating.md."""
    import json  # noqa: PLC0415 - only failures need it

    click.echo(json.dumps({"error": message, "exit_code": exit_code, **data}, indent=2))
