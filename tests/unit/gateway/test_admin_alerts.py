"""Alerts to the admins: which, and how often."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from agent.events import TurnDone, TurnEnding, VerdictName
from agent.tools.mcp.memory import InstructionsChange, ToolChange
from gateway.alerts.admins import AdminAlerts, AlertState, PlatformStatus, ToolAlerts
from gateway.delivery.view import read_body
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
        self.at = 5.0  # a monotonic clock just after boot

    def now(self) -> int:
        return int(self.at * 1000)

    def monotonic(self) -> float:
        return self.at


class AlertKit:
    def __init__(self, *admins: str) -> None:
        self.admins = list(admins)
        self.clock = SetClock()
        self.alerts = AdminAlerts(
            lambda: self.admins,
            NoticeComposer(Ids(self.clock), self.clock, self._can),
            self.clock,
            self._can,
        )

    @staticmethod
    def _can(address: Address) -> Capabilities | None:
        return CAN if address.platform in {"pigeon", "raven"} else None

    def told(self, cause: str = "no credit", person: str = "pigeon:9") -> list[tuple[str, str]]:
        """Return the alerts about a model failure, by chat."""
        return shown(self.alerts.report_model_failure(cause, person, "model"))

    def over(self, targets: str = "model") -> list[tuple[str, str]]:
        """Return the alerts after these models answered, by chat."""
        return shown(self.alerts.on_model_answered(targets))

    def looks(self, **platforms: str) -> list[tuple[str, str]]:
        """Return the alerts about platform problems; a platform in `away` is unreachable."""
        return shown(
            self.alerts.check_platforms(
                {name: PlatformStatus(cause, cause != "away") for name, cause in platforms.items()}
            )
        )

    def fails(
        self, cause: str = "it refused", targets: str = "model", **more: Any
    ) -> list[tuple[str, str]]:
        """Return the alerts about a failed turn, by chat."""
        done = TurnDone(
            ending=TurnEnding.FAILED,
            text="",
            cause=cause,
            **{"last_verdict": VerdictName.CUT, **more},
        )
        return shown(self.alerts.on_turn_failed(done, "pigeon:9", targets))

    def spends(self, day: str = "2026-11-18", **budgets: BudgetStatus) -> list[tuple[str, str]]:
        """Return the alerts about budgets with this status, by chat."""
        standings = [replace(each, day=day) for each in budgets.values()]
        return shown(self.alerts.check_budgets(standings, 3600))

    def finds(self, free: int) -> list[tuple[str, str]]:
        """Return the alerts for this much free space, with a limit of 1000 MB."""
        room = DiskSpace(free * 10**6, 1000 * 10**6, Path("/state"))
        return shown(self.alerts.check_disk(room))


def shown(changes: Sequence[Change]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for change in changes:
        assert isinstance(change, PutItem)
        where = change.item.address
        found.append((f"{where.platform}:{where.chat}", read_body(change.item).text))
    return found


def stands(used: int, *, held: int = 0, refused: bool = False, name: str = "all") -> BudgetStatus:
    """A budget of 1,000 tokens."""
    scope = BudgetScope(name, f"those of {name}", BudgetLimit(name, 1000))
    return BudgetStatus(scope, "", BudgetUsage(used + held, 0.0, held, 0.0), refused)


CHANGED_MANY = ToolChange("shop", tuple(f"t{number}" for number in range(12)))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            ToolChange("shop", ("pay",)),
            (
                "🛠 The MCP server shop has changed a tool: pay. I'll ask an admin before the next call "
                "of it. If you allow a call, you accept the change."
            ),
        ),
        (
            CHANGED_MANY,
            (
                "🛠 The MCP server shop has changed tools: t0, t1, t2, t3, t4, t5, t6, t7, t8, t9 and 2 "
                "more. I'll ask an admin before the next call of each of them. If you allow a call, you "
                "accept the change."
            ),
        ),
    ],
    ids=["one", "many"],
)
def test_admins_are_told_of_changed_tools(change: ToolChange, text: str) -> None:
    kit = AlertKit("pigeon:1", "raven:2")
    told = kit.alerts.report_tool_changes([change])
    assert shown(told.changes) == [("pigeon:1", text), ("raven:2", text)]
    assert told.reported == (change,)
    nothing = ToolAlerts((), ())
    assert kit.alerts.report_tool_changes([]) == nothing
    assert kit.alerts.report_tool_changes([change]) == nothing  # left for later
    assert len(kit.alerts.report_tool_changes([ToolChange("bank", ("pay",))]).changes) == 2
    kit.clock.at += 3600
    assert kit.alerts.report_tool_changes([change]).reported == (change,)


def test_a_change_that_no_admin_can_read_is_left_for_later() -> None:
    change = ToolChange("shop", ("pay",))
    assert AlertKit().alerts.report_tool_changes([change]) == ToolAlerts((), ())


WORDS = "🛠 The model can't be used: no credit. Conversations fail until this is fixed."


def test_every_reachable_admin_is_notified() -> None:
    kit = AlertKit("pigeon:1", "icq:2", "pigeon:3")
    assert kit.told() == [("pigeon:1", WORDS), ("pigeon:3", WORDS)]


@pytest.mark.parametrize(
    ("admins", "person"),
    [
        pytest.param((), "pigeon:9", id="no admins"),
        pytest.param(("pigeon:1",), "pigeon:1", id="the only admin sees the failure"),
        pytest.param(("icq:2",), "pigeon:9", id="no admin is reachable"),
    ],
)
def test_no_alert_is_returned_if_no_other_admin_is_reachable(
    admins: Sequence[str], person: str
) -> None:
    kit = AlertKit(*admins)
    assert kit.told(person=person) == []
    kit.admins.append("pigeon:7")
    assert (
        len(kit.told(person=person)) == 1
    )  # an alert without a receiver does not count as reported


def test_the_same_failure_is_not_reported_again_within_an_hour() -> None:
    kit = AlertKit("pigeon:1")
    assert len(kit.told()) == 1
    kit.clock.at += 3599
    assert kit.told() == []
    assert len(kit.told("key refused")) == 1
    kit.clock.at += 2
    assert len(kit.told()) == 1


def test_remembered_failures_are_bounded() -> None:
    kit = AlertKit("pigeon:1")
    for number in range(250):
        assert len(kit.told(f"cause {number}")) == 1
    assert len(kit.alerts._last_alerted) <= 100
    assert kit.told("cause 249") == []


# --- the end -----------------------------------------------------------------------------------

OVER = "✅ The model answers again. It could not be used for 2 minutes: no credit."


def test_admins_are_notified_when_the_model_answers_again() -> None:
    kit = AlertKit("pigeon:1", "pigeon:3")
    kit.told()
    kit.clock.at += 120
    assert kit.over("another model") == []
    assert kit.over() == [("pigeon:1", OVER), ("pigeon:3", OVER)]
    assert kit.over() == []


def test_the_end_of_an_unreported_failure_is_not_reported() -> None:
    kit = AlertKit()
    kit.told()
    kit.admins.append("pigeon:1")
    assert kit.over() == []


def test_several_causes_end_with_one_message() -> None:
    kit = AlertKit("pigeon:1")
    kit.told()
    kit.clock.at += 60
    kit.told("key refused")
    kit.clock.at += 60
    assert kit.over() == [("pigeon:1", OVER)]


def test_the_next_process_reports_the_end_whichever_model_answers() -> None:
    before, after = AlertKit("pigeon:1"), AlertKit("pigeon:1")
    before.told()
    after.alerts.restore(before.alerts.state)
    after.clock.at = before.clock.at + 120
    assert after.over("a new model") == [("pigeon:1", OVER)]
    assert after.alerts.state == AlertState()


# --- platforms ---------------------------------------------------------------------------------


def test_a_platform_problem_is_reported_to_reachable_admins_and_its_end_to_all() -> None:
    kit = AlertKit("pigeon:1", "raven:2", "icq:3")
    assert kit.looks(raven="away", pigeon="") == []
    kit.clock.at += 300
    began = "🛠 raven has had a problem for 5 minutes: away."
    assert kit.looks(raven="away", pigeon="") == [("pigeon:1", began)]
    kit.clock.at += 300
    assert kit.looks(raven="away", pigeon="") == []
    over = "✅ raven works again. The problem lasted 10 minutes: away."
    assert kit.looks(raven="", pigeon="") == [("pigeon:1", over), ("raven:2", over)]


def test_a_problem_of_a_working_platform_is_reported_on_that_platform_too() -> None:
    kit = AlertKit("raven:2")
    kit.looks(raven="Another program uses the token.")
    kit.clock.at += 300
    words = "🛠 raven has had a problem for 5 minutes: Another program uses the token."
    assert kit.looks(raven="Another program uses the token.") == [("raven:2", words)]
    assert kit.alerts.state.platforms.keys() == {"raven"}


# --- the disk ---------------------------------------------------------------------------------------

FULL = (
    "🛠 The disk is nearly full: 900 MB left in /state. Please free some space. On a full disk I "
    "can't store anything, and messages wait until I can."
)
ROOM_AGAIN = "✅ The disk has free space again: 1.2 GB. It was nearly full for 3 minutes."


def test_low_disk_space_is_reported_at_once_and_only_once() -> None:
    kit = AlertKit("pigeon:9", "raven:8")
    assert kit.finds(1000) == []
    assert kit.finds(900) == [("pigeon:9", FULL), ("raven:8", FULL)]
    assert kit.finds(100) == kit.finds(1050) == kit.finds(900) == []
    kit.clock.at += 180
    assert kit.finds(1200) == [("pigeon:9", ROOM_AGAIN), ("raven:8", ROOM_AGAIN)]
    assert kit.finds(1001) == []
    assert kit.finds(900) == [("pigeon:9", FULL), ("raven:8", FULL)]


def test_the_next_process_reports_free_disk_space() -> None:
    before, after = AlertKit("pigeon:9"), AlertKit("pigeon:9")
    before.finds(900)
    after.alerts.restore(before.alerts.state)
    after.clock.at += 180
    assert after.finds(800) == []
    assert after.finds(1200) == [("pigeon:9", ROOM_AGAIN)]
    assert after.alerts.state == AlertState()


def test_a_damaged_database_is_reported_once() -> None:
    kit = AlertKit("pigeon:1")
    assert kit.alerts.check_store("") == ()
    ((where, text),) = shown(kit.alerts.check_store("The database x cannot be used"))
    assert where == "pigeon:1"
    assert text.startswith("🛠 The database x cannot be used. Some conversations fail")
    assert kit.alerts.check_store("The database x cannot be used") == ()


# --- safe mode ------------------------------------------------------------------------------------


def test_start_and_end_of_safe_mode_are_reported() -> None:
    kit = AlertKit("pigeon:9", "raven:8")
    said = shown(kit.alerts.check_safe_mode(3))
    assert [who for who, _ in said] == ["pigeon:9", "raven:8"]
    assert "I crashed 3 times in a row" in said[0][1]
    assert "!restart" in said[0][1]
    assert kit.alerts.check_safe_mode(3) == ()

    later = AlertKit("pigeon:9")
    later.alerts.restore(kit.alerts.state)
    assert later.alerts.check_safe_mode(4) == ()  # another crash in safe mode
    over = shown(later.alerts.check_safe_mode(0))
    assert over == [("pigeon:9", "✅ Safe mode is over. Tools are available again.")]
    assert later.alerts.check_safe_mode(0) == ()
    assert later.alerts.state == AlertState()


def test_a_failing_service_is_reported_after_five_minutes() -> None:
    kit = AlertKit("pigeon:1")
    assert kit.fails() == []
    kit.clock.at += 299
    assert kit.fails() == []
    assert kit.fails(targets="another") == []
    kit.clock.at += 1
    (told,) = kit.fails()
    assert told == ("pigeon:1", WORDS.replace("no credit", "it refused"))
    assert kit.fails(targets="another") == []
    assert kit.over()[0][1].startswith("✅ The model answers again.")


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param({"last_verdict": VerdictName.COMPLETE}, id="all steps used"),
        pytest.param({"last_verdict": VerdictName.REFUSED, "notice": "N9"}, id="declined"),
        pytest.param({"over_budget": True}, id="over budget"),
    ],
)
def test_a_failed_turn_whose_service_answered_is_not_reported(
    ending: dict[str, Any],
) -> None:
    kit = AlertKit("pigeon:1")
    for _ in range(3):
        assert kit.fails(**ending) == []
        kit.clock.at += 300


def test_an_answer_restarts_the_five_minutes() -> None:
    kit = AlertKit("pigeon:1")
    assert kit.fails() == []
    kit.clock.at += 200
    assert kit.over() == []
    kit.clock.at += 200
    assert kit.fails() == []


def test_a_failure_that_only_an_admin_can_fix_is_reported_with_the_first_turn() -> None:
    kit = AlertKit("pigeon:1")
    assert kit.fails("no credit", tell_operator=True) == [("pigeon:1", WORDS)]


def test_remembered_failing_services_are_bounded() -> None:
    kit = AlertKit("pigeon:1")
    for number in range(300):
        kit.fails(targets=f"model {number}")
    assert len(kit.alerts._failing_since) <= 101


NEAR = (
    "🛠 80 % of the daily limit of 1,000 tokens for those of all is used: 800 tokens. When it is "
    "used up, I send no more requests to the model there until the next day."
)
USED_UP = (
    "⛔ The daily limit of 1,000 tokens for those of all is used up. For the next 1 h I refuse "
    "messages there and tell their senders why. You can change the limit under [limits] in the "
    "configuration."
)


def test_a_budget_is_reported_at_most_twice_a_day() -> None:
    kit = AlertKit("pigeon:1")
    assert kit.spends(all=stands(799, held=200)) == []  # a reservation may be released
    assert kit.spends(all=stands(800)) == [("pigeon:1", NEAR)]
    assert kit.spends(all=stands(999)) == []
    assert kit.spends(all=stands(999, refused=True)) == [("pigeon:1", USED_UP)]
    assert kit.spends(all=stands(1000, refused=True)) == []
    assert kit.spends(all=stands(801)) == []
    next_day = "2026-11-19"
    assert kit.spends(next_day, all=stands(0)) == []
    assert kit.spends(next_day, all=stands(1000)) == [("pigeon:1", USED_UP)]
    assert kit.spends(next_day, all=stands(900)) == []


def test_each_budget_is_reported_separately_and_not_again_by_the_next_process() -> None:
    kit = AlertKit("pigeon:1")
    assert len(kit.spends(all=stands(800), hall=stands(1000, name="hall"))) == 2
    book = msgspec.json.decode(msgspec.json.encode(kit.alerts.state), type=AlertState)
    later = AlertKit("pigeon:1")
    later.alerts.restore(book)
    assert later.spends(all=stands(900), hall=stands(1000, name="hall")) == []
    assert later.spends(all=stands(900, refused=True)) == [("pigeon:1", USED_UP)]


def test_the_admins_are_told_once_that_a_server_needs_a_login() -> None:
    kit = AlertKit("pigeon:1")
    (alert,) = shown(kit.alerts.check_logins({"wiki": True, "post": False}))
    assert alert == (
        "pigeon:1",
        "🔑 The MCP server wiki needs a login. !mcp login wiki sends you the link.",
    )
    assert kit.alerts.check_logins({"wiki": True}) == ()
    state = kit.alerts.state
    again = AlertKit("pigeon:1")
    again.alerts.restore(state)
    assert again.alerts.check_logins({}) == ()  # not known yet
    assert again.alerts.check_logins({"wiki": True}) == ()
    assert again.alerts.check_logins({"wiki": False}) == ()
    assert len(again.alerts.check_logins({"wiki": True})) == 1


def test_a_needed_login_is_reported_as_soon_as_there_is_an_admin() -> None:
    kit = AlertKit()
    assert kit.alerts.check_logins({"wiki": True}) == ()
    kit.admins.append("pigeon:1")
    assert len(kit.alerts.check_logins({"wiki": True})) == 1


def test_the_admins_see_changed_instructions_and_how_to_accept_them() -> None:
    kit = AlertKit("pigeon:1")
    change = InstructionsChange("wiki (pigeon:7)", "was: “a”\nnow: “[b](http://c)”")
    changes, reported = kit.alerts.report_instructions([change])
    ((_, text),) = shown(changes)
    assert "!mcp accept wiki." in text
    assert text.endswith("was: “a”\nnow: “&#91;b](http://c)”")
    assert reported == ("wiki (pigeon:7)",)
    assert AlertKit().alerts.report_instructions([change]) == ((), ())
