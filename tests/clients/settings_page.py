"""The settings of docs/clients.md, as the tests use them: blocks of a section, filled in for one daemon."""

import re
from pathlib import Path

from tests.docs.pages import ROOT, Block, Page
from tests.e2e.api_kit import KEY
from tests.e2e.daemon import Daemon

PAGE = Page(ROOT / "docs/clients.md")
MODEL = "scripted"


def _section(heading: str) -> list[Block]:
    """Return the blocks between this heading and the next one of the same level."""
    lines = PAGE.text.splitlines()
    starts = [n for n, line in enumerate(lines, 1) if re.match("## ", line)] + [len(lines) + 1]
    start = next(n for n in starts[:-1] if lines[n - 1] == f"## {heading}")
    end = starts[starts.index(start) + 1]
    return [each for each in PAGE.blocks if start < each.line < end]


def documented(heading: str, *words: str) -> str:
    """Return the first block of a section that contains all these words."""
    for each in _section(heading):
        if all(word in each.text for word in words):
            return each.text
    msg = f"docs/clients.md has no block with {words} below “{heading}”"
    raise AssertionError(msg)


def filled(text: str, daemon: Daemon, key: str = KEY) -> str:
    """Replace the page's address, key and model by those of this daemon."""
    text = text.replace("http://127.0.0.1:8420", daemon.url)
    return text.replace("hf-…", key).replace("your-model", MODEL)


def exported(daemon: Daemon, key: str = KEY) -> dict[str, str]:
    """Return the variables that the beginning of the page exports."""
    line = next(each.text for each in PAGE.blocks if "export GATEWAY_URL" in each.text)
    return dict(re.findall(r"(GATEWAY_\w+)=(\S+)", filled(line, daemon, key)))


def write_files(heading: str, folder: Path, daemon: Daemon) -> Path:
    """Write the named files of a section into a folder, made if needed, and return the folder."""
    folder.mkdir(exist_ok=True)
    for each in _section(heading):
        if each.file:
            (folder / each.file).write_text(filled(each.text, daemon), encoding="utf-8")
    return folder


def command_line(heading: str, program: str, more: str = "") -> list[str]:
    """Return the section's commands that end with this program, with more arguments, for bash."""
    text = documented(heading, f"\n{program}").strip()
    assert text.rpartition("\n")[2].startswith(program), text
    return ["bash", "-c", f"{text} {more}"]


async def guest_key(daemon: Daemon) -> str:
    """Add a guest's key by the command of the page, and return it."""
    line = next(each.text for each in PAGE.blocks if "--role guest" in each.text)
    said = await daemon.run(*line.split()[1:])
    return next(word for word in said.split() if word.startswith("hf-"))
