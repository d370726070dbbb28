"""The key that is made where none is configured."""

import logging
import stat
from pathlib import Path

import pytest

from gateway.api_key import place, read, take
from gateway.errors import CannotStart


def test_a_key_is_made_once_and_then_stays(tmp_path: Path) -> None:
    first, second = take(tmp_path), take(tmp_path)
    assert (first.made, second.made) == (True, False)
    assert first.secret == second.secret == read(tmp_path)


def test_a_key_is_256_random_bits_that_only_its_owner_can_read(tmp_path: Path) -> None:
    asked = []

    def random(size: int) -> str:
        asked.append(size)
        return "r" * 43

    assert take(tmp_path, random).secret.reveal() == "hf-" + "r" * 43
    assert asked == [32]
    assert stat.S_IMODE(place(tmp_path).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["api_key"]


def test_two_installations_have_different_keys(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert take(tmp_path / "a").secret != take(tmp_path / "b").secret


def test_what_a_power_cut_left_of_a_key_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / ".api_key.new").write_text("hf-")
    assert take(tmp_path).made
    assert len(take(tmp_path).secret.reveal()) > 40


@pytest.mark.parametrize("text", ["", "\n", "hf-short", "two words " * 5, "ü" * 50, "\0" * 50])
def test_a_file_that_holds_no_key_keeps_the_daemon_from_starting(tmp_path: Path, text: str) -> None:
    place(tmp_path).write_text(text, encoding="utf-8")
    with pytest.raises(CannotStart, match="holds no API key"):
        take(tmp_path)
    assert place(tmp_path).read_text(encoding="utf-8") == text


def test_a_key_that_others_can_read_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = take(tmp_path).secret
    place(tmp_path).chmod(0o640)
    with caplog.at_level(logging.WARNING):
        assert take(tmp_path).secret == key
    assert f"chmod 600 {place(tmp_path)}" in caplog.text
    assert key.reveal() not in caplog.text


def test_where_it_cannot_be_kept_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=r"cannot be kept in .*gone/api_key: No such file"):
        take(tmp_path / "gone")
    place(tmp_path).mkdir()
    with pytest.raises(CannotStart, match="cannot be read: Is a directory"):
        take(tmp_path)
