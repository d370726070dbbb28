"""The man page holds every command and option, and renders without a warning."""

import re
import shutil
import subprocess
from collections.abc import Iterator

import click
import pytest

from gateway.operate.cli import root
from scripts.man_page import PAGE, page


def commands(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found
        inside = click.Context(found, parent=context, info_name=name)
        yield inside.command_path, found
        if isinstance(found, click.Group):
            yield from commands(found, inside)


def test_the_man_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: make man"


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_every_command_and_option_is_in_the_rendered_page() -> None:
    done = subprocess.run(
        ("groff", "-man", "-ww", "-Tascii", "-P-c", "-rLL=400n", PAGE),
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stderr == ""
    shown = re.sub(".\b", "", done.stdout)
    sections = dict(re.findall(r"^   (\S.*)\n((?:(?:       .*)?\n)+)", shown, re.MULTILINE))
    found = {re.split(r" [\[(A-Z]", name)[0]: text for name, text in sections.items()}
    listed = dict(commands(root, click.Context(root, info_name="holdfast")))
    assert {*found} == {*listed}
    for name, command in listed.items():
        words = " ".join(found[name].split())
        assert " ".join((command.help or "").replace("`", "").split()) in words, name
        for option in command.params:
            if isinstance(option, click.Option):
                for each in (*option.opts, *option.secondary_opts):
                    assert each in words, f"{name} {each}"
                assert " ".join((option.help or "").replace("`", "").split()) in words, name
