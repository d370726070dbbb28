"""The help of every command is complete and readable."""

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from gateway.operate.cli import root


def commands(group: click.Group, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found
        yield (*before, name)
        if isinstance(found, click.Group):
            yield from commands(found, (*before, name))


ALL = [(), *commands(root)]


def help_of(words: tuple[str, ...]) -> str:
    """Return the help on a terminal of 80 columns."""
    found = CliRunner().invoke(root, [*words, "--help"], prog_name="holdfast", terminal_width=80)
    assert found.exit_code == 0
    return found.output


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_no_help_is_cut_off_and_every_option_is_explained(words: tuple[str, ...]) -> None:
    text = help_of(words)
    body = text.partition("\n")[2]
    assert "..." not in body
    assert "daemon" not in body  # people know the gateway, or Holdfast
    command: click.Command = root
    for word in words:
        assert isinstance(command, click.Group)
        below = command.get_command(click.Context(command), word)
        assert below
        command = below
    assert (command.help or "").strip().endswith(".")
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.help, option.opts
            assert option.help.endswith("."), option.opts


def test_a_question_that_can_be_answered_in_advance_has_a_short_option() -> None:
    for words in (("restore",), ("service", "restart")):
        assert "-y, --yes" in help_of(words)
