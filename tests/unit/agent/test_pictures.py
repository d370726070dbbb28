"""Selection and loading of the pictures that a model is shown."""

import base64
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.picture_loader import PictureLoader
from agent.request.history_plan import plan_history
from agent.request.pictures import (
    MAX_PICTURE_BYTES,
    MAX_PICTURES,
    MAX_TOTAL_BYTES,
    count_pictures,
    detect_media_type,
    is_picture,
    select_pictures,
)
from agent.request.tokens import count_characters, estimate_message
from sessions.records import Attachment, Message

PNG = b"\x89PNG\r\n\x1a\n" + b"p" * 20
JPEG = b"\xff\xd8\xff\xe0" + b"j" * 20
GIF = b"GIF89a" + b"g" * 20
WEBP = b"RIFF\x10\0\0\0WEBPVP8 " + b"w" * 20


def picture(path: str, size: int = 1000, media_type: str = "image/png") -> Attachment:
    return Attachment(name=path, media_type=media_type, path=path, size=size, fetched=True)


@pytest.mark.parametrize(
    ("beginning", "kind"),
    [
        (PNG, "image/png"),
        (JPEG, "image/jpeg"),
        (GIF, "image/gif"),
        (b"GIF87a" + b"g" * 20, "image/gif"),
        (WEBP, "image/webp"),
        (b"RIFF\x10\0\0\0WAVEfmt ", None),
        (b"<svg xmlns", None),
        (b"%PDF-1.7", None),
        (b"\0\0\0\x18ftypheic", None),
        (b"", None),
    ],
)
def test_the_media_type_is_detected_from_the_first_bytes(
    beginning: bytes, kind: str | None
) -> None:
    assert detect_media_type(beginning[:12]) == kind


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        (picture("a"), True),
        (picture("a", MAX_PICTURE_BYTES), True),
        (picture("a", MAX_PICTURE_BYTES + 1), False),
        (picture("a", media_type="image/heic"), False),
        (picture("a", media_type="application/pdf"), False),
        (Attachment(name="a", media_type="image/png", path="a", size=10), False),
    ],
    ids=["small", "largest", "too large", "other format", "not a picture", "not downloaded"],
)
def test_only_small_pictures_in_supported_formats_are_shown(file: Attachment, shown: bool) -> None:
    assert is_picture(file) is shown
    assert count_pictures(Message("user", files=(file, file))) == 2 * shown


def test_the_newest_pictures_are_selected_up_to_the_limit() -> None:
    rows = [
        Message("user", files=(picture(f"{n}a"), picture(f"{n}b"))) for n in range(MAX_PICTURES)
    ]
    shown = [file.path for file in select_pictures(rows)]
    assert shown == [f"{n}{part}" for n in range(MAX_PICTURES - 1, 3, -1) for part in "ba"]


def test_large_pictures_displace_older_ones() -> None:
    rows = [Message("user", files=(picture(str(n), MAX_PICTURE_BYTES),)) for n in range(6)]
    assert [file.path for file in select_pictures(rows)] == ["5", "4", "3", "2"]
    assert 4 * MAX_PICTURE_BYTES <= MAX_TOTAL_BYTES < 5 * MAX_PICTURE_BYTES


@given(st.lists(st.lists(st.integers(0, MAX_PICTURE_BYTES), max_size=4), max_size=12))
def test_the_selection_never_exceeds_the_limits(sizes: list[list[int]]) -> None:
    rows = [
        Message("user", files=tuple(picture(f"{at}.{n}", size) for n, size in enumerate(each)))
        for at, each in enumerate(sizes)
    ]
    shown = select_pictures(rows)
    assert len(shown) <= MAX_PICTURES
    assert sum(file.size or 0 for file in shown) <= MAX_TOTAL_BYTES
    assert len({file.path for file in shown}) == len(shown)


def test_pictures_count_towards_the_token_estimate() -> None:
    words = Message("user", "look")
    with_picture = Message("user", "look", files=(picture("a"),))
    assert estimate_message(with_picture) > estimate_message(words) + 1000
    assert count_characters(with_picture) >= estimate_message(with_picture) - 10
    too_large = Message("user", "look", files=(picture("a", MAX_PICTURE_BYTES + 1),))
    assert estimate_message(words) < estimate_message(too_large) < estimate_message(words) + 50


def test_a_pinned_request_keeps_its_pictures() -> None:
    asked = [Message("user", "one", files=(picture("a"),)), Message("user", "two")]
    rest = [Message("assistant", "x" * 200), Message("user", "go"), Message("assistant", "y")]
    rows = [*asked, *rest[:1], Message("assistant", "z")]
    planned = plan_history(rows, [10, 10, 900, 10], 100)
    assert planned is not None
    assert planned.pinned is not None
    assert [file.path for file in planned.pinned.files] == ["a"]


# --- loading --------------------------------------------------------------------------------------


def rows_of(*paths: str) -> list[Message]:
    return [Message("user", files=tuple(map(picture, paths)))]


async def test_a_loaded_picture_has_its_detected_media_type(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(JPEG)
    album = PictureLoader(tmp_path)
    shown = await album.load(rows_of("a.png"))
    assert shown["a.png"].media_type == "image/jpeg"
    assert base64.b64decode(shown["a.png"].data) == JPEG


async def test_a_picture_is_read_once_per_turn(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    album = PictureLoader(tmp_path)
    first = await album.load(rows_of("a.png"))
    (tmp_path / "a.png").unlink()
    (tmp_path / "b.png").write_bytes(GIF)
    second = await album.load([*rows_of("a.png"), *rows_of("b.png")])
    assert second["a.png"] is first["a.png"]
    assert second["b.png"].media_type == "image/gif"


async def test_unreadable_pictures_are_left_out(tmp_path: Path) -> None:
    outside = tmp_path / "outside.png"
    outside.write_bytes(PNG)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "link.png").symlink_to(outside)
    (workspace / "text.png").write_text("no picture")
    (workspace / "grown.png").write_bytes(PNG + bytes(MAX_PICTURE_BYTES))
    album = PictureLoader(workspace)
    assert await album.load(rows_of("link.png", "text.png", "grown.png", "gone.png")) == {}


async def test_rows_without_pictures_do_not_open_the_workspace(tmp_path: Path) -> None:
    assert await PictureLoader(tmp_path / "not there").load([Message("user", "hello")]) == {}
