"""Writes docs/commands.md and the man page from the declarations of the commands.

`python -m scripts.command_docs`, or `make man`.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import click

from gateway.commands.registry import COMMANDS
from gateway.operate.cli import root
from platforms.core.contract import MenuEntry
from scripts import man_page

PAGE = Path(__file__).parents[1] / "docs/commands.md"

_TOP = """# Commands

This page is generated from the commands themselves.

- [In a chat](#in-a-chat)
- [On the machine](#on-the-machine)
{contents}
## In a chat

Commands are written `/WORD` in Telegram, Discord, the page and the terminal. Slack reserves some of these words and has no
commands in threads: use `/holdfast WORD` there, or `!WORD`, which works everywhere. A command never waits for a running answer.
Everybody with access may use the commands that are not marked (admins); `/stop all` is also for admins. In a shared conversation
everybody may use `/stop`; `/new`, `/undo` and `/retry` are for the person who asked last, and for admins.

| command | |
|---|---|
"""

_MACHINE = """
## On the machine

`holdfast COMMAND --help` prints the same text. Commands that change something go through the running daemon; commands that only
read open the database directly. `--json` is for programs
([one document](operating.md#json-for-programs), also on failure). Exit codes: 0 success; 1 failure; 2 wrong usage; 78 the configuration
cannot work. Commands that read the configuration have `--config FILE`, which names the file, and `--set KEY=VALUE`, which sets
one key (repeatable).
"""
_EVERYWHERE = {"config", "settings"}


def page() -> str:
    """Return the whole page."""
    context = click.Context(root, info_name="holdfast")
    chat = "".join(map(_row, COMMANDS.menu()))
    sections = "".join(_described(root, context))
    return _TOP.replace("{contents}", _contents(sections)) + chat + _MACHINE + sections


def _contents(sections: str) -> str:
    """Return a list of links to the commands of the first level."""
    lines = []
    for heading in re.findall(r"^### `(.+)`$", sections, re.MULTILINE):
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        lines.append(f"  - [`{' '.join(heading.split()[:2])}`](#{anchor})\n")
    return "".join(lines)


def _row(entry: MenuEntry) -> str:
    names = ", ".join(f"`/{word}`" for word in (entry.word, *entry.aliases))
    arguments = f" `{entry.args}`".replace("|", "\\|") if entry.args else ""
    if entry.admin_args:
        arguments += f", `/{entry.word} {entry.admin_args}` (admins)"
    only = " (admins)" if entry.admin else ""
    return f"| {names}{arguments} | {entry.summary}{only} |\n"


def _described(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield the sections of the commands of a group."""
    if not isinstance(command, click.Group):
        return
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None  # noqa: S101 - listed by its group
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
    man_page.PAGE.write_text(man_page.page(), encoding="utf-8")
