"""Whether a command line of ours that somebody wrote down exists: asked of the commands themselves."""

import re

import click

from gateway.operate.cli import root

_PLACE = re.compile(r"[A-Z][A-Z|]*|…|\.\.\.")  # SESSION, CHAT|MESSAGE
_ALTERNATIVES = re.compile(r"\(?([\w-]+(?:\|[\w…-]+)+)\)?")


def wrong(words: list[str]) -> str:
    """What is wrong with the words behind `holdfast`; empty when nothing is."""
    command: click.Command = root
    context = click.Context(root, info_name="holdfast", resilient_parsing=True)
    rest = list(words)
    while isinstance(command, click.Group) and rest:
        word = rest.pop(0)
        if word in {"-h", "--help", "…"} or _PLACE.fullmatch(word):
            return ""
        if several := _ALTERNATIVES.fullmatch(word):
            names = [each for each in several[1].split("|") if each != "…"]
            missing = [each for each in names if command.get_command(context, each) is None]
            return _no_command(context, missing[0]) if missing else ""
        below = command.get_command(context, word)
        if below is None:
            return _no_command(context, word)
        command = below
        context = click.Context(below, parent=context, info_name=word, resilient_parsing=True)
    if isinstance(command, click.Group):
        return ""
    return _options(command, context, rest)


def _no_command(context: click.Context, word: str) -> str:
    return f"there is no command `{context.command_path} {word}`"


def _options(command: click.Command, context: click.Context, words: list[str]) -> str:
    known = {
        name: option
        for option in command.get_params(context)
        if isinstance(option, click.Option)
        for name in (*option.opts, *option.secondary_opts)
    }
    rest = [re.sub(r"^\[|\]$", "", word) for word in words]
    for word in rest:
        name = word.partition("=")[0]
        if name == "--":
            return ""
        if name.startswith("-") and len(name) > 1 and name not in known:
            return f"`{context.command_path}` has no option {name}"
    return ""
