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
def test_yes_and_no_may_be_short(typed: str, default: bool, meant: bool) -> None:
    assert confirm(Person(typed), "x", "Really", default=default) is meant


def test_what_is_neither_is_asked_again() -> None:
    person = Person("perhaps", "y")
    assert confirm(person, "x", "Really", default=False)
    assert person.refused == ["Please answer yes or no."]


@pytest.mark.parametrize(
    ("typed", "meant"), [("2", "plum"), ("pear", "pear"), ("fig", "fig"), (" 1 ", "pear")]
)
def test_one_of_several_is_chosen_by_number_or_name(typed: str, meant: str) -> None:
    person = Person(typed)
    assert (
        choose(person, SetupQuestion(key="x", prompt="Which"), ["pear", "plum"], unlisted=["fig"])
        == meant
    )
    assert person.said == ["   1  pear", "   2  plum"]


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("3", "Please give a number from 1 to 2, or a name."),
        ("0", "Please give a number from 1 to 2, or a name."),
        ("plumm", "Please give a number from 1 to 2, or a name (did you mean plum?)."),
    ],
)
def test_what_cannot_be_chosen_is_asked_again(typed: str, told: str) -> None:
    person = Person(typed, "1")
    assert choose(person, SetupQuestion(key="x", prompt="Which"), ["pear", "plum"]) == "pear"
    assert person.refused == [told]


@pytest.mark.parametrize(
    ("typed", "amount"),
    [("5", 5.0), ("$2.50", 2.5), ("2,5 $", 2.5), ("0", 0.0), ("", None), ("  ", None)],
)
def test_amounts_are_read_as_people_write_them(typed: str, amount: float | None) -> None:
    assert parse_dollars(typed) == amount


@pytest.mark.parametrize("typed", ["much", "-1", "inf", "nan", "1.2.3"])
def test_what_is_no_amount_is_told(typed: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
        parse_dollars(typed)
