"""The lines of docs/install.md complete commands in interactive shells."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.config.loader import read_environment
from tests.docs.pages import ROOT, Page
from tests.fakes.seat import seated

SHELLS = ("bash", "zsh", "fish")


def documented(shell: str) -> str:
    """Return the commands of the page that set up a shell."""
    (block,) = (
        each.text
        for each in Page(ROOT / "docs/install.md").blocks
        if f"_HOLDFAST_COMPLETE={shell}_source" in each.text
    )
    return block


def missing(shell: str) -> bool:
    return shutil.which(shell) is None


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The environment of a new user whose PATH has the program."""
    ours = str(Path(sys.executable).parent)
    (tmp_path / ".zshrc").write_text(
        "autoload -U compinit && compinit -u -D\nprecmd() { echo ready }\n"
    )
    fish = tmp_path / ".config/fish/config.fish"
    fish.parent.mkdir(parents=True)
    fish.write_text("function fish_prompt; echo ready; end\n")
    return {
        "PATH": f"{ours}:{read_environment()['PATH']}",
        "HOME": str(tmp_path),
        "PROMPT_COMMAND": "echo ready",  # of bash
        "TERM": "xterm",
        "LANG": "C.UTF-8",
        "HOLDFAST_HOME": str(tmp_path / "state"),
    }


def set_up(shell: str, environ: dict[str, str]) -> None:
    """Run the commands of the page."""
    subprocess.run(["bash", "-ec", documented(shell)], env=environ, check=True, timeout=20)


@pytest.mark.parametrize(
    "shell",
    [
        pytest.param(each, marks=pytest.mark.skipif(missing(each), reason=f"{each} is missing"))
        for each in SHELLS
    ],
)
async def test_the_documented_lines_complete_commands_options_and_files(
    shell: str, environ: dict[str, str], tmp_path: Path
) -> None:
    set_up(shell, environ)
    (tmp_path / "archive.tar").touch()
    program = Path(str(shutil.which(shell)))
    options = ("--rcfile", str(tmp_path / ".bashrc"), "-i") if shell == "bash" else ("-i",)
    async with seated(program, *options, env=environ, folder=tmp_path) as seat:
        for typed, printed in (
            ("holdfast vers", r"holdfast \d+\.\d+\.\d+"),
            ("holdfast version --js", '"python": "'),
            ("holdfast restore arch", "archive.tar is not a Holdfast backup"),
        ):
            await seat.sees("ready")
            seat.types(f"{typed}\t\n")
            await seat.sees(printed)
        seat.types("exit\n")
        await seat.ends()
