import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.providers.demo import DemoProvider
from agent.providers.registry import Target
from agent.settings import TargetSettings
from gateway.turns.model_names import (
    MAX_LISTED,
    ModelAmbiguous,
    ModelFound,
    ModelUnknown,
    describe_models,
    find_model,
    quote_names,
    short_names,
)

KNOWN = ("gpt-5.5", "gpt-5.5-mini", "claude-opus-5", "claude-sonnet-5", "vendor/Tiny")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("gpt-5.5", ModelFound("gpt-5.5"), id="whole name that is also a part"),
        pytest.param("GPT-5.5", ModelFound("gpt-5.5"), id="whole name in other case"),
        pytest.param("MINI", ModelFound("gpt-5.5-mini"), id="part of one"),
        pytest.param("tiny", ModelFound("vendor/Tiny"), id="part after the vendor"),
        pytest.param("claude opus", ModelFound("claude-opus-5"), id="two parts of one"),
        pytest.param("gpt", ModelAmbiguous(("gpt-5.5", "gpt-5.5-mini")), id="part of two"),
        pytest.param("claude-opuss", ModelUnknown(("claude-opus-5",)), id="misspelt"),
        pytest.param("tinny", ModelUnknown(("vendor/Tiny",)), id="misspelt after the vendor"),
        pytest.param("claud", ModelAmbiguous(("claude-opus-5", "claude-sonnet-5")), id="a prefix"),
        pytest.param(
            "clade",
            ModelUnknown(("claude-opus-5", "claude-sonnet-5")),
            id="misspelt prefix of two",
        ),
        pytest.param("zzzzz", ModelUnknown(), id="no similar name"),
        pytest.param("", ModelUnknown(), id="empty"),
    ],
)
def test_a_model_is_found_by_name_or_unique_parts(text: str, expected: object) -> None:
    assert find_model(text, KNOWN) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("brand-new", ModelFound("brand-new"), id="any word is a name"),
        pytest.param("opus", ModelFound("claude-opus-5"), id="a part of a known name"),
        pytest.param(
            "gpt", ModelAmbiguous(("gpt-5.5", "gpt-5.5-mini")), id="a part of several known names"
        ),
        pytest.param("brand new", ModelUnknown(), id="a name has no spaces"),
        pytest.param("x" * 201, ModelUnknown(), id="a name is not that long"),
    ],
)
def test_any_name_is_accepted_if_the_service_has_no_list(text: str, expected: object) -> None:
    assert find_model(text, KNOWN, allow_unlisted=True) == expected


@given(st.text(), st.lists(st.text(min_size=1), max_size=6), st.booleans())
def test_exactly_the_known_names_can_be_chosen(text: str, known: list[str], others: bool) -> None:
    found = find_model(text, known, allow_unlisted=others)
    match found:
        case ModelFound(name):
            assert name in known or (others and name == text.strip())
        case ModelAmbiguous(names) | ModelUnknown(names):
            assert set(names) <= set(known)
    for name in known:
        assert find_model(name, known, allow_unlisted=others) == ModelFound(name)


def test_a_long_list_says_how_many_it_leaves_out() -> None:
    names = [f"m{number}" for number in range(MAX_LISTED + 2)]
    assert quote_names(names[:2]) == "`m0`, `m1`"
    assert quote_names(names[:-2]).endswith(f"`m{MAX_LISTED - 1}`")
    assert quote_names(names).endswith(f"`m{MAX_LISTED - 1}` and 2 more")


class Twin(DemoProvider):
    """Another service with the same models."""

    name = "twin"


def target(name: str) -> Target:
    return Target(DemoProvider(), name, TargetSettings())


def test_the_overview_lists_the_model_its_fallbacks_and_each_other_model_once() -> None:
    text = describe_models(
        (target("a"), target("b")), ("a", "b", "z"), ("C", "b", "d", "a"), chosen=True
    )
    assert text.splitlines() == [
        "🤖 The model here is `a` (demo), chosen in this chat.",
        "Fallback: `b` (demo).",
        "Also available: `z`, `C`, `d`.",
    ]


def test_a_shared_model_name_is_listed_with_its_provider() -> None:
    text = describe_models((target("a"), target("a")), ("a", "demo/a"), None, chosen=False)
    assert "Also available: `demo/a`." in text.splitlines()


def test_short_names_are_used_unless_two_models_share_one() -> None:
    first, other, twin = target("a"), target("b"), Target(Twin(), "a", TargetSettings())
    assert short_names((first, other)) == {"demo/a": "a", "demo/b": "b"}
    assert short_names((first, other, twin)) == {
        "demo/a": "demo/a",
        "demo/b": "b",
        "twin/a": "twin/a",
    }


def test_the_overview_mentions_a_service_without_a_list() -> None:
    text = describe_models((target("a"),), ("a",), None, chosen=False)
    assert text.splitlines() == [
        "🤖 The model here is `a` (demo), the default.",
        "The model service doesn't list its models, but you can try any name.",
    ]
