import pytest

from gateway.operate.setup.asking import SetupQuestion, choose, confirm, parse_dollars
from tests.unit.gateway.setup.setup_kit import Person


@pytest.mark.parametrize(
    ("typed", "default", "meant"),
    [
        ("y", False, True),
        ("YES", False, True),
        ("n", True, False),
        ("no", True, False),
        ("", True, True),
        ("", False, False),
    ],
)
def test_yes_and_no_can_be_abbreviated(typed: str, default: bool, meant: bool) -> None:
    assert confirm(Person(typed), "x", "Really", default=default) is meant


def test_an_answer_other_than_yes_or_no_is_asked_again() -> None:
    person = Person("perhaps", "http://10.0.0.5:8000/v1", "127.0.0.1:11434", "y")
    assert confirm(person, "x", "Really", default=False)
    assert person.refused == ["Please answer yes or no."] * 3


@pytest.mark.parametrize(
    ("typed", "meant"), [("2", "plum"), ("pear", "pear"), ("fig", "fig"), (" 1 ", "pear")]
)
def test_an_option_is_chosen_by_number_or_name(typed: str, meant: str) -> None:
    person = Person(typed)
    assert (
        choose(person, SetupQuestion(key="x", prompt="Which"), ["pear", "plum"], unlisted=["fig"])
        == meant
    )
    assert person.said == ["   1  pear", "   2  plum"]


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("3", "Please enter a number from 1 to 2, or a name."),
        ("0", "Please enter a number from 1 to 2, or a name."),
        ("plumm", "Please enter a number from 1 to 2, or a name (did you mean plum?)."),
    ],
)
def test_an_invalid_option_is_asked_again(typed: str, told: str) -> None:
    person = Person(typed, "1")
    assert choose(person, SetupQuestion(key="x", prompt="Which"), ["pear", "plum"]) == "pear"
    assert person.refused == [told]


@pytest.mark.parametrize(
    ("typed", "amount"),
    [("5", 5.0), ("$2.50", 2.5), ("2,5 $", 2.5), ("0", 0.0), ("", None), ("  ", None)],
)
def test_amounts_are_parsed_in_common_notations(typed: str, amount: float | None) -> None:
    assert parse_dollars(typed) == amount


@pytest.mark.parametrize("typed", ["much", "-1", "inf", "nan", "1.2.3"])
def test_an_invalid_amount_is_rejected(typed: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the message does not matter
        parse_dollars(typed)
