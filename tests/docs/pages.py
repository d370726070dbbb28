"""The pages of `docs/` as data: blocks, commands, words in backticks, links, headings.

The convention: every fenced block says what it is.

    sh          what a reader types; every command is run, or is on a list that says why not
    toml        a piece of a configuration; it has to load
    python      a program; it is run
    json        has to be JSON
    ini, text   is looked at by people alone: a drop-in of systemd, or what is printed

A block whose first line is a comment with nothing but a file's name (`# parrot.py`) is that file:
it is written, and what follows on the page may use it.
"""

import re
import subprocess
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
LANGUAGES = frozenset({"sh", "toml", "python", "json", "ini", "text"})

_FENCE = re.compile(r"^(?P<indent> *)(?P<mark>```+)(?P<language>.*)$")
_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_LINK = re.compile(r"!?\[[^\]\n]*(?:\n[^\]\n]*)?\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_FILE = re.compile(r"# ([\w-]+\.\w+)")


class Block(msgspec.Struct, frozen=True):
    """What stands between two fences."""

    line: int  # of its first line of text
    language: str
    text: str

    @property
    def file(self) -> str:
        """The file that it is; empty where it is none."""
        found = _FILE.fullmatch(self.text.partition("\n")[0])
        return found[1] if found else ""


class Command(msgspec.Struct, frozen=True):
    """What is typed before Return is pressed for good."""

    line: int
    text: str


class Said(msgspec.Struct, frozen=True):
    """Something that stands somewhere in a text."""

    line: int
    text: str


class Page:
    """One page."""

    def __init__(self, path: Path, text: str | None = None) -> None:
        self.path = path
        self.name = str(path.relative_to(ROOT))
        self.text = path.read_text(encoding="utf-8") if text is None else text
        self.blocks: list[Block] = []
        self.prose = self._without_blocks()

    def _without_blocks(self) -> str:
        """Blank the blocks out, keeping the number of lines; they are put aside."""
        kept: list[str] = []
        fence: re.Match[str] | None = None
        inside: list[str] = []
        for number, line in enumerate(self.text.splitlines(), 1):
            found = _FENCE.match(line)
            if fence is None and found is None:
                kept.append(line)
                continue
            kept.append("")
            if fence is None:
                fence, inside = found, []
            elif found and found["mark"] == fence["mark"] and not found["language"]:
                text = "\n".join(inside) + "\n"
                self.blocks.append(Block(number - len(inside), fence["language"].strip(), text))
                fence = None
            else:
                inside.append(line.removeprefix(fence["indent"]))
        assert fence is None, f"{self.name}: a block has no end"
        return "\n".join(kept)

    def _found(self, pattern: re.Pattern[str]) -> Iterator[Said]:
        for found in pattern.finditer(self.prose):
            line = self.prose.count("\n", 0, found.start()) + 1
            yield Said(line, found[1])

    @cached_property
    def spans(self) -> list[Said]:
        """What stands in backticks, outside of blocks."""
        return [
            Said(each.line, " ".join(each.text.replace("\\|", "|").split()))
            for each in self._found(_SPAN)
        ]

    @cached_property
    def links(self) -> list[Said]:
        """Where links and pictures point."""
        return list(self._found(_LINK))

    @cached_property
    def anchors(self) -> set[str]:
        """What a link may name behind the #, as the usual web sites make it from headings."""
        found: list[str] = []
        for each in self._found(_HEADING):
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", each.text).lower()
            anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
            before = found.count(anchor)
            found.append(f"{anchor}-{before}" if before else anchor)
        return set(found)

    @property
    def is_done(self) -> bool:
        """Whether there is something on it to be done or loaded."""
        return any(block.language in {"sh", "python", "toml", "json"} for block in self.blocks)


def commands(block: Block) -> Iterator[Command]:
    """What a block of `sh` has the reader type, one command after the other."""
    typed: list[str] = []
    begun = block.line
    for number, line in enumerate(block.text.splitlines(), block.line):
        if not typed and (not line.strip() or line.lstrip().startswith("#")):
            continue
        begun = begun if typed else number
        typed.append(line)
        whole = "\n".join(typed)
        if not line.endswith("\\") and not syntax(whole):
            yield Command(begun, whole)
            typed = []
    if typed:
        yield Command(begun, "\n".join(typed))  # its own fault; whoever runs it is told


def syntax(command: str) -> str:
    """What a shell says of a command that it cannot read; empty when it can."""
    found = subprocess.run(
        ["bash", "-n"], input=command, capture_output=True, text=True, check=False, timeout=10
    )
    return found.stderr.strip()


def pages() -> list[Page]:
    """The README and everything in docs, apart from the records of decisions."""
    return [Page(ROOT / "README.md"), *map(Page, sorted((ROOT / "docs").glob("*.md")))]
