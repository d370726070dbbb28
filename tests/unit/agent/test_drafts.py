import asyncio
import errno
import json
import os
import random
import stat
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import ToolError
from agent.tools import drafts as module
from agent.tools.contract import ReportProgress, Tool
from agent.tools.drafts import LIFETIME_MS, MAX_DRAFTS, DraftStore, FileDraft
from agent.tools.files.writing import edit_file, write_file, write_file_continue
from sessions.values.masks import MaskedText, MaskSecrets


class Hand:
    """A clock with a settable time."""

    def __init__(self) -> None:
        self.time = 1_795_003_200_000

    def now(self) -> int:
        return self.time

    def monotonic(self) -> float:
        return self.time / 1000


class Context(msgspec.Struct, frozen=True):
    clock: Hand
    workspace: Path
    drafts: DraftStore
    idempotency_key: str = ""
    mask: MaskSecrets = MaskedText
    report_progress: ReportProgress = print
    ask_person: None = None
    send_file: None = None


class Bench:
    """A conversation with drafts, a workspace and tool calls."""

    def __init__(self, folder: Path) -> None:
        self.clock = Hand()
        self.folder = folder / "state" / "drafts"
        self.workspace = folder / "work"
        self.calls = 0

    @property
    def drafts(self) -> DraftStore:
        """Open the drafts as after a restart, with nothing but the folder."""
        return DraftStore(self.folder, self.clock)

    async def keep(self, tool: str, arguments: str) -> FileDraft | None:
        async with asyncio.timeout(5):
            return await self.drafts.keep_cut_call(tool, arguments)

    async def begun(self, content: str, path: str = "a.txt") -> FileDraft:
        draft = await self.keep("write_file", written(path=path, content=content)[:-2])
        assert draft is not None
        return draft

    async def call(self, tool: Tool, key: str = "", **arguments: object) -> str:
        self.calls += 1
        context = Context(self.clock, self.workspace, self.drafts, key or f"s:t:c{self.calls}")
        async with asyncio.timeout(5):
            return str(await tool.call(msgspec.convert(arguments, tool.arguments), context))

    async def go_on(
        self, draft: FileDraft, content: str, *, after: str = "", final: bool = False, key: str = ""
    ) -> str:
        return await self.call(
            write_file_continue, key, draft_id=draft.id, after=after, content=content, final=final
        )

    def files(self) -> dict[str, bytes]:
        found = self.workspace.rglob("*")
        return {
            str(file.relative_to(self.workspace)): file.read_bytes()
            for file in found
            if file.is_file()
        }


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def written(**arguments: object) -> str:
    return json.dumps(arguments, ensure_ascii=False)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        pytest.param("read_file", '{"path":"a","content":"b', id="another tool"),
        pytest.param("write_file", '{"pa', id="no path"),
        pytest.param("write_file", '{"path":"a', id="an incomplete path"),
        pytest.param("write_file", '{"path":"","content":"b', id="an empty path"),
        pytest.param("write_file", '{"path":"a"', id="no content"),
        pytest.param("write_file", '{"path":"a","content":"\\ud83d', id="no complete character"),
        pytest.param("write_file", '{"content":"b","path":"a', id="the path is cut"),
        pytest.param("write_file_continue", '{"draft_id":"d00', id="a cut id"),
        pytest.param("write_file_continue", '{"content":"x', id="no id"),
        pytest.param("write_file_continue", '{"draft_id":"d000000","content":"x', id="unknown"),
        pytest.param(
            "write_file_continue", '{"draft_id":"../../a","content":"x', id="an invalid id"
        ),
    ],
)
async def test_a_call_without_usable_content_creates_no_draft(
    bench: Bench, tool: str, arguments: str
) -> None:
    assert await bench.keep(tool, arguments) is None
    assert await bench.drafts.list_drafts() == []
    assert not list(bench.folder.rglob("*.json"))


async def test_the_beginning_of_a_cut_call_becomes_a_draft(bench: Bench) -> None:
    text = "line\n" * 100 + "the end 😀"
    draft = await bench.keep("write_file", json.dumps({"path": "a", "content": text})[:-2])
    assert draft is not None
    assert (draft.path, draft.size, draft.lines, draft.added_characters) == ("a", 509, 101, 509)
    assert draft.tail == text[-200:]
    assert await bench.drafts.read_text(draft.id) == text
    assert await bench.drafts.list_drafts() == [msgspec.structs.replace(draft, added_characters=0)]
    assert bench.files() == {}


async def test_the_content_may_come_before_the_path(bench: Bench) -> None:
    draft = await bench.keep("write_file", '{"content":"b","path":"a"')
    assert draft is not None
    assert draft.path == "a"


async def test_drafts_are_private(bench: Bench) -> None:
    await bench.begun("x")
    assert stat.S_IMODE(bench.folder.stat().st_mode) == 0o700
    files = list(bench.folder.iterdir())
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert len(files) == 2


async def test_draft_ids_are_derived_from_path_and_time(bench: Bench, tmp_path: Path) -> None:
    first, second = await bench.begun("x"), await bench.begun("y")
    other = Bench(tmp_path / "other")
    assert [(await other.begun("x")).id, (await other.begun("y")).id] == [first.id, second.id]
    assert first.id != second.id
    assert len(first.id) == 7


async def test_a_cut_continuation_extends_the_draft(bench: Bench) -> None:
    draft = await bench.begun("one\n")
    grown = await bench.keep("write_file_continue", f'{{"draft_id":"{draft.id}","content":"two')
    assert grown == FileDraft(
        id=draft.id, path="a.txt", size=7, lines=2, tail="one\ntwo", added_characters=3
    )


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param("", id="no content yet"),
        pytest.param(',"after":"nowhere","content":"x', id="unknown position"),
        pytest.param(',"content":"x","after":"on', id="cut position"),
    ],
)
async def test_a_draft_that_cannot_be_extended_is_returned_unchanged(
    bench: Bench, rest: str
) -> None:
    draft = await bench.begun("one\n")
    kept = await bench.keep("write_file_continue", f'{{"draft_id":"{draft.id}"{rest}')
    assert kept == msgspec.structs.replace(draft, added_characters=0)


async def test_a_cut_continuation_may_start_before_the_end(bench: Bench) -> None:
    draft = await bench.begun("one two thr")
    arguments = f'{{"draft_id":"{draft.id}","after":"two ","content":"three fo'
    grown = await bench.keep("write_file_continue", arguments)
    assert grown == FileDraft(
        id=draft.id, path="a.txt", size=16, lines=1, tail="one two three fo", added_characters=8
    )


async def test_parts_become_one_file(bench: Bench) -> None:
    draft = await bench.begun("one\r\n", "sub/a.txt")
    said = await bench.go_on(draft, "two\r\n", after="e\r\n")
    assert said == (
        f"Draft {draft.id} of sub/a.txt now has 10 characters, 2 lines; sub/a.txt is not "
        'written yet. The draft ends with "one\\r\\ntwo\\r\\n". Continue with write_file_continue; set final=true in the '
        "last part."
    )
    assert bench.files() == {}
    said = await bench.go_on(draft, "three", final=True)
    assert said == "Written. sub/a.txt has 3 lines, 15 bytes."
    assert bench.files() == {"sub/a.txt": b"one\r\ntwo\r\nthree"}
    assert await bench.drafts.list_drafts() == []
    assert list(bench.folder.iterdir()) == []


async def test_a_complete_draft_is_finished_by_an_empty_part(bench: Bench) -> None:
    draft = await bench.begun("all")
    await bench.go_on(draft, "", final=True)
    assert bench.files() == {"a.txt": b"all"}


@pytest.mark.parametrize(
    ("begun", "after", "result"),
    [
        pytest.param("one two", "", "one two+", id="no position"),
        pytest.param("one two", "two", "one two+", id="the end"),
        pytest.param("one two two", "two", "one two two+", id="text that also occurs earlier"),
        pytest.param("one two", "one two", "one two+", id="the whole draft"),
        pytest.param("one two three", "two ", "one two +", id="before the end"),
        pytest.param("one two", "o", "one two+", id="one character at the end"),
    ],
)
async def test_a_part_continues_after_the_given_text(
    bench: Bench, begun: str, after: str, result: str
) -> None:
    draft = await bench.begun(begun)
    await bench.go_on(draft, "+", after=after, final=True)
    assert bench.files() == {"a.txt": result.encode()}


@pytest.mark.parametrize(
    ("begun", "after", "why"),
    [
        pytest.param("one two", "three", "does not occur near", id="unknown"),
        pytest.param("a b a b c", "a b", "more than once", id="ambiguous"),
        pytest.param("aaab", "aa", "more than once", id="overlapping occurrences"),
        pytest.param("here" + "x" * 4000, "here", "does not occur near", id="too far from the end"),
    ],
)
async def test_a_part_without_a_clear_position_changes_nothing(
    bench: Bench, begun: str, after: str, why: str
) -> None:
    draft = await bench.begun(begun)
    with pytest.raises(ToolError, match=why) as caught:
        await bench.go_on(draft, "+", after=after, final=True)
    assert str(caught.value).endswith(f'The draft ends with "{begun[-200:]}".')
    assert await bench.drafts.read_text(draft.id) == begun
    assert bench.files() == {}


async def test_the_same_call_adds_its_part_once(bench: Bench) -> None:
    draft = await bench.begun("one ")
    first = await bench.go_on(draft, "two ", key="s:t:c1")
    assert await bench.go_on(draft, "two ", key="s:t:c1") == first
    await bench.go_on(draft, "two ", key="s:t:c2")
    assert await bench.drafts.read_text(draft.id) == "one two two "


async def test_the_error_for_an_unknown_draft_lists_the_existing_ones(bench: Bench) -> None:
    with pytest.raises(ToolError, match=r"no draft 'd123456'\. There are no drafts\."):
        await bench.call(write_file_continue, draft_id="d123456", content="x", final=True)
    draft = await bench.begun("one\n")
    with pytest.raises(ToolError, match=rf"Existing drafts: {draft.id} of a.txt \(1 line\)"):
        await bench.call(write_file_continue, draft_id="../../x", content="x", final=True)


async def test_a_model_can_start_a_draft_itself(bench: Bench) -> None:
    said = await bench.call(write_file, "s:t:c1", path="a", content="one", more=True)
    assert await bench.call(write_file, "s:t:c1", path="a", content="one", more=True) == said
    (draft,) = await bench.drafts.list_drafts()
    assert draft.id in said
    assert bench.files() == {}
    await bench.go_on(draft, " two", final=True)
    assert bench.files() == {"a": b"one two"}
    with pytest.raises(ToolError, match=r"\.\."):
        await bench.call(write_file, path="../a", content="one", more=True)


async def test_a_file_that_cannot_be_written_stays_a_draft(bench: Bench) -> None:
    bench.workspace.mkdir(parents=True)
    (bench.workspace / "a.txt").mkdir()
    draft = await bench.begun("one ")
    with pytest.raises(ToolError, match=r"is a folder.*complete now"):
        await bench.go_on(draft, "two", final=True)
    assert await bench.drafts.read_text(draft.id) == "one two"
    (bench.workspace / "a.txt").rmdir()
    await bench.go_on(draft, "", final=True)
    assert bench.files() == {"a.txt": b"one two"}


async def test_a_finished_file_discards_its_other_drafts(bench: Bench) -> None:
    bench.workspace.mkdir(parents=True)
    other = await bench.begun("x", "b.txt")
    bad = await bench.begun("x", "../a.txt")
    for path in ("a.txt", "./a.txt", f"{bench.workspace}/a.txt"):
        await bench.begun("x", path)
    await bench.call(write_file, path="a.txt", content="whole")
    assert {draft.id for draft in await bench.drafts.list_drafts()} == {other.id, bad.id}
    await bench.begun("x")
    await bench.call(edit_file, path="a.txt", old="whole", new="part")
    assert {draft.id for draft in await bench.drafts.list_drafts()} == {other.id, bad.id}


def test_a_draft_is_kept_for_a_day() -> None:
    assert LIFETIME_MS == 24 * 60 * 60 * 1000


async def test_drafts_are_removed_a_day_after_they_last_grew(bench: Bench) -> None:
    assert await bench.drafts.remove_expired() == 0
    old = await bench.begun("old", "old")
    grown = await bench.begun("new", "new")
    bench.clock.time += LIFETIME_MS
    assert await bench.drafts.remove_expired() == 0
    await bench.go_on(grown, "er")
    bench.clock.time += 1
    assert await bench.drafts.remove_expired() == 1
    assert [draft.id for draft in await bench.drafts.list_drafts()] == [grown.id]
    with pytest.raises(ToolError, match="no draft"):
        await bench.drafts.read_text(old.id)
    bench.clock.time += LIFETIME_MS + 1
    assert await bench.drafts.remove_expired() == 1
    assert not bench.folder.exists()
    await bench.begun("after the folder was removed")


async def test_removing_drafts_leaves_other_files_alone(bench: Bench) -> None:
    draft = await bench.begun("x")
    (bench.folder / "notes").write_text("mine")
    (bench.folder / "d000000.text").write_text("torn")
    (bench.folder / "d000001.json").write_text("{")
    (bench.folder / "d000002.new").write_text("torn")
    assert await bench.drafts.remove_expired() == 0
    left = {file.name for file in bench.folder.iterdir()}
    assert left == {"notes", f"{draft.id}.text", f"{draft.id}.json"}


async def test_the_oldest_draft_is_removed_when_there_are_too_many(bench: Bench) -> None:
    made = []
    for number in range(MAX_DRAFTS + 1):
        bench.clock.time += 1
        made.append((await bench.begun("x", f"{number}")).id)
        if number == 5:
            await bench.go_on(FileDraft(id=made[0], path="", size=0, lines=0, tail=""), "y")
    assert [draft.id for draft in await bench.drafts.list_drafts()] == [
        *made[2:6],
        made[0],
        *made[6:],
    ]


async def test_the_size_of_a_draft_is_limited(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_DRAFT_BYTES", 10)
    assert await bench.keep("write_file", '{"path":"a","content":"' + "é" * 6) is None
    draft = await bench.begun("é" * 5)
    kept = await bench.keep("write_file_continue", f'{{"draft_id":"{draft.id}","content":"x')
    assert kept == msgspec.structs.replace(draft, added_characters=0)
    with pytest.raises(ToolError, match="at most"):
        await bench.go_on(draft, "x")
    with pytest.raises(ToolError, match="at most"):
        await bench.call(write_file, path="b", content="x" * 11, more=True)
    assert await bench.drafts.read_text(draft.id) == "é" * 5


async def test_leftovers_of_a_crash_belong_to_no_draft(bench: Bench) -> None:
    draft = await bench.begun("one ")
    with (bench.folder / f"{draft.id}.text").open("ab") as file:
        file.write("two 😀".encode()[:-1])
    assert await bench.drafts.read_text(draft.id) == "one "
    await bench.go_on(draft, "2")
    assert (bench.folder / f"{draft.id}.text").read_bytes() == b"one 2"
    await bench.go_on(draft, "", final=True)
    assert bench.files() == {"a.txt": b"one 2"}


@pytest.mark.parametrize("works", range(5))
async def test_a_crash_at_any_point_leaves_a_valid_draft(
    bench: Bench, works: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = await bench.begun("one two thr")
    left, really = works, os.fsync

    def fails(descriptor: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.EIO, "torn")
        really(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fails)
        with pytest.raises(ToolError, match="torn"):
            await bench.go_on(draft, "2", after="one ")
    text = await bench.drafts.read_text(draft.id)
    assert text in {"one two thr", "one ", "one 2"}
    (kept,) = await bench.drafts.list_drafts()
    assert (kept.size, kept.tail) == (len(text), text)


async def test_a_draft_without_its_text_does_not_exist(bench: Bench) -> None:
    draft = await bench.begun("one two")
    (bench.folder / f"{draft.id}.text").write_bytes(b"one")
    assert await bench.drafts.list_drafts() == []
    with pytest.raises(ToolError, match="no draft"):
        await bench.go_on(draft, "x")


async def test_a_disk_error_does_not_fail_the_turn(bench: Bench) -> None:
    bench.folder.parent.mkdir(parents=True)
    bench.folder.write_text("a file where the folder should be")
    assert await bench.keep("write_file", '{"path":"a","content":"b') is None
    with pytest.raises(ToolError, match="cannot be read or written"):
        await bench.drafts.list_drafts()


async def test_many_who_keep_and_sweep_at_once_do_not_hurt_each_other(bench: Bench) -> None:
    draft = await bench.begun("start ", "one")

    async def grow(number: int) -> None:
        await bench.go_on(draft, f"{number} ")
        await bench.drafts.remove_expired()
        other = await bench.begun("x", f"other{number}")
        await bench.drafts.discard(other.id)

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(grow(number))
    text = await bench.drafts.read_text(draft.id)
    assert sorted(text.split()) == sorted(["start", *map(str, range(20))])
    assert [each.id for each in await bench.drafts.list_drafts()] == [draft.id]


async def test_a_folder_that_is_removed_again_and_again_is_made_again(bench: Bench) -> None:
    async def come_and_go(number: int) -> None:
        for _ in range(10):
            draft = await bench.begun(f"{number}", f"{number}")
            assert await bench.drafts.read_text(draft.id) == f"{number}"
            await bench.drafts.discard(draft.id)
            await bench.drafts.remove_expired()

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        for number in range(6):
            group.create_task(come_and_go(number))
    assert not bench.folder.exists()


LONG = "".join(
    f'{number}: "quoted" \\ back\\slash 😀👩‍👩‍👧 é\t\u2028\x7f {{"a":[1]}}\r\n'
    for number in range(1000)
)


def a_cut(rest: str, chance: random.Random, most: int) -> str:
    """Encode the rest of a text and cut the result, preferably inside an escape."""
    body = (
        json.dumps(rest)[1:-1]
        if chance.random() < 0.7
        else json.dumps(rest, ensure_ascii=False)[1:-1]
    )
    at = chance.randrange(1, min(len(body), most) + 1)
    found = body.find("\\", at)
    if found >= 0 and chance.random() < 0.8:
        at = min(len(body), found + chance.randrange(1, 12))
    return body[:at]


@pytest.mark.parametrize("seed", range(50))
async def test_a_long_file_cut_again_and_again_is_the_same_to_the_byte(
    bench: Bench, seed: int
) -> None:
    assert len(LONG.encode()) > 60_000
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    start = '{"path":"long.txt","content":"'
    draft = await bench.keep("write_file", start + a_cut(LONG, chance, 8000))
    while draft is None:
        draft = await bench.keep("write_file", start + a_cut(LONG, chance, 8000))
    while draft.size < len(LONG):
        assert LONG[: draft.size].endswith(draft.tail)
        # The model continues at the end of the quoted tail, or a little before it.
        back = chance.choice([0, 0, 60])
        after = LONG[: draft.size - back][-90:]  # more than a line, so that it is unique
        rest = LONG[draft.size - back :]
        if chance.random() < 0.3 and len(rest) > 9000:
            await bench.go_on(draft, rest[:3000], after=after)
            draft = (await bench.drafts.list_drafts())[-1]
            continue
        head = json.dumps({"draft_id": draft.id, "after": after})[:-1] + ',"content":"'
        draft = await bench.keep("write_file_continue", head + a_cut(rest, chance, 12_000))
        assert draft is not None
    assert bench.files() == {}
    await bench.go_on(draft, "", final=True)
    assert bench.files() == {"long.txt": LONG.encode()}
    assert await bench.drafts.list_drafts() == []


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), min_size=1), st.data()
)
def test_a_draft_contains_all_its_parts(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str], data: st.DataObject
) -> None:
    async def write() -> None:
        bench = Bench(tmp_path_factory.mktemp("drafts"))
        await bench.call(write_file, path="a", content=parts[0], more=True)
        (draft,) = await bench.drafts.list_drafts()
        text = parts[0]
        for part in parts[1:]:
            size = data.draw(st.integers(0, len(text)))
            await bench.go_on(draft, part, after=text[len(text) - size :])
            text += part
            (kept,) = await bench.drafts.list_drafts()
            assert (kept.size, kept.tail) == (len(text), text[-200:])
        await bench.go_on(draft, "", final=True)
        assert bench.files() == {"a": text.encode()}

    asyncio.run(write())


async def test_a_draft_is_visible_only_to_the_person_whose_turn_began_it(tmp_path: Path) -> None:
    clock = Hand()
    folder = tmp_path / "drafts"
    chief, ann = (DraftStore(folder, clock, owner) for owner in ("t:9", "t:1001"))
    old = await DraftStore(folder, clock).begin("old.txt", "of an older version")
    draft = await chief.begin("private.txt", "secret")
    assert {each.id for each in await chief.list_drafts()} == {old.id, draft.id}
    assert [each.id for each in await ann.list_drafts()] == [old.id]
    with pytest.raises(ToolError, match="There is no draft") as refused:
        await ann.read_text(draft.id)
    assert "private.txt" not in str(refused.value)
    with pytest.raises(ToolError, match="There is no draft"):
        await ann.extend(draft.id, " and more")
    await ann.discard(draft.id)
    grown = await chief.extend(draft.id, " text")
    assert await chief.read_text(grown.id) == "secret text"
    clock.time += LIFETIME_MS + 1
    assert await DraftStore(folder, clock).remove_expired() == 2
