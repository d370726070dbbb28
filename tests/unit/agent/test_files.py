import asyncio
import io
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ToolError
from agent.tools import confine
from agent.tools.blocking import StopEvent, run_in_thread
from agent.tools.contract import ReportProgress, Risk, Tool, ToolContext
from agent.tools.define import tool
from agent.tools.drafts import DraftStore
from agent.tools.files import reading, scan, searching, writing
from agent.tools.files.nearest import explain_mismatch
from agent.tools.files.reading import list_dir, read_file
from agent.tools.files.searching import search_files
from agent.tools.files.writing import edit_file, write_file, write_file_continue
from agent.tools.registry import BUILT_IN, ToolRegistry, filter_enabled
from agent.tools.text import count_lines, encode_utf8
from sessions.values.clock import Clock, SystemClock
from sessions.values.masks import MaskedText, MaskSecrets

TOOLS = (read_file, write_file, write_file_continue, edit_file, list_dir, search_files)


class Context(msgspec.Struct, frozen=True):
    clock: Clock
    workspace: Path
    drafts: DraftStore
    idempotency_key: str
    mask: MaskSecrets = MaskedText
    report_progress: ReportProgress = print
    ask_person: None = None
    send_file: None = None


class Bench:
    def __init__(self, folder: Path) -> None:
        self.root = folder / "work"
        self.root.mkdir()
        self.drafts = folder / "drafts"
        self.calls = 0

    async def call(self, tool: Tool, **arguments: object) -> str:
        self.calls += 1
        clock = SystemClock()
        context = Context(clock, self.root, DraftStore(self.drafts, clock), f"s:t:c{self.calls}")
        async with asyncio.timeout(10):
            return str(await tool.call(msgspec.convert(arguments, tool.arguments), context))

    def put(self, path: str, content: str | bytes) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)

    def text(self, path: str) -> str:
        return (self.root / path).read_bytes().decode()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_every_file_tool_belongs_to_the_family() -> None:
    registry = ToolRegistry()
    for each in TOOLS:
        assert registry.by_name[each.name] is each
        assert each.family == "files"
        assert each.risk is (Risk.READ if each.parallel else Risk.WRITE)
    assert [each.name for each in TOOLS if each.parallel] == [
        "read_file",
        "list_dir",
        "search_files",
    ]
    assert {each.name: each.grows for each in TOOLS if each.grows} == {
        "write_file": "content",
        "write_file_continue": "content",
        "edit_file": "new",
    }
    assert write_file.touches == edit_file.touches == "path"


def test_only_tools_of_enabled_families_are_offered() -> None:
    names = {each.name for each in TOOLS}
    assert {each.name for each in filter_enabled(BUILT_IN, ("files",))} >= names
    left = {each.name for each in filter_enabled(BUILT_IN, ("web",))}
    assert "current_time" in left
    assert not left & names


@pytest.mark.parametrize("role", ["label", "touches", "grows"])
def test_a_role_must_name_an_argument(role: str) -> None:
    async def act(_context: ToolContext, path: str) -> str:
        """Act."""
        return path

    with pytest.raises(TypeError, match=f"no argument 'pth' for {role}"):
        tool(risk=Risk.READ, **{role: "pth"})(act)  # type: ignore[arg-type]


def test_the_position_comes_before_the_content_in_the_schema() -> None:
    """So the position is complete when the content is cut."""
    names = list(write_file_continue.schema.parameters["properties"])
    assert names == ["draft_id", "after", "content", "final"]
    assert write_file_continue.schema.parameters["required"] == ["draft_id", "content", "final"]


# Reading


@pytest.mark.parametrize(
    ("content", "window", "said"),
    [
        pytest.param("a\nb\n", {}, "[f: 2 lines, 1-2 shown]\na\nb", id="all"),
        pytest.param("a\nb", {}, "[f: 2 lines, 1-2 shown]\na\nb", id="no line end at the end"),
        pytest.param("a\r\n\r\n", {}, "[f: 2 lines, 1-2 shown]\na\r\n\r", id="other line ends"),
        pytest.param("a\u2028b\x0cc", {}, "[f: 1 line, 1-1 shown]\na\u2028b\x0cc", id="one line"),
        pytest.param("", {}, "[f: empty]", id="empty"),
        pytest.param("\n", {}, "[f: 1 line, 1-1 shown]\n", id="an empty line"),
        pytest.param(
            "a\nb\nc\nd\n",
            {"offset": 2, "limit": 2},
            "[f: 4 lines, 2-3 shown; continue with offset=4]\nb\nc",
            id="a window",
        ),
        pytest.param(
            "a\nb\nc", {"offset": 3, "limit": 1}, "[f: 3 lines, 3-3 shown]\nc", id="the end"
        ),
        pytest.param(
            "x" * 2001 + "\ny",
            {},
            f"[f: 2 lines, 1-2 shown; long lines shortened: 1]\n{'x' * 2000}[… 1 more character]\ny",
            id="a long line",
        ),
        pytest.param(b"a\0b", {}, "f is not text: 3 bytes of binary data.", id="binary"),
        pytest.param(
            b"caf\xe9",
            {},
            "[f: 1 line, 1-1 shown; not valid UTF-8: � replaces invalid bytes]\ncaf�",
            id="another encoding",
        ),
        pytest.param("�", {}, "[f: 1 line, 1-1 shown]\n�", id="the replacement character itself"),
    ],
)
async def test_a_file_is_shown(
    bench: Bench, content: str | bytes, window: dict[str, int], said: str
) -> None:
    bench.put("f", content)
    assert await bench.call(read_file, path="f", **window) == said


async def test_an_offset_after_the_end_is_an_error(bench: Bench) -> None:
    bench.put("f", "a\n")
    with pytest.raises(ToolError, match="f has only 1 line"):
        await bench.call(read_file, path="f", offset=2)


async def test_a_long_file_is_shown_in_consecutive_parts(bench: Bench) -> None:
    lines = [f"{number} " + "x" * (number % 1500) for number in range(400)]
    bench.put("f", "\n".join(lines))
    shown: list[str] = []
    while len(shown) < len(lines):
        said = await bench.call(read_file, path="f", offset=len(shown) + 1)
        assert len(said) < 51_000
        head, *more = said.split("\n")
        shown += more
        assert (f"continue with offset={len(shown) + 1}" in head) == (len(shown) < len(lines))
    assert shown == lines


async def test_a_file_that_is_too_large_is_not_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_FILE_BYTES", 3)
    bench.put("f", "abcd")
    with pytest.raises(ToolError, match="the limit is 3 bytes"):
        await bench.call(read_file, path="f")


async def test_a_folder_is_listed(bench: Bench) -> None:
    bench.put("b.txt", "12345")
    bench.put("A/x", "1")
    bench.put("A/deep/y", "")
    bench.put(".holdfast-0.tmp", "being written")
    bench.put(b"bad\xff\nname".decode(errors="surrogateescape"), "")
    (bench.root / "link").symlink_to("/etc")
    os.mkfifo(bench.root / "pipe")
    rest = "b.txt (5 bytes)\nbad�?name (0 bytes)\nlink -> /etc\npipe (not a regular file)"
    assert await bench.call(list_dir) == f"A/\n{rest}"
    deep = "A/\nA/deep/\nA/x (1 byte)\n"
    assert await bench.call(list_dir, depth=2) == deep + rest
    deep = "A/\nA/deep/\nA/deep/y (0 bytes)\nA/x (1 byte)\n"
    assert await bench.call(list_dir, path=f"{bench.root}", depth=3) == deep + rest
    assert await bench.call(list_dir, path="A") == "deep/\nx (1 byte)"


async def test_only_a_folder_can_be_listed(bench: Bench) -> None:
    bench.put("f", "")
    with pytest.raises(ToolError, match="'f' is a file"):
        await bench.call(list_dir, path="f")
    with pytest.raises(ToolError, match="There is no 'g'"):
        await bench.call(list_dir, path="g")
    (bench.root / "f").unlink()
    assert await bench.call(list_dir) == "The folder is empty."


async def test_the_list_of_a_large_folder_is_truncated(bench: Bench) -> None:
    for number in range(1_002):
        bench.put(f"d/{number}", "")
    said = (await bench.call(list_dir, depth=2)).split("\n")
    assert len(said) == 1_001
    assert said[-1] == "[only the first 1,000 entries are shown]"


# Writing


async def test_a_file_is_written_and_replaced(bench: Bench) -> None:
    said = await bench.call(write_file, path="x/a.txt", content="é\r\n😀")
    assert said == "Written. x/a.txt has 2 lines, 8 bytes."
    assert bench.text("x/a.txt") == "é\r\n😀"
    said = await bench.call(write_file, path="x/a.txt", content="b")
    assert said == "Replaced. x/a.txt has 1 line, 1 byte."
    assert bench.text("x/a.txt") == "b"
    assert [file.name for file in (bench.root / "x").iterdir()] == ["a.txt"]


async def test_the_first_write_creates_the_workspace(bench: Bench) -> None:
    bench.root.rmdir()
    with pytest.raises(ToolError, match="workspace is still empty"):
        await bench.call(list_dir)
    await bench.call(write_file, path="a", content="")
    assert bench.text("a") == ""


async def test_surrogates_are_joined_or_refused(bench: Bench) -> None:
    await bench.call(write_file, path="a", content="\ud83d\ude00")
    assert bench.text("a") == "😀"
    with pytest.raises(ToolError, match="unpaired surrogate"):
        await bench.call(write_file, path="a", content="\ud83d")
    assert bench.text("a") == "😀"


async def test_the_size_of_a_file_is_limited(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MAX_DRAFT_BYTES", 3)
    with pytest.raises(ToolError, match="at most 3 bytes"):
        await bench.call(write_file, path="a", content="éé")
    assert list(bench.root.iterdir()) == []


@given(st.text())
def test_text_survives_encoding_and_decoding(text: str) -> None:
    halves = text.encode("utf-16-le", "surrogatepass")
    pairs = "".join(
        chr(int.from_bytes(halves[at : at + 2], "little")) for at in range(0, len(halves), 2)
    )
    assert encode_utf8(text) == encode_utf8(pairs) == text.encode()
    assert count_lines(text) == len(list(io.StringIO(text, newline="\n")))


@pytest.mark.parametrize(
    ("content", "old", "new", "every", "result", "said"),
    [
        pytest.param("a b c", "b", "B", False, "a B c", "1 occurrence (line 1)", id="one"),
        pytest.param("x\ny\r\nz", "y\r\n", "", False, "x\nz", "1 occurrence (line 2)", id="a line"),
        pytest.param("b b", "b", "B", True, "B B", "2 occurrences", id="all"),
        pytest.param(
            "\ufeffb", "b", "é", False, "\ufeffé", "1 occurrence (line 1)", id="byte order mark"
        ),
        pytest.param(
            "aaa", "aa", "b", False, "ba", "1 occurrence (line 1)", id="overlapping itself"
        ),
    ],
)
async def test_text_in_a_file_is_replaced(
    bench: Bench, content: str, old: str, new: str, every: bool, result: str, said: str
) -> None:
    bench.put("f", content)
    answer = await bench.call(edit_file, path="f", old=old, new=new, all=every)
    assert bench.text("f") == result
    assert answer.startswith(f"Replaced {said}. f has ")


@pytest.mark.parametrize(
    ("content", "old", "new", "why"),
    [
        pytest.param("a\na\n", "a", "b", r"2 times in f \(lines 1, 2\)", id="not unique"),
        pytest.param("a\n" * 11, "a", "b", r"11 times in f \(lines 1, .*, 10, …\)", id="many"),
        pytest.param("a", "", "b", "write_file", id="empty old"),
        pytest.param("a", "a", "a", "the same", id="old equals new"),
        pytest.param("a", "b", "c", "was not found in f; nothing was changed.$", id="not there"),
        pytest.param("a\r\nb", "a\nb", "c", r"end in \\r\\n", id="line ends"),
        pytest.param("a\nb", "a\r\nb", "c", r"end in \\n;", id="LF instead of CRLF"),
        pytest.param("a\nb", "  a\n", "c", r"without the white space", id="white space around"),
        pytest.param(
            "x\nif a:\n    b  c\ny",
            "if a:\n  b c",
            "c",
            r"line 2:\nif a:\n    b  c$",
            id="other white space",
        ),
        pytest.param(
            "one\ndef work(self):\n  pass\n",
            "\ndef works(self):\n",
            "c",
            r"the most similar. From line 2:\ndef work\(self\):$",
            id="a similar text",
        ),
        pytest.param("a", "\n\n", "c", "nothing was changed.$", id="only line ends"),
        pytest.param(b"caf\xe9", "caf", "c", "not UTF-8 text", id="another encoding"),
        pytest.param(b"a\0", "a", "c", "not UTF-8 text", id="binary"),
    ],
)
async def test_an_ambiguous_edit_changes_nothing(
    bench: Bench, content: str | bytes, old: str, new: str, why: str
) -> None:
    bench.put("f", content)
    with pytest.raises(ToolError, match=why):
        await bench.call(edit_file, path="f", old=old, new=new)
    assert (bench.root / "f").read_bytes() == (
        content.encode() if isinstance(content, str) else content
    )


async def test_an_edit_does_not_overwrite_a_concurrent_change(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(text: str) -> bytes:
        bench.put("f", "by somebody else")
        return encode_utf8(text)

    bench.put("f", "old")
    monkeypatch.setattr(writing, "encode_utf8", slow)
    with pytest.raises(ToolError, match="has changed since it was read"):
        await bench.call(edit_file, path="f", old="old", new="new")
    assert bench.text("f") == "by somebody else"


async def test_a_missing_file_cannot_be_edited(bench: Bench) -> None:
    with pytest.raises(ToolError, match="There is no 'f'"):
        await bench.call(edit_file, path="f", old="a", new="b")


@given(st.text("ab \n\r", max_size=30), st.text("ab \n\r", max_size=12))
def test_a_hint_exists_for_any_text(text: str, wanted: str) -> None:
    said = explain_mismatch(text, wanted)
    assert len(said) < 500


async def test_a_file_is_never_partly_written(bench: Bench) -> None:
    """During many writes a reader sees a complete file or none."""
    texts = [f"{number}" * 200_000 for number in range(8)]
    seen: set[str] = set()
    names: set[str] = set()
    looked, done = threading.Event(), threading.Event()

    def watch() -> None:
        while not done.is_set():
            for file in bench.root.iterdir():
                names.add(file.name)
                if not file.name.startswith(confine.TEMPORARY_PREFIX):
                    text = file.read_text()
                    seen.add("whole" if text in texts else text)
                    looked.set()

    async def write(number: int, text: str) -> None:
        half = len(text) // 2
        name, again = f"own{number}", True
        while again:
            again = not looked.is_set()  # on a busy machine the reader comes late
            await bench.call(write_file, path="shared", content=text)
            said = await bench.call(write_file, path=name, content=text[:half], more=True)
            await bench.call(
                write_file_continue, draft_id=said.split()[1], content=text[half:], final=True
            )

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        async with asyncio.TaskGroup() as group:
            for number, text in enumerate(texts):
                group.create_task(write(number, text))
    finally:
        done.set()
        watcher.join()
    assert seen == {"whole"}
    wanted = {"shared", *(f"own{number}" for number in range(8))}
    assert {file.name for file in bench.root.iterdir()} == wanted
    assert all(name.startswith(confine.TEMPORARY_PREFIX) for name in names - wanted)


@pytest.mark.parametrize("act", [write_file, edit_file], ids=lambda each: each.name)
async def test_a_cancelled_write_leaves_nothing_behind(
    bench: Bench, act: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing_now, go_on, really = threading.Event(), threading.Event(), os.fsync

    def slow(descriptor: int) -> None:
        writing_now.set()
        assert go_on.wait(5)
        really(descriptor)

    bench.put("f", "old")
    monkeypatch.setattr(os, "fsync", slow)
    given = {"content": "new"} if act is write_file else {"old": "old", "new": "new"}
    async with asyncio.timeout(5):
        call = asyncio.get_running_loop().create_task(bench.call(act, path="f", **given))
        await asyncio.to_thread(writing_now.wait, 5)
        assert len(list(bench.root.iterdir())) == 2
        call.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert {file.name: file.read_text() for file in bench.root.iterdir()} == {"f": "old"}


async def test_a_second_cancellation_ends_the_wait_for_a_thread() -> None:
    inside, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work(stop: StopEvent) -> None:
        inside.set()
        assert stop.wait(5)
        assert go_on.wait(5)
        ended.set()
        msg = "nobody is told"
        raise OSError(msg)

    async with asyncio.timeout(5):
        call = asyncio.get_running_loop().create_task(run_in_thread(work))
        await asyncio.to_thread(inside.wait, 5)
        call.cancel()
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert not ended.is_set()
        go_on.set()
        await asyncio.to_thread(ended.wait, 5)


# Searching


@pytest.fixture
def shelf(bench: Bench) -> Bench:
    bench.put("a.py", "import os\nprint(os)\n")
    bench.put("src/b.py", "x = 1\r\n# a+b\r\n")
    bench.put("src/c.txt", "import nothing\n")
    bench.put("src/deep/d.py", "import os, sys\n")
    bench.put(".git/e.py", "import os\n")
    bench.put("src/binary.py", b"import os\0")
    bench.put(".holdfast-1.tmp", "import os\n")
    bench.put("latin.py", b"# caf\xe9 import\n")
    (bench.root / "link.py").symlink_to("a.py")
    (bench.root / "out").symlink_to("/etc")
    os.mkfifo(bench.root / "pipe.py")
    return bench


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        pytest.param(
            {"pattern": "import os"},
            [
                "[2 matches in 5 files searched]",
                "a.py:1: import os",
                "src/deep/d.py:1: import os, sys",
            ],
            id="plain",
        ),
        pytest.param(
            {"pattern": "^import (os|sys)$"},
            ["[1 match in 5 files searched]", "a.py:1: import os"],
            id="regular expression",
        ),
        pytest.param(
            {"pattern": "import", "glob": "*.txt"},
            ["[1 match in 1 file searched]", "src/c.txt:1: import nothing"],
            id="names",
        ),
        pytest.param(
            {"pattern": "im.ort", "glob": "src/*.py"},
            ["[1 match in 2 files searched]", "src/deep/d.py:1: import os, sys"],
            id="paths",
        ),
        pytest.param(
            {"pattern": "im.ort", "path": "src/deep"},
            ["[1 match in 1 file searched]", "src/deep/d.py:1: import os, sys"],
            id="a folder, regular expression",
        ),
        pytest.param(
            {"pattern": "import", "path": "src/deep"},
            ["[1 match in 1 file searched]", "src/deep/d.py:1: import os, sys"],
            id="a folder, plain",
        ),
        pytest.param(
            {"pattern": "os", "path": "a.py"},
            ["[2 matches in 1 file searched]", "a.py:1: import os", "a.py:2: print(os)"],
            id="a file",
        ),
        pytest.param(
            {"pattern": r"p\w+\(", "path": "a.py"},
            ["[1 match in 1 file searched]", "a.py:2: print(os)"],
            id="a file, regular expression",
        ),
        pytest.param(
            {"pattern": "import", "path": ".git"},
            ["[1 match in 1 file searched]", ".git/e.py:1: import os"],
            id="a skipped folder named explicitly",
        ),
        pytest.param(
            {"pattern": "a+b"},
            ["[No match for 'a+b' in 5 files searched]"],
            id="special characters",
        ),
        pytest.param(
            {"pattern": r"a\+b"},
            ["[1 match in 5 files searched]", "src/b.py:2: # a+b"],
            id="CR at the line end",
        ),
        pytest.param(
            {"pattern": "print("},
            [
                (
                    "[1 match in 5 files searched; invalid regular expression, so it was searched "
                    "for as plain text]"
                ),
                "a.py:2: print(os)",
            ],
            id="invalid expression",
        ),
        pytest.param(
            {"pattern": "caf"},
            ["[1 match in 5 files searched]", "latin.py:1: # caf� import"],
            id="another encoding",
        ),
    ],
)
async def test_files_are_searched(
    shelf: Bench, arguments: dict[str, str], lines: list[str]
) -> None:
    assert (await shelf.call(search_files, **arguments)).split("\n") == lines


async def test_only_the_workspace_is_searched(shelf: Bench) -> None:
    for path in ("out", "/etc", "..", "pipe.py"):
        with pytest.raises(ToolError):
            await shelf.call(search_files, pattern="root", path=path)
    assert "No match for" in await shelf.call(search_files, pattern="root:")


@pytest.mark.parametrize("pattern", ["needle", "need.e"])
async def test_a_search_ends_at_the_maximum_number_of_hits(bench: Bench, pattern: str) -> None:
    bench.put("f", "needle\n" * 100_000)
    said = (await bench.call(search_files, pattern=pattern)).split("\n")
    assert said[0] == "[The first 200 matches; narrow the search to see others]"
    assert len(said) == 201


async def test_files_that_are_too_large_are_counted_as_skipped(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "MAX_FILE_BYTES", 3)
    bench.put("large", "abcd")
    bench.put("small", "abc")
    said = await bench.call(search_files, pattern="abc")
    assert said.startswith(
        "[1 match in 1 file searched; skipped 1 file, too large or not readable]"
    )


@pytest.mark.parametrize("pattern", ["needle", "needl."])
async def test_a_long_line_is_shortened_around_the_match(bench: Bench, pattern: str) -> None:
    bench.put("f", "a" * 5000 + "needle" + "b" * 5000)
    said = (await bench.call(search_files, pattern=pattern)).split("\n")[1]
    assert said == "f:1: …" + "a" * 197 + "needle" + "b" * 197 + "…"
    bench.put("f", "needle" + "b" * 500)
    said = (await bench.call(search_files, pattern=pattern)).split("\n")[1]
    assert said == "f:1: needle" + "b" * 394 + "…"
    bench.put("f", "a" * 500 + "needle")
    said = (await bench.call(search_files, pattern=pattern)).split("\n")[1]
    assert said == "f:1: …" + "a" * 394 + "needle"


ENDLESS = r"^(a+)+$"


@pytest.mark.process
async def test_a_catastrophic_expression_is_killed_in_time(bench: Bench) -> None:
    bench.put("a", "here: a\naa\n")
    bench.put("b", "a" * 60 + "!\n")
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    async with asyncio.timeout(10):
        ticking = asyncio.get_running_loop().create_task(tick())
        said = await searching.search(bench.root, ENDLESS, ".", "*", seconds=1)
        ticking.cancel()
    assert said == (
        "[1 match; stopped after 1 s: search fewer files or use a simpler pattern]\na:2: aa"
    )
    assert ticks > 10


async def test_a_plain_search_has_a_time_limit_as_well(bench: Bench) -> None:
    bench.put("f", "needle")
    said = await searching.search(bench.root, "needle", ".", "*", seconds=0)
    assert "stopped after 0 s" in said or "1 match in" in said
    stopped = scan.scan(
        _folder(bench.root), ".", "*", scan.match_text("n"), scan.ScanStats(), lambda: True
    )
    assert list(stopped) == []


def _folder(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


async def test_a_cancelled_search_ends_its_process(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: asyncio.Queue[asyncio.subprocess.Process] = asyncio.Queue()
    really = asyncio.create_subprocess_exec

    async def start(*arguments: str, **more: Any) -> asyncio.subprocess.Process:
        process = await really(*arguments, **more)
        started.put_nowait(process)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    bench.put("b", "a" * 60 + "!\n")
    async with asyncio.timeout(10):
        call = asyncio.get_running_loop().create_task(bench.call(search_files, pattern=ENDLESS))
        process = await started.get()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert process.returncode == -signal.SIGKILL


def test_the_search_program_writes_its_hits(shelf: Bench) -> None:
    order = scan.ScanRequest(_folder(shelf.root), ".", "*.py", "import [os]+$")
    told = io.StringIO()
    scan.run(io.StringIO(json.dumps(order)), told)
    os.close(order.descriptor)
    assert [json.loads(line) for line in told.getvalue().splitlines()] == [
        True,
        ["a.py", 1, "import os"],
        [4, 0],
    ]


@pytest.mark.parametrize("pattern", ["(", "a{99999999999999999999}", "[z-a]", "*"])
def test_an_invalid_expression_is_searched_as_plain_text(pattern: str) -> None:
    finds, valid = scan.match_regex(pattern)
    assert not valid
    assert finds(f"x{pattern}") == (1, 1 + len(pattern))
    assert finds("x") is None
