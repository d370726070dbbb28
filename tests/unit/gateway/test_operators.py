"""What the admins are told of, and how often."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from agent.events import TurnDone, TurnEnding
from gateway.alerts.admins import AdminAlerts, AlertState, PlatformStatus
from gateway.delivery.view import read_address, read_body
from gateway.notices.compose import NoticeComposer
from gateway.observe.disk import DiskSpace
from gateway.spending.budgets import BudgetScope, BudgetStatus
from platforms.core.contract import Address, Capabilities, Live, Repeat, Unit
from sessions.changes import BudgetLimit, Change, PutItem
from sessions.records import BudgetUsage
from sessions.values.ids import Ids

CAN = Capabilities(4000, Unit.CHARACTERS, live=Live.EDIT, repeat=Repeat.ALWAYS, command="!{word}")


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
        self.operators = AdminAlerts(
            lambda: self.admins,
            NoticeComposer(Ids(self.clock), self.clock, self._can),
            self.clock,
            self._can,
        )

    @staticmethod
    def _can(address: Address) -> Capabilities | None:
        return CAN if address.platform in {"pigeon", "raven"} else None

    def told(self, cause: str = "no credit", person: str = "pigeon:9") -> list[tuple[str, str]]:
        """Who is shown what."""
        return shown(self.operators.report_model_failure(cause, person, "model"))

    def over(self, targets: str = "model") -> list[tuple[str, str]]:
        """Who is shown what when these models have answered."""
        return shown(self.operators.on_model_answered(targets))

    def looks(self, **platforms: str) -> list[tuple[str, str]]:
        """Who is shown what of platforms in trouble; one that is `away` cannot be reached."""
        return shown(
            self.operators.check_platforms(
                {name: PlatformStatus(cause, cause != "away") for name, cause in platforms.items()}
            )
        )

    def fails(
        self, cause: str = "it refused", targets: str = "model", **more: Any
    ) -> list[tuple[str, str]]:
        """Who is shown what of a turn that failed."""
        done = TurnDone(
            ending=TurnEnding.FAILED, text="", cause=cause, **{"last_verdict": "cut", **more}
        )
        return shown(self.operators.on_turn_failed(done, "pigeon:9", targets))

    def spends(self, day: str = "2026-11-18", **budgets: BudgetStatus) -> list[tuple[str, str]]:
        """Who is shown what of budgets that stand so."""
        standings = [replace(each, day=day) for each in budgets.values()]
        return shown(self.operators.check_budgets(standings, 3600))

    def finds(self, free: int) -> list[tuple[str, str]]:
        """Who is shown what when so much is left of a disk that should have 1000 MB."""
        room = DiskSpace(free * 10**6, 1000 * 10**6, Path("/state"))
        return shown(self.operators.check_disk(room))


def shown(changes: Sequence[Change]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for change in changes:
        assert isinstance(change, PutItem)
        where = read_address(change.item.address)
        found.append((f"{where.platform}:{where.chat}", read_body(change.item).text))
    return found


def stands(used: int, *, held: int = 0, refused: bool = False, name: str = "all") -> BudgetStatus:
    """A budget of 1,000 tokens."""
    scope = BudgetScope(name, f"those of {name}", BudgetLimit(name, 1000))
    return BudgetStatus(scope, "", BudgetUsage(used + held, 0.0, held, 0.0), refused)


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
    assert len(office.operators._last_alerted) <= 100
    assert office.told("cause 249") == []


# --- the end -----------------------------------------------------------------------------------

OVER = "✅ The model answers again. It could not be used for 2 minutes: no credit."


def test_once_the_model_answers_the_admins_are_told_that_it_is_over() -> None:
    office = Office("pigeon:1", "pigeon:3")
    office.told()
    office.clock.at += 120
    assert office.over("another model") == []
    assert office.over() == [("pigeon:1", OVER), ("pigeon:3", OVER)]
    assert office.over() == []


def test_nothing_is_over_of_which_nobody_was_told() -> None:
    office = Office()
    office.told()
    office.admins.append("pigeon:1")
    assert office.over() == []


def test_several_causes_end_in_one_message() -> None:
    office = Office("pigeon:1")
    office.told()
    office.clock.at += 60
    office.told("key refused")
    office.clock.at += 60
    assert office.over() == [("pigeon:1", OVER)]


def test_the_end_is_told_by_the_next_process_too_whatever_model_answers_there() -> None:
    before, after = Office("pigeon:1"), Office("pigeon:1")
    before.told()
    after.operators.restore(before.operators.state)
    after.clock.at = before.clock.at + 120
    assert after.over("a new model") == [("pigeon:1", OVER)]
    assert after.operators.state == AlertState()


# --- platforms ---------------------------------------------------------------------------------


def test_of_a_platform_in_trouble_all_are_told_who_can_be_reached_and_of_its_end_all() -> None:
    office = Office("pigeon:1", "raven:2", "icq:3")
    assert office.looks(raven="away", pigeon="") == []
    office.clock.at += 300
    began = "🛠 raven has been in trouble for 5 minutes: away."
    assert office.looks(raven="away", pigeon="") == [("pigeon:1", began)]
    office.clock.at += 300
    assert office.looks(raven="away", pigeon="") == []
    over = "✅ raven works again. It was in trouble for 10 minutes: away."
    assert office.looks(raven="", pigeon="") == [("pigeon:1", over), ("raven:2", over)]


def test_where_a_platform_works_in_spite_of_its_trouble_its_own_admins_are_told() -> None:
    office = Office("raven:2")
    office.looks(raven="Another program uses the token.")
    office.clock.at += 300
    words = "🛠 raven has been in trouble for 5 minutes: Another program uses the token."
    assert office.looks(raven="Another program uses the token.") == [("raven:2", words)]
    assert office.operators.state.platforms.keys() == {"raven"}


# --- the disk ---------------------------------------------------------------------------------------

FULL = (
    "🛠 The disk is nearly full: 900 MB left in /state. Please make room: when it is full nothing "
    "can be stored, and messages wait until it can."
)
ROOM_AGAIN = "✅ There is room on the disk again: 1.2 GB. It was nearly full for 3 minutes."


def test_of_a_disk_that_runs_low_all_are_told_at_once_and_once() -> None:
    office = Office("pigeon:9", "raven:8")
    assert office.finds(1000) == []
    assert office.finds(900) == [("pigeon:9", FULL), ("raven:8", FULL)]
    assert office.finds(100) == office.finds(1050) == office.finds(900) == []
    office.clock.at += 180
    assert office.finds(1200) == [("pigeon:9", ROOM_AGAIN), ("raven:8", ROOM_AGAIN)]
    assert office.finds(1001) == []
    assert office.finds(900) == [("pigeon:9", FULL), ("raven:8", FULL)]


def test_that_there_is_room_again_is_told_by_the_next_process_too() -> None:
    before, after = Office("pigeon:9"), Office("pigeon:9")
    before.finds(900)
    after.operators.restore(before.operators.state)
    after.clock.at += 180
    assert after.finds(800) == []
    assert after.finds(1200) == [("pigeon:9", ROOM_AGAIN)]
    assert after.operators.state == AlertState()


def test_damage_to_the_database_is_told_once() -> None:
    office = Office("pigeon:1")
    assert office.operators.check_store("") == ()
    ((where, text),) = shown(office.operators.check_store("The database x cannot be used"))
    assert where == "pigeon:1"
    assert text.startswith("🛠 The database x cannot be used. Some conversations fail")
    assert office.operators.check_store("The database x cannot be used") == ()


# --- safe mode ------------------------------------------------------------------------------------


def test_of_safe_mode_all_are_told_when_it_begins_and_when_it_is_over() -> None:
    office = Office("pigeon:9", "raven:8")
    said = shown(office.operators.check_safe_mode(3))
    assert [who for who, _ in said] == ["pigeon:9", "raven:8"]
    assert "I crashed 3 times in a row" in said[0][1]
    assert "!restart" in said[0][1]
    assert office.operators.check_safe_mode(3) == ()

    later = Office("pigeon:9")
    later.operators.restore(office.operators.state)
    assert later.operators.check_safe_mode(4) == ()  # it crashes in safe mode as well
    over = shown(later.operators.check_safe_mode(0))
    assert over == [("pigeon:9", "✅ Safe mode is over: tools are there again.")]
    assert later.operators.check_safe_mode(0) == ()
    assert later.operators.state == AlertState()


def test_a_service_that_only_fails_is_told_of_when_five_minutes_have_passed() -> None:
    office = Office("pigeon:1")
    assert office.fails() == []
    office.clock.at += 299
    assert office.fails() == []
    assert office.fails(targets="another") == []
    office.clock.at += 1
    (told,) = office.fails()
    assert told == ("pigeon:1", WORDS.replace("no credit", "it refused"))
    assert office.fails(targets="another") == []
    assert office.over()[0][1].startswith("✅ The model answers again.")


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param({"last_verdict": "complete"}, id="it used up its steps"),
        pytest.param({"last_verdict": "refused", "notice": "N9"}, id="it declined"),
        pytest.param({"over_budget": True}, id="a limit"),
    ],
)
def test_a_turn_that_failed_although_the_service_answered_is_no_trouble(
    ending: dict[str, Any],
) -> None:
    office = Office("pigeon:1")
    for _ in range(3):
        assert office.fails(**ending) == []
        office.clock.at += 300


def test_an_answer_in_between_ends_the_five_minutes() -> None:
    office = Office("pigeon:1")
    assert office.fails() == []
    office.clock.at += 200
    assert office.over() == []
    office.clock.at += 200
    assert office.fails() == []


def test_what_only_an_admin_can_mend_is_told_with_the_first_turn() -> None:
    office = Office("pigeon:1")
    assert office.fails("no credit", tell_operator=True) == [("pigeon:1", WORDS)]


def test_which_services_failed_is_not_remembered_without_end() -> None:
    office = Office("pigeon:1")
    for number in range(300):
        office.fails(targets=f"model {number}")
    assert len(office.operators._failing_since) <= 101


NEAR = (
    "🛠 80 % of the limit of 1,000 tokens a day for those of all is used: 800 tokens. When it is used "
    "up, nothing more is asked of the model there until the next day begins."
)
USED_UP = (
    "⛔ The limit of 1,000 tokens a day for those of all is used up. Until the next day begins, in "
    "1 h, messages there are refused, and their senders told. What may be spent is set in [limits]."
)


def test_of_a_budget_the_admins_are_told_twice_a_day_at_most() -> None:
    office = Office("pigeon:1")
    assert office.spends(all=stands(799, held=200)) == []  # what is held back may be given back
    assert office.spends(all=stands(800)) == [("pigeon:1", NEAR)]
    assert office.spends(all=stands(999)) == []
    assert office.spends(all=stands(999, refused=True)) == [("pigeon:1", USED_UP)]
    assert office.spends(all=stands(1000, refused=True)) == []
    assert office.spends(all=stands(801)) == []
    next_day = "2026-11-19"
    assert office.spends(next_day, all=stands(0)) == []
    assert office.spends(next_day, all=stands(1000)) == [("pigeon:1", USED_UP)]
    assert office.spends(next_day, all=stands(900)) == []


def test_each_budget_is_told_of_for_itself_and_not_again_by_the_next_process() -> None:
    office = Office("pigeon:1")
    assert len(office.spends(all=stands(800), hall=stands(1000, name="hall"))) == 2
    book = msgspec.json.decode(msgspec.json.encode(office.operators.state), type=AlertState)
    later = Office("pigeon:1")
    later.operators.restore(book)
    assert later.spends(all=stands(900), hall=stands(1000, name="hall")) == []
    assert later.spends(all=stands(900, refused=True)) == [("pigeon:1", USED_UP)]
