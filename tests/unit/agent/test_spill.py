import os
import stat
from pathlib import Path

import pytest

from agent.tools import spill as spilling
from agent.tools.files import reading
from agent.tools.spill import (
    ResultCaps,
    SpilledResult,
    caps_for,
    fits,
    format_preview,
    spill_result,
    truncate,
)

RESULTS = Path(".holdfast") / "results"


@pytest.mark.parametrize(
    ("window", "each", "turn"),
    [
        pytest.param(None, 100_000, 200_000, id="unknown window"),
        pytest.param(1_000_000, 100_000, 200_000, id="large"),
        pytest.param(100_000, 60_000, 120_000, id="scaled"),
        pytest.param(32_768, 19_660, 39_320, id="scaled, rounded"),
        pytest.param(8_192, 8_000, 16_000, id="small"),
        pytest.param(1, 8_000, 16_000, id="tiny"),
    ],
)
def test_limits_follow_the_context_window_within_bounds(
    window: int | None, each: int, turn: int
) -> None:
    assert caps_for(window) == ResultCaps(each, turn)


@pytest.mark.parametrize(
    ("size", "room", "whole"),
    [(100, 0, True), (1500, 0, True), (1501, 0, False), (5000, 5000, True), (5001, 5000, False)],
)
def test_a_text_fits_if_there_is_room_or_a_preview_would_be_no_shorter(
    size: int, room: int, whole: bool
) -> None:
    assert fits("x" * size, room) is whole


def test_a_preview_shows_both_ends_and_the_path_of_the_file() -> None:
    text = "a" * 1000 + "b" * 8500 + "c" * 500
    shown = format_preview(text, SpilledResult("x/c1.txt", complete=True), reader_tool="read_file")
    assert "a" * 1000 in shown
    assert shown.endswith("c" * 500)
    assert "b" * 3 not in shown
    assert (
        "10,000 characters long. The full result is in x/c1.txt; use read_file to read it." in shown
    )
    assert "8,500 characters left out" in shown
    assert len(shown) < 1800


def test_a_preview_says_how_much_of_a_truncated_result_was_saved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spilling, "MAX_BYTES", 3_000_000)
    truncated = SpilledResult("x/c1.txt", complete=False)
    shown = format_preview("x" * 10_000, truncated, reader_tool=None)
    assert "The first 3 MB are in x/c1.txt. Beginning" in shown


def test_the_largest_saved_result_can_be_read_with_the_file_tool() -> None:
    assert spilling.MAX_BYTES <= reading.MAX_FILE_BYTES


def test_a_result_that_cannot_be_saved_is_truncated() -> None:
    assert truncate("x" * 5010, 5000) == "x" * 5000 + "\n[10 more characters were left out]"
    assert truncate("x" * 2000, 0) == "x" * 1500 + "\n[500 more characters were left out]"


async def test_a_result_is_saved_unchanged_in_a_private_file(tmp_path: Path) -> None:
    text = "one\r\ntwo\0 ü 🎈\n"
    assert await spill_result(tmp_path, "c1", text) == SpilledResult(
        ".holdfast/results/c1.txt", complete=True
    )
    file = tmp_path / RESULTS / "c1.txt"
    assert file.read_bytes() == text.encode()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


async def test_an_unpaired_surrogate_is_replaced(tmp_path: Path) -> None:
    await spill_result(tmp_path, "c1", "a\ud800b")
    assert (tmp_path / RESULTS / "c1.txt").read_text(encoding="utf-8") == "a?b"


async def test_a_result_never_replaces_another(tmp_path: Path) -> None:
    paths = [(await spill_result(tmp_path, "c1", text)).path for text in "abc"]
    assert paths == [f".holdfast/results/{name}.txt" for name in ("c1", "c1-2", "c1-3")]
    assert [(tmp_path / path).read_text(encoding="utf-8") for path in paths] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("call_id", "name"),
    [
        ("../../x", "_x"),
        ("/etc/passwd", "_etc_passwd"),
        ("", "_"),
        ("a\0b", "a_b"),
        ("ü", "_"),
        ("x" * 300, "x" * 64),
    ],
)
async def test_no_call_id_leads_out_of_the_folder(tmp_path: Path, call_id: str, name: str) -> None:
    assert (await spill_result(tmp_path, call_id, "x")).path == f".holdfast/results/{name}.txt"


@pytest.mark.parametrize("link", [".holdfast", ".holdfast/results"])
async def test_a_link_in_place_of_the_folder_is_not_followed(tmp_path: Path, link: str) -> None:
    outside, workspace = tmp_path / "outside", tmp_path / "workspace"
    outside.mkdir()
    (workspace / link).parent.mkdir(parents=True)
    (workspace / link).symlink_to(outside)
    with pytest.raises(OSError, match=r"results|holdfast"):
        await spill_result(workspace, "c1", "x")
    assert list(outside.iterdir()) == []


async def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    folder = tmp_path / RESULTS
    folder.mkdir(parents=True)
    (folder / "c1.txt").symlink_to(outside)
    assert (await spill_result(tmp_path, "c1", "x")).path == ".holdfast/results/c1-2.txt"
    assert not outside.exists()


async def test_a_result_is_truncated_at_the_size_limit_without_splitting_a_character(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spilling, "MAX_BYTES", 10)
    assert (await spill_result(tmp_path, "c1", "é" * 5)).complete
    assert not (await spill_result(tmp_path, "c2", "x" + "é" * 5)).complete
    kept = (tmp_path / RESULTS / "c2.txt").read_text(encoding="utf-8")
    assert kept == "x" + "é" * 4


async def test_the_oldest_results_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spilling, "MAX_FILES", 3)
    folder = tmp_path / RESULTS
    for number in range(5):
        await spill_result(tmp_path, f"c{number}", "x")
        os.utime(folder / f"c{number}.txt", (number, number))
    assert sorted(path.name for path in folder.iterdir()) == ["c2.txt", "c3.txt", "c4.txt"]


async def test_a_folder_among_the_results_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spilling, "MAX_FILES", 1)
    (tmp_path / RESULTS / "mine").mkdir(parents=True)
    await spill_result(tmp_path, "c1", "x")
    assert (tmp_path / RESULTS / "mine").is_dir()


async def test_a_failed_write_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_data: bytes) -> bytes:
        raise OSError(28, "no space")

    monkeypatch.setattr(spilling, "_truncate_bytes", fail)
    with pytest.raises(OSError, match="no space"):
        await spill_result(tmp_path, "c1", "x")
    assert list((tmp_path / RESULTS).iterdir()) == []


async def test_a_missing_workspace_is_created(tmp_path: Path) -> None:
    kept = await spill_result(tmp_path / "people" / "one", "c1", "x")
    assert (tmp_path / "people" / "one" / kept.path).read_text() == "x"


async def test_a_workspace_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        await spill_result(tmp_path / "file" / "workspace", "c1", "x")
