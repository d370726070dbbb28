import unicodedata
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.media.incoming import (
    MAX_FILES,
    TOO_MANY_FILES,
    plan_attachments,
    to_file_part,
    too_large_message,
)
from platforms.core.contract import File, Text
from sessions.values.file_names import (
    MAX_NAME_BYTES,
    MESSAGE_FOLDER_PATTERN,
    clean_media_type,
    clean_name,
)

INBOX = "i_01m5x2k9qa7v3tz8hr"


@pytest.mark.parametrize(
    ("said", "clean"),
    [
        pytest.param("report.pdf", "report.pdf", id="nothing to do"),
        pytest.param("Größe 文書.txt", "Größe 文書.txt", id="letters of everybody"),
        pytest.param("../../etc/passwd", "passwd", id="up and away"),
        pytest.param("C:\\Users\\x\\a.doc", "a.doc", id="another system's path"),
        pytest.param("folder/", "folder", id="a folder"),
        pytest.param(".bashrc", "bashrc", id="hidden"),
        pytest.param("...", "file.pdf", id="only dots"),
        pytest.param("", "file.pdf", id="nothing"),
        pytest.param("a\n\nb\t c.txt", "a b c.txt", id="lines and blanks"),
        pytest.param("gpj.\u202eexe.txt", "gpj.exe.txt", id="written backwards"),
        pytest.param("a\x00\x1b[31mb", "a(31mb", id="control signs"),
        pytest.param("x] [File: y", "x) (File: y", id="brackets"),
        pytest.param("e\u0301.txt", "é.txt", id="composed"),
        pytest.param("x" * 300 + ".pdf", "x" * 91 + ".pdf", id="too long, with its ending"),
        pytest.param("x" * 300, "x" * 95, id="too long, without one"),
        pytest.param("half \ud83d a character", "half a character", id="half a character"),
        pytest.param(".holdfast-0.tmp", "holdfast-0.tmp", id="like one being written"),
    ],
)
def test_a_name_is_cleaned_for_every_file_system(said: str, clean: str) -> None:
    assert clean_name(said, "application/pdf") == clean


@given(st.text(st.characters(), max_size=300))
def test_no_name_escapes_its_folder_or_hides_characters(said: str) -> None:
    name = clean_name(said)
    assert PurePosixPath(f"a/{name}").parent == PurePosixPath("a")
    assert not name.startswith(".")
    assert 0 < len(name.encode()) <= MAX_NAME_BYTES
    assert not {"[", "]", "\n", "/", "\\", "\0"} & set(name)
    assert all(unicodedata.category(sign)[0] != "C" for sign in name)
    assert clean_name(name) == name


FILES = st.builds(File, st.text(max_size=120), st.text(max_size=20), st.just("ref"))


@given(st.lists(FILES, max_size=30))
def test_each_file_has_its_own_stable_path(parts: list[File]) -> None:
    found = plan_attachments(INBOX, parts)
    assert found == plan_attachments(INBOX, parts)
    assert len({file.path.casefold() for file in found}) == len(parts)
    for file in found:
        top, folder, name = file.path.split("/")
        assert (top, folder) == ("received", "2k9qa7v3tz8hr"[-10:])
        assert len(name.encode()) <= MAX_NAME_BYTES
        assert MESSAGE_FOLDER_PATTERN.fullmatch(folder)


def test_files_of_the_same_name_get_numbers() -> None:
    parts = [File(name, "image/png", "r") for name in ("a.png", "A.PNG", "b/a.png", "a-2.png")]
    names = [file.path.rpartition("/")[2] for file in plan_attachments(INBOX, parts)]
    assert names == ["a.png", "A-2.PNG", "a-3.png", "a-2-2.png"]


def test_text_parts_are_skipped_and_the_adapters_data_is_kept() -> None:
    voice = File("v.ogg", "audio/ogg", ref="ref 1", size=12, voice=True)
    (file,) = plan_attachments(INBOX, [Text("hello"), voice])
    assert (file.ref, file.size, file.voice, file.trouble) == ("ref 1", 12, True, "")
    assert to_file_part(file) == voice


def test_only_a_limited_number_of_files_is_accepted() -> None:
    found = plan_attachments(INBOX, [File("a", "x/y", "r")] * (MAX_FILES + 2))
    assert [file.trouble for file in found] == [""] * MAX_FILES + [TOO_MANY_FILES] * 2


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Text/Plain; charset=utf-8", "text/plain"),
        ("image/svg+xml", "image/svg+xml"),
        ("", "application/octet-stream"),
        ("a/b] [File: c", "application/octet-stream"),
        ("pdf", "application/octet-stream"),
    ],
)
def test_a_malformed_media_type_is_replaced(said: str, kind: str) -> None:
    assert clean_media_type(said) == kind


def test_the_too_large_message_names_both_sizes() -> None:
    assert too_large_message(20_000_000, 35_200_000) == "too large (35.2 MB, at most 20 MB)"
    assert too_large_message(20_000_000) == "too large (more than 20 MB, at most 20 MB)"
