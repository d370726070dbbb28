"""The decision whose work stops after a change of access."""

import itertools

import msgspec
import pytest

from gateway.commands.lost_access import (
    find_people_without_access,
    has_lost_access,
    retry_pauses,
    sender_of,
)
from gateway.inbound.reader import read_event
from platforms.core.contract import Address, InboundMessage, Sender, Text
from sessions.records import InboxEntry, InboxState, Turn, TurnState

DAMAGED = b"{}"
ROOM, OTHER_ROOM = "telegram:room", "telegram:other"
ANN, EVE = "telegram:ann", "telegram:eve"


def message(
    seq: int, sender: str, *, key: str = ROOM, memberships: tuple[str, ...] = ()
) -> InboxEntry:
    address = Address("telegram", key.partition(":")[2])
    event = InboundMessage(
        id=str(seq),
        at=seq,
        address=address,
        sender=Sender(sender.partition(":")[2], sender, memberships=memberships),
        parts=(Text("hello"),),
    )
    return InboxEntry(
        id=f"i{seq}",
        source="telegram",
        event=str(seq),
        key=key,
        address=address,
        state=InboxState.WAITING,
        payload=msgspec.json.encode(event),
        received_at=seq,
        seq=seq,
    )


def damaged(seq: int, key: str = ROOM) -> InboxEntry:
    return msgspec.structs.replace(message(seq, EVE, key=key), payload=DAMAGED)


def turn(id_: str, person: str, *, key: str = ROOM) -> Turn:
    return Turn(
        id=id_,
        session_id="s1",
        key=key,
        address=Address("telegram", "room"),
        state=TurnState.RUNNING,
        request="hello",
        started_at=1,
        person=person,
    )


def has_access(entry: InboxEntry) -> bool:
    """Everyone except Eve has access; members of `guest` have none."""
    try:
        sender = read_event(entry).sender
    except msgspec.DecodeError:
        return False
    return sender.id != "eve" and "guest" not in sender.memberships


@pytest.mark.parametrize(
    ("unanswered", "running", "lost"),
    [
        pytest.param([], [], {}, id="no work"),
        pytest.param([message(1, ANN)], [], {}, id="a message of a person with access"),
        pytest.param([message(1, EVE)], [], {ROOM: {EVE}}, id="a message of a person without"),
        pytest.param(
            [message(1, ANN), message(2, EVE)],
            [],
            {ROOM: {EVE}},
            id="only the person without access",
        ),
        pytest.param(
            [message(1, EVE), message(2, ANN, memberships=("guest",))],
            [],
            {ROOM: {ANN, EVE}},
            id="two people without access in one conversation",
        ),
        pytest.param(
            [message(1, EVE), message(2, EVE, key=OTHER_ROOM)],
            [],
            {ROOM: {EVE}, OTHER_ROOM: {EVE}},
            id="one person in two conversations",
        ),
        pytest.param(
            [message(1, ANN), message(2, ANN, memberships=("guest",), key=OTHER_ROOM)],
            [],
            {OTHER_ROOM: {ANN}},
            id="access in one conversation only",
        ),
        pytest.param(
            [message(1, ANN), message(2, ANN, memberships=("guest",))],
            [],
            {ROOM: {ANN}},
            id="the newest message has no access",
        ),
        pytest.param(
            [message(1, ANN, memberships=("guest",)), message(2, ANN)],
            [],
            {},
            id="only an older message has no access",
        ),
        pytest.param([damaged(1)], [], {}, id="a damaged message"),
        pytest.param(
            [damaged(1), message(2, EVE)], [], {ROOM: {EVE}}, id="a message after a damaged one"
        ),
        pytest.param(
            [], [(turn("t1", ANN), [message(1, ANN)])], {}, id="a turn of a person with access"
        ),
        pytest.param(
            [],
            [(turn("t1", EVE), [message(1, EVE)])],
            {ROOM: {EVE}},
            id="a turn of a person without",
        ),
        pytest.param([], [(turn("t1", ANN), [])], {ROOM: {ANN}}, id="a turn without a message"),
        pytest.param(
            [], [(turn("t1", ANN), [damaged(1)])], {ROOM: {ANN}}, id="a turn of a damaged message"
        ),
        pytest.param(
            [],
            [(turn("t1", ANN), [message(2, ANN), message(1, ANN, memberships=("guest",))])],
            {},
            id="the newest message of a turn counts in any order",
        ),
        pytest.param(
            [message(2, ANN, memberships=("guest",))],
            [(turn("t1", ANN), [message(1, ANN)])],
            {ROOM: {ANN}},
            id="the message that waits behind a turn is newer",
        ),
        pytest.param(
            [message(1, ANN, memberships=("guest",))],
            [(turn("t1", ANN), [message(2, ANN)])],
            {},
            id="the message held since an earlier turn is older",
        ),
        pytest.param(
            [message(2, EVE)],
            [(turn("t1", ANN), [message(1, ANN)])],
            {ROOM: {EVE}},
            id="a message behind the turn of another person",
        ),
        pytest.param(
            [],
            [
                (turn("t1", EVE), [message(1, EVE)]),
                (turn("t2", ANN, key=OTHER_ROOM), [message(2, ANN, key=OTHER_ROOM)]),
            ],
            {ROOM: {EVE}},
            id="turns of two conversations",
        ),
    ],
)
def test_work_of_people_without_access_stops(
    unanswered: list[InboxEntry],
    running: list[tuple[Turn, list[InboxEntry]]],
    lost: dict[str, set[str]],
) -> None:
    assert find_people_without_access(unanswered, running, has_access) == lost


@pytest.mark.parametrize(
    ("entries", "lost"),
    [
        ([message(1, ANN)], False),
        ([message(1, EVE)], True),
        ([], True),
        ([message(1, ANN), message(2, EVE)], True),
        ([message(2, ANN), message(1, EVE)], False),
    ],
)
def test_the_newest_entry_decides_about_access(entries: list[InboxEntry], lost: bool) -> None:
    assert has_lost_access(entries, has_access) is lost


def test_a_stored_message_names_its_sender_with_the_platform() -> None:
    assert sender_of(message(1, ANN)) == "telegram:ann"
    assert sender_of(damaged(1)) == ""


def test_the_pause_between_retries_doubles_up_to_a_minute() -> None:
    pauses = list(itertools.islice(retry_pauses(), 9))
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
