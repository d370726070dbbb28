"""The generated API key."""

import errno
import logging
import os
import stat
from pathlib import Path

import pytest

from gateway.errors import CannotStart
from gateway.http.api_key import key_path, load_or_create, read


def test_key_is_generated_once_and_then_reused(tmp_path: Path) -> None:
    first, second = load_or_create(tmp_path), load_or_create(tmp_path)
    assert (first.is_new, second.is_new) == (True, False)
    assert first.secret == second.secret == read(tmp_path)


def test_key_has_256_random_bits_and_a_private_file(tmp_path: Path) -> None:
    asked = []

    def random(size: int) -> str:
        asked.append(size)
        return "r" * 43

    assert load_or_create(tmp_path, random).secret.reveal() == "hf-" + "r" * 43
    assert asked == [32]
    assert stat.S_IMODE(key_path(tmp_path).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["api_key"]


def test_two_installations_have_different_keys(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert load_or_create(tmp_path / "a").secret != load_or_create(tmp_path / "b").secret


def test_partial_key_file_after_a_power_cut_is_replaced(tmp_path: Path) -> None:
    (tmp_path / ".api_key.new").write_text("hf-")
    assert load_or_create(tmp_path).is_new
    assert len(load_or_create(tmp_path).secret.reveal()) > 40


@pytest.mark.parametrize("text", ["", "\n", "hf-short", "two words " * 5, "ü" * 50, "\0" * 50])
def test_file_without_a_key_prevents_the_start(tmp_path: Path, text: str) -> None:
    key_path(tmp_path).write_text(text, encoding="utf-8")
    with pytest.raises(CannotStart, match="does not contain an API key"):
        load_or_create(tmp_path)
    assert key_path(tmp_path).read_text(encoding="utf-8") == text


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_readable_key_file_is_made_private_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    key = load_or_create(tmp_path).secret
    key_path(tmp_path).chmod(mode)
    with caplog.at_level(logging.WARNING):
        assert read(tmp_path) == key
        assert caplog.text == ""  # reading alone changes nothing
        assert stat.S_IMODE(key_path(tmp_path).stat().st_mode) == mode
        assert load_or_create(tmp_path).secret == key
    assert stat.S_IMODE(key_path(tmp_path).stat().st_mode) == 0o600
    assert f"{key_path(tmp_path)} was readable by other users; now it is private" in caplog.text
    assert "delete the file" in caplog.text
    assert key.reveal() not in caplog.text
    caplog.clear()
    assert load_or_create(tmp_path).secret == key
    assert caplog.text == ""


def test_readable_key_file_that_cannot_be_changed_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = load_or_create(tmp_path).secret
    key_path(tmp_path).chmod(0o644)

    def refusing(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "chmod", refusing)
    assert load_or_create(tmp_path).secret == key
    assert "is readable by other users, and its mode cannot be changed" in caplog.text
    assert "Read-only file system" in caplog.text


def test_unwritable_key_file_raises_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=r"cannot be written to .*gone/api_key: No such file"):
        load_or_create(tmp_path / "gone")
    key_path(tmp_path).mkdir()
    with pytest.raises(CannotStart, match="cannot be read: Is a directory"):
        load_or_create(tmp_path)
