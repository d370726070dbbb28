"""Requests of MCP servers for input, as questions to a person."""

from typing import Any

import pytest
from mcp_types import ElicitRequestFormParams, ElicitRequestURLParams

from agent.tools.mcp.elicitation import answer_elicitation
from agent.tools.questions import PersonAnswer, PersonQuestion


class Person:
    """A person who gives prepared answers."""

    def __init__(self, *texts: str) -> None:
        self._texts = list(texts)
        self.questions: list[PersonQuestion] = []

    async def ask(self, question: PersonQuestion) -> PersonAnswer | None:
        self.questions.append(question)
        text = self._texts.pop(0)
        return PersonAnswer(accepted=text != "no", text=text)


async def asked(person: Person, required: tuple[str, ...] = (), **properties: Any) -> Any:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    params = ElicitRequestFormParams(message="Please.", requested_schema=schema)
    result = await answer_elicitation("shop", params, person.ask)
    return result.content if result.action == "accept" else result.action


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, " blue ", "blue"),
        ({"type": "integer"}, "3", 3),
        ({"type": "number"}, "2,5", 2.5),
        ({"type": "boolean"}, "yes", True),
        ({"type": "string", "enum": ["s", "l"]}, "L", "l"),
        ({"type": "string", "enum": ["s", "l"], "enumNames": ["Small", "Large"]}, "Large", "l"),
        ({"type": "string", "oneOf": [{"const": "s", "title": "Small"}]}, "small", "s"),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}, "a, b", ["a", "b"]),
        (
            {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A!"}]}},
            "A!",
            ["a"],
        ),
    ],
)
async def test_an_answer_becomes_the_value_of_its_field(
    schema: dict[str, Any], text: str, value: object
) -> None:
    assert await asked(Person(text), ("x",), x=schema) == {"x": value}


async def test_an_answer_that_does_not_fit_is_asked_for_again_a_few_times() -> None:
    person = Person("many", "11", "2")
    assert await asked(person, ("n",), n={"type": "integer", "maximum": 10}) == {"n": 2}
    assert [each.text.splitlines()[0] for each in person.questions] == [
        "Please.",
        "(“many” is not a number)",
        "(n: 11 is greater than the maximum of 10)",
    ]
    assert await asked(Person("a", "b", "c"), ("n",), n={"type": "integer"}) == "cancel"


async def test_a_field_that_is_skipped_is_empty_or_has_its_default() -> None:
    person = Person("Skip", "Skip", "skip", "Skip")
    found = await asked(
        person,
        ("size",),
        size={"type": "string", "enum": ["s", "l"], "default": "l"},
        names={"type": "array", "items": {"enum": ["a", "b"]}, "default": ["a"]},
        note={"type": "string"},
        gift={"type": "boolean", "default": False},
    )
    assert found == {"size": "l", "names": ["a"], "gift": False}
    assert person.questions[0].options == ("s", "l", "Skip")
    assert "Suggested: a\nOne or more of: a, b\n“Skip” takes what is suggested." in (
        person.questions[1].text
    )


async def test_no_is_a_decline_and_the_other_fields_are_not_asked() -> None:
    person = Person("Ann", "no")
    assert await asked(
        person, a={"type": "string"}, b={"type": "string"}, c={"type": "string"}
    ) == ("decline")
    assert len(person.questions) == 2


@pytest.mark.parametrize(
    "properties",
    [
        {"a": {"type": "object"}},
        {"a": {"type": ["string", "null"]}},
        {"a": 5},
        {f"f{number}": {"type": "string"} for number in range(17)},
    ],
    ids=["nested", "several types", "no schema", "too many"],
)
async def test_a_form_that_cannot_be_asked_is_declined(properties: dict[str, Any]) -> None:
    person = Person()
    assert await asked(person, **properties) == "decline"
    assert person.questions == []


async def test_an_address_and_a_form_without_fields_are_confirmed() -> None:
    person = Person("", "no")
    url = ElicitRequestURLParams(message="Pay.", url="https://pay.example/1", elicitation_id="e")
    assert (await answer_elicitation("shop", url, person.ask)).action == "accept"
    assert person.questions[0].text == "Pay.\n\nOpen this address:\nhttps://pay.example/1"
    assert await asked(person) == "decline"


async def test_invisible_characters_and_long_texts_are_removed() -> None:
    person = Person("no")
    schema = {"type": "string", "title": "a\u202eb", "description": "x" * 5_000}
    assert await asked(person, x=schema) == "decline"
    assert "ab: x" in person.questions[0].text
    assert len(person.questions[0].text) < 1_200
