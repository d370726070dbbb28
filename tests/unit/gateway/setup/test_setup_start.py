from pathlib import Path

import pytest

from gateway.errors import CannotStart
from gateway.operate.setup.asking import Ended, Question
from gateway.operate.setup.start import How, ask_how, begin, no_service
from tests.unit.gateway.setup.setup_kit import Person

NO_SYSTEMD = "systemd does not run this machine, so there is no service to install"


class Gone(Person):
    def ask(self, question: Question) -> str:
        raise Ended


def test_a_service_needs_systemd(tmp_path: Path) -> None:
    assert no_service(tmp_path) == ""
    assert no_service(tmp_path / "systemd") == NO_SYSTEMD


@pytest.mark.parametrize(
    ("answers", "why_not", "wanted", "alone", "how"),
    [
        pytest.param([""], "", None, False, How.SERVICE, id="Enter installs it"),
        pytest.param(["no", ""], "", None, False, How.HERE, id="or starts it here"),
        pytest.param(["no", "no"], "", None, False, How.LATER, id="or neither"),
        pytest.param([""], NO_SYSTEMD, None, False, How.HERE, id="without systemd"),
        pytest.param([""], "", False, False, How.HERE, id="a flag says no service"),
        pytest.param([], "", True, False, How.SERVICE, id="a flag says a service"),
        pytest.param([], "", True, True, How.SERVICE, id="a script says a service"),
        pytest.param([], "", None, True, How.LATER, id="a script says nothing"),
    ],
)
def test_how_it_is_started(
    answers: list[str], why_not: str, wanted: bool | None, alone: bool, how: How
) -> None:
    assert ask_how(Person(*answers), why_not, wanted=wanted, alone=alone) is how


def test_an_input_that_has_ended_starts_nothing() -> None:
    assert ask_how(Gone(), "", wanted=None, alone=False) is How.LATER


def test_a_service_that_is_wanted_and_cannot_be_is_an_error() -> None:
    with pytest.raises(CannotStart, match=r"^Systemd does not run this machine.*`holdfast run`"):
        ask_how(Person(), NO_SYSTEMD, wanted=True, alone=True)


class Steps:
    """A machine that notes what is done."""

    def __init__(self, *, runs: bool = False, serves: bool = True) -> None:
        self.done: list[str] = []
        self._runs = runs
        self._serves = serves

    def running(self) -> bool:
        return self._runs

    def install(self) -> None:
        self.done.append("installed")

    def restart(self) -> bool:
        self.done.append("restarted" if self._serves else "no service")
        return self._serves

    def run(self) -> None:
        self.done.append("ran")

    def greet_owner(self) -> None:
        self.done.append("greeted")

    def how_to_run(self) -> str:
        return "holdfast run"


AS_BEFORE = "Holdfast runs with what was configured before, until it is restarted."


@pytest.mark.parametrize(
    ("how", "runs", "changed", "answers", "done", "said"),
    [
        pytest.param(How.SERVICE, False, True, [], ["installed", "greeted"], [], id="a service"),
        pytest.param(How.HERE, False, True, [], ["ran"], [], id="here"),
        pytest.param(How.LATER, False, True, [], [], ["Start it: holdfast run"], id="later"),
        pytest.param(How.LATER, True, False, [], ["greeted"], [], id="runs as it is"),
        pytest.param(
            How.LATER, True, True, [""], ["restarted", "greeted"], [], id="runs and is restarted"
        ),
        pytest.param(How.LATER, True, True, ["no"], [], [AS_BEFORE], id="runs on as before"),
    ],
)
def test_what_was_wished_for_is_done(
    how: How, runs: bool, changed: bool, answers: list[str], done: list[str], said: list[str]
) -> None:
    person, machine = Person(*answers), Steps(runs=runs)
    begin(person, machine, how, "", changed=changed, alone=False)
    assert (machine.done, person.said) == (done, said)


@pytest.mark.parametrize(
    ("person", "why_not", "alone", "serves"),
    [
        pytest.param(Person(), "", True, True, id="nobody is there"),
        pytest.param(Person(), NO_SYSTEMD, False, True, id="no systemd"),
        pytest.param(Gone(), "", False, True, id="the input has ended"),
        pytest.param(Person("yes"), "", False, False, id="it is no service that runs"),
    ],
)
def test_what_cannot_be_restarted_runs_on_as_before(
    person: Person, why_not: str, alone: bool, serves: bool
) -> None:
    machine = Steps(runs=True, serves=serves)
    begin(person, machine, How.LATER, why_not, changed=True, alone=alone)
    assert person.said == [AS_BEFORE]
    assert "greeted" not in machine.done
