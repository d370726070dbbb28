import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.providers.demo import Demo
from agent.providers.registry import Target
from agent.settings import TargetSettings
from gateway.turns.model_names import (
    MOST_LISTED,
    Named,
    Several,
    Unknown,
    brief,
    meant,
    overview,
    quoted,
)

KNOWN = ("gpt-5.5", "gpt-5.5-mini", "claude-opus-5", "claude-sonnet-5", "vendor/Tiny")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("gpt-5.5", Named("gpt-5.5"), id="whole name that is also a part"),
        pytest.param("GPT-5.5", Named("gpt-5.5"), id="whole name in other letters"),
        pytest.param("MINI", Named("gpt-5.5-mini"), id="part of one"),
        pytest.param("tiny", Named("vendor/Tiny"), id="part behind the vendor"),
        pytest.param("claude opus", Named("claude-opus-5"), id="two parts of one"),
        pytest.param("gpt", Several(("gpt-5.5", "gpt-5.5-mini")), id="part of two"),
        pytest.param("claude-opuss", Unknown(("claude-opus-5",)), id="misspelt"),
        pytest.param("tinny", Unknown(("vendor/Tiny",)), id="misspelt behind the vendor"),
        pytest.param("claud", Several(("claude-opus-5", "claude-sonnet-5")), id="a beginning"),
        pytest.param(
            "clade", Unknown(("claude-opus-5", "claude-sonnet-5")), id="misspelt beginning of two"
        ),
        pytest.param("zzzzz", Unknown(), id="like nothing"),
        pytest.param("", Unknown(), id="nothing"),
    ],
)
def test_the_model_that_is_meant_is_found(text: str, expected: object) -> None:
    assert meant(text, KNOWN) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("brand-new", Named("brand-new"), id="any word is a name"),
        pytest.param("opus", Named("claude-opus-5"), id="a part of a known one still is one"),
        pytest.param("gpt", Several(("gpt-5.5", "gpt-5.5-mini")), id="several are still asked for"),
        pytest.param("brand new", Unknown(), id="a name has no spaces"),
        pytest.param("x" * 201, Unknown(), id="nor is it that long"),
    ],
)
def test_a_service_that_lists_nothing_may_have_models_of_any_name(
    text: str, expected: object
) -> None:
    assert meant(text, KNOWN, others=True) == expected


@given(st.text(), st.lists(st.text(min_size=1), max_size=6), st.booleans())
def test_only_what_is_known_is_chosen_and_every_known_name_can_be(
    text: str, known: list[str], others: bool
) -> None:
    found = meant(text, known, others=others)
    match found:
        case Named(name):
            assert name in known or (others and name == text.strip())
        case Several(names) | Unknown(names):
            assert set(names) <= set(known)
    for name in known:
        assert meant(name, known, others=others) == Named(name)


def test_a_long_list_says_how_many_it_leaves_out() -> None:
    names = [f"m{number}" for number in range(MOST_LISTED + 2)]
    assert quoted(names[:2]) == "`m0`, `m1`"
    assert quoted(names[:-2]).endswith(f"`m{MOST_LISTED - 1}`")
    assert quoted(names).endswith(f"`m{MOST_LISTED - 1}` and 2 more")


class Twin(Demo):
    """Another service that has the same models."""

    name = "twin"


def target(name: str) -> Target:
    return Target(Demo(), name, TargetSettings())


def test_the_overview_names_who_answers_who_takes_over_and_the_others_once() -> None:
    text = overview((target("a"), target("b")), ("a", "b", "z"), ("C", "b", "d", "a"), chosen=True)
    assert text.splitlines() == [
        "🤖 `a` (demo) answers here, as chosen in this chat.",
        "When it does not answer: `b` (demo).",
        "Others: `z`, `C`, `d`.",
    ]


def test_a_name_that_two_models_share_is_listed_as_it_can_be_chosen() -> None:
    text = overview((target("a"), target("a")), ("a", "demo/a"), None, chosen=False)
    assert "Others: `demo/a`." in text.splitlines()


def test_models_are_named_shortly_unless_that_would_be_the_same() -> None:
    first, other, twin = target("a"), target("b"), Target(Twin(), "a", TargetSettings())
    assert brief((first, other)) == {"demo/a": "a", "demo/b": "b"}
    assert brief((first, other, twin)) == {"demo/a": "demo/a", "demo/b": "b", "twin/a": "twin/a"}


def test_the_overview_says_when_the_service_told_nothing() -> None:
    text = overview((target("a"),), ("a",), None, chosen=False)
    assert text.splitlines() == [
        "🤖 `a` (demo) answers here, as configured.",
        "The service does not say which models it has; any name can be tried.",
    ]
