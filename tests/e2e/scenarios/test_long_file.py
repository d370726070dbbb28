"""A long file on a line that cuts every answer; all seeds: `make long-file`."""

import json
from pathlib import Path

import pytest

from tests.fakes.dialects.steps import PROTOCOLS, ProtocolName
from tests.fakes.watch import Watch
from tests.faults.long_file import SIZE, content_of, unescaped, write_long_files

FEW = 5


@pytest.mark.timeout(120)
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_long_file_arrives_whole_although_every_answer_is_cut(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    seeds = [seed for seed in range(FEW) if PROTOCOLS[seed % 3] == protocol]
    assert len(await write_long_files(tmp_path, protocol, seeds)) == len(seeds)


def test_the_files_are_as_long_as_they_should_be_and_no_end_occurs_twice() -> None:
    for seed in range(3):
        content = content_of(seed)
        assert len(content.encode()) == SIZE
        for end in range(200, len(content), 997):
            assert content.count(content[end - 200 : end]) == 1


def test_events_are_the_same_with_every_character_as_it_is() -> None:
    body = b'event: x\ndata: {"a": "\\ud83d\\ude80"}\n\ndata: [DONE]\n\n'
    plain = unescaped(body)
    assert plain == 'event: x\ndata: {"a": "🚀"}\n\ndata: [DONE]\n\n'.encode()
    assert json.loads(plain.split(b"\n")[1][6:]) == {"a": "🚀"}


def test_the_watch_sees_what_happens_to_a_name(tmp_path: Path) -> None:
    with Watch(tmp_path) as watch:
        (tmp_path / "a").write_text("x")
        (tmp_path / "a").rename(tmp_path / "b")
        assert watch.of("a") == ["created", "modified", "closed", "moved away"]
        assert watch.of("b") == ["moved here"]
        assert watch.of("c") == []
