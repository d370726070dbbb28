from pathlib import Path

import pytest

from gateway.errors import CannotStart
from gateway.operate.setup.asking import InputEnded, SetupQuestion
from gateway.operate.setup.start import StartMode, ask_start_mode, no_service_reason, start_gateway
from tests.unit.gateway.setup.setup_kit import Person

NO_SYSTEMD = "this machine does not run systemd, so no service can be installed"


class Gone(Person):
    def ask(self, question: SetupQuestion) -> str:
        raise InputEnded


def test_a_service_needs_systemd(tmp_path: Path) -> None:
    assert no_service_reason(tmp_path) == ""
    assert no_service_reason(tmp_path / "systemd") == NO_SYSTEMD


@pytest.mark.parametrize(
    ("answers", "why_not", "wanted", "alone", "how"),
    [
        pytest.param([""], "", None, False, StartMode.SERVICE, id="Enter installs it"),
        pytest.param(
            ["no", ""], "", None, False, StartMode.FOREGROUND, id="start in the foreground"
        ),
        pytest.param(["no", "no"], "", None, False, StartMode.LATER, id="neither"),
        pytest.param([""], NO_SYSTEMD, None, False, StartMode.FOREGROUND, id="without systemd"),
        pytest.param([""], "", False, False, StartMode.FOREGROUND, id="a flag says no service"),
        pytest.param([], "", True, False, StartMode.SERVICE, id="a flag says a service"),
        pytest.param([], "", True, True, StartMode.SERVICE, id="a script says a service"),
        pytest.param([], "", None, True, StartMode.LATER, id="a script says nothing"),
    ],
)
def test_the_start_mode_follows_flags_and_answers(
    answers: list[str], why_not: str, wanted: bool | None, alone: bool, how: StartMode
) -> None:
    assert ask_start_mode(Person(*answers), why_not, wanted=wanted, non_interactive=alone) is how


def test_ended_input_starts_nothing() -> None:
    assert ask_start_mode(Gone(), "", wanted=None, non_interactive=False) is StartMode.LATER


def test_an_impossible_service_is_an_error() -> None:
    with pytest.raises(CannotStart, match=r"^This machine does not run systemd.*`holdfast run`"):
        ask_start_mode(Person(), NO_SYSTEMD, wanted=True, non_interactive=True)


class Steps:
    """Actions that are only recorded."""

    def __init__(self, *, runs: bool = False, serves: bool = True) -> None:
        self.done: list[str] = []
        self._runs = runs
        self._serves = serves

    def is_running(self) -> bool:
        return self._runs

    def install_service(self) -> None:
        self.done.append("installed")

    def restart_service(self) -> bool:
        self.done.append("restarted" if self._serves else "no service")
        return self._serves

    def run_gateway(self) -> None:
        self.done.append("ran")

    def wait_for_owner(self) -> None:
        self.done.append("greeted")

    def run_command(self) -> str:
        return "holdfast run"


AS_BEFORE = "Holdfast keeps using the previous configuration until it is restarted."


@pytest.mark.parametrize(
    ("how", "runs", "changed", "answers", "done", "said"),
    [
        pytest.param(
            StartMode.SERVICE, False, True, [], ["installed", "greeted"], [], id="a service"
        ),
        pytest.param(StartMode.FOREGROUND, False, True, [], ["ran"], [], id="here"),
        pytest.param(
            StartMode.LATER, False, True, [], [], ["Start Holdfast with: holdfast run"], id="later"
        ),
        pytest.param(StartMode.LATER, True, False, [], ["greeted"], [], id="runs as it is"),
        pytest.param(
            StartMode.LATER,
            True,
            True,
            [""],
            ["restarted", "greeted"],
            [],
            id="runs and is restarted",
        ),
        pytest.param(
            StartMode.LATER,
            True,
            True,
            ["no"],
            [],
            [AS_BEFORE],
            id="running with changes, not restarted",
        ),
    ],
)
def test_the_chosen_start_mode_is_carried_out(
    how: StartMode, runs: bool, changed: bool, answers: list[str], done: list[str], said: list[str]
) -> None:
    person, machine = Person(*answers), Steps(runs=runs)
    start_gateway(person, machine, how, "", changed=changed, non_interactive=False)
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
def test_a_gateway_that_cannot_be_restarted_keeps_running(
    person: Person, why_not: str, alone: bool, serves: bool
) -> None:
    machine = Steps(runs=True, serves=serves)
    start_gateway(person, machine, StartMode.LATER, why_not, changed=True, non_interactive=alone)
    assert person.said == [AS_BEFORE]
    assert "greeted" not in machine.done
