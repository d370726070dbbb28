"""The report of a restart."""

import msgspec
import pytest

from gateway.notices.catalogue import render_notice
from gateway.process.restart_report import (
    CompletedRestart,
    InterruptedTurn,
    PendingRestart,
    RestartRequester,
    complete_restart,
    format_turns,
    restart_fields,
)
from sessions.values.address import Address
from sessions.values.notices import NoticeId

ANN = InterruptedTurn(
    turn="t_1", key="pigeon:1001", request="write a\nlong \x1b[31mreport", minutes=3, tool="shell"
)
BEN = InterruptedTurn(turn="t_2", key="pigeon:1002", request="x" * 100, minutes=0, waits=True)
HERE = RestartRequester.at(Address("pigeon", "9"), direct=False)
ELSEWHERE = RestartRequester.at(Address("pigeon", "7"), direct=True)
ASKED = PendingRestart(id="r_1", at=10_000, version="1.0", askers=(HERE,))


def told(over: CompletedRestart, *, direct: bool = True, resumed: bool = False) -> str:
    fields = restart_fields(over, direct=direct, resumed=resumed)
    return render_notice(NoticeId.RESTARTED, fields, "/{word}")


@pytest.mark.parametrize(
    ("over", "text"),
    [
        (CompletedRestart(id="r", took=1_400, before="1.0", after="1.0"), "✅ Back after 1 s."),
        (
            CompletedRestart(id="r", took=0, before="1.0", after="1.1"),
            "✅ Back after 1 s. Version 1.1, before: 1.0.",
        ),
        (
            CompletedRestart(id="r", took=65_000, before="1.0", after="1.0", interrupted=(ANN,)),
            (
                "✅ Back after 65 s. 1 task was interrupted.\n"
                "· pigeon:1001: “write a long [31mreport” (3 min, shell is running)"
            ),
        ),
        (
            CompletedRestart(id="r", took=2_000, before="1.0", after="1.0", in_order=False),
            "✅ Back after 2 s. I did not shut down cleanly.",
        ),
    ],
)
def test_report_of_a_restart_has_the_relevant_facts(over: CompletedRestart, text: str) -> None:
    assert told(over) == text


def test_report_in_a_room_does_not_quote_requests() -> None:
    over = CompletedRestart(id="r", took=1_000, before="1.0", after="1.0", interrupted=(ANN, BEN))
    assert told(over, direct=False, resumed=True) == (
        "✅ Back after 1 s. 2 tasks were interrupted and resumed."
    )


def test_long_list_of_turns_is_shortened() -> None:
    lines = format_turns([ANN, BEN] * 4).splitlines()
    assert len(lines) == 6
    assert lines[-1] == "· and 3 more"
    assert lines[1] == ("· pigeon:1002: “" + "x" * 59 + "…” (under 1 min, waiting for an approval)")


def test_turns_left_by_a_crash_are_interrupted_and_counted_once() -> None:
    asked = PendingRestart(id="r_1", at=10_000, version="1.0", interrupted=(ANN,), drained=True)
    over = complete_restart(asked, [ANN, BEN], 12_000, "1.1")
    assert over == CompletedRestart(
        id="r_1", took=2_000, before="1.0", after="1.1", interrupted=(ANN, BEN)
    )
    assert not complete_restart(ASKED, [], 5_000, "1.0").in_order
    assert complete_restart(ASKED, [], 5_000, "1.0").took == 0  # after a clock change


def test_each_chat_gets_one_report() -> None:
    both = ASKED.with_requester(ELSEWHERE).with_requester(
        RestartRequester.at(Address("pigeon", "9"), direct=True)
    )
    assert both.askers == (HERE, ELSEWHERE)


def test_pending_restart_is_stored_in_the_form_of_earlier_versions() -> None:
    stored = (
        b'{"id":"r_1","at":10000,"version":"1.0","askers":'
        rb'[{"address":"{\"platform\":\"pigeon\",\"chat\":\"9\"}","direct":false}]}'
    )
    assert msgspec.json.encode(ASKED) == stored
    read = msgspec.json.decode(stored, type=PendingRestart)
    assert [asker.address for asker in read.askers] == [Address("pigeon", "9")]


def test_durations_are_readable() -> None:
    seconds = (0, 1, 119, 120, 7199, 7200, 172_800)
    spans = [
        CompletedRestart(id="r", took=each * 1000, before="1", after="1").took_text
        for each in seconds
    ]
    assert spans == ["1 s", "1 s", "119 s", "2 min", "2 h", "2 h", "48 h"]
