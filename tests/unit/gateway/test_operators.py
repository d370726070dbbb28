"""What the admins are told of, and how often."""

from collections.abc import Sequence

import pytest

from gateway.announcer import Announcer
from gateway.delivery.view import read_address, read_body
from gateway.operators import Operators
from platforms.core.contract import Address, Capabilities, Live, Repeat, Unit
from sessions.changes import PutItem
from sessions.values.ids import Ids

CAN = Capabilities(4000, Unit.CHARACTERS, Live.EDIT, Repeat.ALWAYS, command="!{word}")


class SetClock:
    def __init__(self) -> None:
        self.at = 5.0  # a machine that was started a moment ago

    def now(self) -> int:
        return int(self.at * 1000)

    def monotonic(self) -> float:
        return self.at


class Office:
    def __init__(self, *admins: str) -> None:
        self.admins = list(admins)
        self.clock = SetClock()
        self.operators = Operators(
            lambda: self.admins,
            Announcer(Ids(self.clock), self.clock, self._can),
            self.clock,
            self._can,
        )

    @staticmethod
    def _can(address: Address) -> Capabilities | None:
        return CAN if address.platform == "pigeon" else None

    def told(self, cause: str = "no credit", person: str = "pigeon:9") -> list[tuple[str, str]]:
        """Who is shown what."""
        shown: list[tuple[str, str]] = []
        for change in self.operators.tell(cause, person):
            assert isinstance(change, PutItem)
            where = read_address(change.item.address)
            shown.append((f"{where.platform}:{where.chat}", read_body(change.item).text))
        return shown


WORDS = "🛠 The model cannot be used: no credit. Conversations fail until this is mended."


def test_every_admin_who_can_be_reached_is_told() -> None:
    office = Office("pigeon:1", "icq:2", "pigeon:3")
    assert office.told() == [("pigeon:1", WORDS), ("pigeon:3", WORDS)]


@pytest.mark.parametrize(
    ("admins", "person"),
    [
        pytest.param((), "pigeon:9", id="there are none"),
        pytest.param(("pigeon:1",), "pigeon:1", id="the only one reads it anyway"),
        pytest.param(("icq:2",), "pigeon:9", id="none can be reached"),
    ],
)
def test_nobody_is_said_to_have_been_told_when_nobody_was(
    admins: Sequence[str], person: str
) -> None:
    office = Office(*admins)
    assert office.told(person=person) == []
    office.admins.append("pigeon:7")
    assert len(office.told(person=person)) == 1  # that nobody was told is not remembered


def test_the_same_trouble_is_not_told_again_within_an_hour() -> None:
    office = Office("pigeon:1")
    assert len(office.told()) == 1
    office.clock.at += 3599
    assert office.told() == []
    assert len(office.told("key refused")) == 1
    office.clock.at += 2
    assert len(office.told()) == 1


def test_what_is_remembered_does_not_grow_without_end() -> None:
    office = Office("pigeon:1")
    for number in range(250):
        assert len(office.told(f"cause {number}")) == 1
    assert len(office.operators._told) <= 100
    assert office.told("cause 249") == []
