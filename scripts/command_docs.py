"""Writes docs/commands.md from what the commands say of themselves: `python -m scripts.command_docs`."""

from collections.abc import Iterator
from pathlib import Path

import click

from gateway.commands.registry import COMMANDS
from gateway.operate.cli import root
from platforms.core.contract import MenuEntry

PAGE = Path(__file__).parents[1] / "docs/commands.md"

_TOP = """# Commands

This page is written from the commands themselves.

## In a chat

As `/WORD` in Telegram, Discord, the page and the terminal. Slack reserves some of these words, and knows no commands in
threads: there it is `/holdfast WORD`, and `!WORD` everywhere. They never wait behind what is being answered. Whoever is let in
may give them, where it does not say admins; `/stop all` is for admins, too. In a shared conversation everybody may `/stop`;
`/new`, `/undo` and `/retry` belong there to who asked last, and to admins.

| command | |
|---|---|
"""

_MACHINE = """
## On the machine

`holdfast COMMAND --help` says the same. Commands that change something go through the running daemon; those that only read
open the database beside it. `--json` is for programs. Exit codes: 0 done; 1 failed; 2 wrong usage; 78 the configuration
cannot work. Where the configuration is read, `--config FILE` names its file, and `--set KEY=VALUE` sets one key
(repeatable).
"""
_EVERYWHERE = {"config", "settings"}


def page() -> str:
    """The whole page."""
    context = click.Context(root, info_name="holdfast")
    chat = "".join(map(_row, COMMANDS.menu()))
    return _TOP + chat + _MACHINE + "".join(_described(root, context))


def _row(entry: MenuEntry) -> str:
    names = ", ".join(f"`/{word}`" for word in (entry.word, *entry.aliases))
    arguments = f" `{entry.args}`".replace("|", "\\|") if entry.args else ""
    only = " (admins)" if entry.admin else ""
    return f"| {names}{arguments} | {entry.summary}{only} |\n"


def _described(command: click.Command, context: click.Context) -> Iterator[str]:
    """Describe what is below a command."""
    if not isinstance(command, click.Group):
        return
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None  # noqa: S101 - its group has just named it
        inside = click.Context(below, parent=context, info_name=name)
        if isinstance(below, click.Group):
            yield f"\n### `{inside.command_path}`\n\n{_first_words(below)}\n"
            yield from _described(below, inside)
        else:
            level = "###" if context.parent is None else "####"
            usage = " ".join(below.collect_usage_pieces(inside)).replace("[OPTIONS]", "").strip()
            yield f"\n{level} `{f'{inside.command_path} {usage}'.strip()}`\n\n{_first_words(below)}\n"
            yield from _options(below, inside)


def _first_words(command: click.Command) -> str:
    words = (command.help or "").replace("\b", "").strip()
    return "\n\n".join(" ".join(part.split()) for part in words.split("\n\n"))


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    rows = [
        record
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option)
        and parameter.name not in _EVERYWHERE
        and "--help" not in parameter.opts
        and (record := parameter.get_help_record(context))
    ]
    if rows:
        yield "\n"
    for names, meaning in rows:
        yield f"- `{names}` {' '.join(meaning.split())}\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
