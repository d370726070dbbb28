"""Checks documented `holdfast` command lines against the declared commands."""

import re

import click

from gateway.operate.cli import root

_PLACEHOLDER = re.compile(r"[A-Z][A-Z|]*|…|\.\.\.")  # SESSION, CHAT|MESSAGE
_ALTERNATIVES = re.compile(r"\(?([\w-]+(?:\|[\w…-]+)+)\)?")


def find_error(words: list[str]) -> str:
    """Return the first error in the arguments of `holdfast`; empty if there is none."""
    command: click.Command = root
    context = click.Context(root, info_name="holdfast", resilient_parsing=True)
    rest = list(words)
    while isinstance(command, click.Group) and rest:
        word = rest.pop(0)
        if word in {"-h", "--help", "…"} or _PLACEHOLDER.fullmatch(word):
            return ""
        if several := _ALTERNATIVES.fullmatch(word):
            names = [each for each in several[1].split("|") if each != "…"]
            missing = [each for each in names if command.get_command(context, each) is None]
            return _missing_command(context, missing[0]) if missing else ""
        below = command.get_command(context, word)
        if below is None:
            return _missing_command(context, word)
        command = below
        context = click.Context(below, parent=context, info_name=word, resilient_parsing=True)
    if isinstance(command, click.Group):
        return ""
    return _unknown_option(command, context, rest)


def _missing_command(context: click.Context, word: str) -> str:
    return f"there is no command `{context.command_path} {word}`"


def _unknown_option(command: click.Command, context: click.Context, words: list[str]) -> str:
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
