from pathlib import Path

import pytest

from gateway.errors import CannotStart
from gateway.setup.asking import Ended, Question
from gateway.setup.start import How, ask_how, no_service
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
