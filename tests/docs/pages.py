"""The pages of `docs/` as data: blocks, commands, code spans, links, headings.

Every fenced block declares its language:

    sh          commands; each is run, or is on a list with the reason
    toml        a part of a configuration; it has to load
    python      a program; it is run
    json        has to be valid JSON
    yaml        not checked here: a file of another program, used by `make clients`
    ini, text   not checked: a drop-in of systemd, or output

A block whose first line is a comment with only a file name (`# parrot.py`) is written to that file, so
that later blocks of the page can use the file.
"""

import re
import subprocess
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
LANGUAGES = frozenset({"sh", "toml", "python", "json", "yaml", "ini", "text"})

_FENCE = re.compile(r"^(?P<indent> *)(?P<mark>```+)(?P<language>.*)$")
_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_LINK = re.compile(r"!?\[[^\]\n]*(?:\n[^\]\n]*)?\]\(([^)\s]+)\)")
_IMAGE = re.compile(r'<img src="([^"]+)"')
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_FILE = re.compile(r"# ([\w-]+\.\w+)")


class Block(msgspec.Struct, frozen=True):
    """A fenced block."""

    line: int  # line number of the first line inside the fence
    language: str
    text: str

    @property
    def file(self) -> str:
        """Name of the file that the block is written to; empty for other blocks."""
        found = _FILE.fullmatch(self.text.partition("\n")[0])
        return found[1] if found else ""


class Command(msgspec.Struct, frozen=True):
    """One complete shell command, possibly of several lines."""

    line: int
    text: str


class Excerpt(msgspec.Struct, frozen=True):
    """A piece of prose with its line number."""

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
        """Replace blocks by empty lines, collecting them in `blocks`."""
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

    def _matches(self, pattern: re.Pattern[str]) -> Iterator[Excerpt]:
        for found in pattern.finditer(self.prose):
            line = self.prose.count("\n", 0, found.start()) + 1
            yield Excerpt(line, found[1])

    @cached_property
    def spans(self) -> list[Excerpt]:
        """Code spans outside blocks."""
        return [
            Excerpt(each.line, " ".join(each.text.replace("\\|", "|").split()))
            for each in self._matches(_SPAN)
        ]

    @cached_property
    def links(self) -> list[Excerpt]:
        """Targets of links and pictures."""
        return [*self._matches(_LINK), *self._matches(_IMAGE)]

    @cached_property
    def anchors(self) -> set[str]:
        """Anchors of the headings, in the form that GitHub generates."""
        found: list[str] = []
        for each in self._matches(_HEADING):
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", each.text).lower()
            anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
            before = found.count(anchor)
            found.append(f"{anchor}-{before}" if before else anchor)
        return set(found)

    @property
    def is_executable(self) -> bool:
        """True if the page has blocks that are run or loaded."""
        return any(block.language in {"sh", "python", "toml", "json"} for block in self.blocks)


def commands(block: Block) -> Iterator[Command]:
    """Yield the commands of an `sh` block."""
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
        yield Command(begun, "\n".join(typed))  # incomplete: running it reports the error


def syntax(command: str) -> str:
    """Return the syntax error that bash reports; empty for a valid command."""
    found = subprocess.run(
        ["bash", "-n"], input=command, capture_output=True, text=True, check=False, timeout=10
    )
    return found.stderr.strip()


def pages() -> list[Page]:
    """Return the README and all pages of docs/, without the decisions."""
    return [Page(ROOT / "README.md"), *map(Page, sorted((ROOT / "docs").glob("*.md")))]
