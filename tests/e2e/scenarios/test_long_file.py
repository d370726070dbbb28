"""A long file over a connection that cuts every answer; `make long-file` runs all seeds."""

import json
from pathlib import Path

import pytest

from tests.fakes.dialects.steps import PROTOCOLS, ProtocolName
from tests.fakes.watch import Watch
from tests.faults.long_file import SIZE, content_of, unescaped, write_long_files

FEW = 5


@pytest.mark.timeout(120)
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_long_file_is_complete_although_every_answer_is_cut(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    seeds = [seed for seed in range(FEW) if PROTOCOLS[seed % 3] == protocol]
    assert len(await write_long_files(tmp_path, protocol, seeds)) == len(seeds)


def test_generated_files_have_the_right_length_and_unique_endings() -> None:
    for seed in range(3):
        content = content_of(seed)
        assert len(content.encode()) == SIZE
        for end in range(200, len(content), 997):
            assert content.count(content[end - 200 : end]) == 1


def test_unescaping_replaces_escapes_by_plain_characters() -> None:
    body = b'event: x\ndata: {"a": "\\ud83d\\ude80"}\n\ndata: [DONE]\n\n'
    plain = unescaped(body)
    assert plain == 'event: x\ndata: {"a": "🚀"}\n\ndata: [DONE]\n\n'.encode()
    assert json.loads(plain.split(b"\n")[1][6:]) == {"a": "🚀"}


def test_the_directory_watch_reports_changes_of_a_file(tmp_path: Path) -> None:
    with Watch(tmp_path) as watch:
        (tmp_path / "a").write_text("x")
        (tmp_path / "a").rename(tmp_path / "b")
        assert watch.of("a") == ["created", "modified", "closed", "moved away"]
        assert watch.of("b") == ["moved here"]
        assert watch.of("c") == []
