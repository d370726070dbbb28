import pytest

from agent.settings import TargetSettings
from gateway.operate.setup.asking import AnswerError
from gateway.operate.setup.budget import DAILY_LIMIT_KEY, ask_budget, has_price, is_supported
from gateway.operate.setup.flags import FlagPrompter
from gateway.settings import KeyPath
from tests.unit.gateway.setup.setup_kit import Person, draft_of

MODEL = TargetSettings(provider="openai", name="m")
FIVE = "[limits.all]\nusd_per_day = 5\n"


def priced(_: TargetSettings) -> bool:
    return True


def unpriced(_: TargetSettings) -> bool:
    return False


@pytest.mark.parametrize(
    ("path", "known"),
    [
        pytest.param(("http", "port"), True, id="a key"),
        pytest.param(("model", "timeouts", "connect"), True, id="a key of an inner table"),
        pytest.param(("http", "prot"), False, id="no key"),
        pytest.param(("http", "port", "x"), False, id="below a value"),
        pytest.param(("bus", "url"), False, id="a key that has no effect yet"),
    ],
)
def test_only_supported_limits_are_asked_for(path: KeyPath, known: bool) -> None:
    assert is_supported(path) is known


@pytest.mark.parametrize(
    ("before", "typed", "after"),
    [
        pytest.param(None, "", None, id="no limit"),
        pytest.param(None, "$5", 5, id="a new one"),
        pytest.param(None, "2,50", 2.5, id="with cents"),
        pytest.param(FIVE, "", 5, id="kept"),
        pytest.param(FIVE, "none", None, id="taken away"),
        pytest.param(FIVE, "7", 7, id="changed"),
    ],
)
def test_a_daily_limit_is_set_kept_or_removed(
    before: str | None, typed: str, after: float | None
) -> None:
    draft = draft_of(before)
    person = Person(typed)
    ask_budget(person, draft, MODEL, priced)
    assert draft.get(DAILY_LIMIT_KEY) == after
    assert person.asked[0].shown_default == ("no limit" if before is None else "5")


def test_an_invalid_amount_is_asked_again() -> None:
    draft, person = draft_of(), Person("much", "5")
    ask_budget(person, draft, MODEL, priced)
    assert draft.get(DAILY_LIMIT_KEY) == 5
    assert person.refused[0].startswith("This is not an amount")


def test_a_limit_for_a_model_without_a_known_price_asks_for_it() -> None:
    draft, person = draft_of(), Person("5", "cheap", "0.25", "0.25 / 2")
    ask_budget(person, draft, MODEL, unpriced)
    assert draft.get(DAILY_LIMIT_KEY) == 5
    assert draft.get(("model", "price")) == {"input": 0.25, "output": 2}
    assert person.refused == ["Please enter two amounts, such as 0.25 2."] * 2


def test_without_a_price_no_limit_is_set() -> None:
    draft = draft_of()
    ask_budget(Person("5", ""), draft, MODEL, unpriced)
    assert draft.get(DAILY_LIMIT_KEY) is None


def test_a_script_without_the_price_gets_an_error() -> None:
    with pytest.raises(AnswerError, match=r"needs the price of m.*holdfast\[prices\]"):
        ask_budget(FlagPrompter({"usd": "5"}, print), draft_of(), MODEL, unpriced)


def test_a_model_without_a_name_needs_no_price_yet() -> None:
    assert has_price(TargetSettings(provider="openai"))
