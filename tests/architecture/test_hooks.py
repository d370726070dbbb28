"""The hooks run before a commit are the checks that `make check` runs before the tests."""

import re
from itertools import takewhile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def commands_of_make_check() -> list[str]:
    """Return the commands of `make check` up to the first preparation of the tests."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = re.search(r"^check:.*\n((?:\t.*\n)+)", text, re.MULTILINE)
    assert recipe
    lines = [line.strip() for line in recipe[1].splitlines()]
    commands = takewhile(lambda line: line.startswith("$(BIN)/"), lines)
    return [command.replace("$(BIN)", ".venv/bin") for command in commands]


def hooks() -> list[dict[str, str]]:
    """Return the fields of each hook."""
    text = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    blocks = re.split(r"^ +- (?=id: )", text, flags=re.MULTILINE)[1:]
    return [dict(re.findall(r"^ *(\w+): (.*)$", block, re.MULTILINE)) for block in blocks]


def test_the_hooks_run_the_commands_of_make_check() -> None:
    assert len(commands_of_make_check()) >= 4
    assert [hook["entry"] for hook in hooks()] == commands_of_make_check()


def test_the_hooks_use_the_tools_of_the_environment_on_the_whole_tree() -> None:
    for hook in hooks():
        assert hook["language"] == "system"
        assert hook["pass_filenames"] == "false"
