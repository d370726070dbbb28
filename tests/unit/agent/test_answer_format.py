"""Answers in a format that the client asked for."""

from typing import Any

import pytest

from agent.answer_format import check_answer
from agent.events import TextDelta, TurnDone, TurnEnding
from agent.json_schemas import find_schema_error
from agent.model.answer_options import AnswerOptions
from agent.model.contract import AnswerFormat
from tests.fakes.model_script import Script, calls, ok
from tests.unit.agent.turn_kit import Play, Stage

pytestmark = pytest.mark.quick

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
}
WANTED = AnswerFormat(schema=SCHEMA, name="state", strict=True)
GOOD, BAD = '{"ok": true}', '{"ok": "yes"}'


async def run(
    play: Play, *scripts: Script, wanted: AnswerFormat = WANTED
) -> tuple[Stage, TurnDone]:
    stage = await play(*scripts)
    stage.task = {"options": AnswerOptions(format=wanted)}
    return stage, await stage.run()


def shown(stage: Stage) -> str:
    return "".join(event.text for event in stage.events if isinstance(event, TextDelta))


@pytest.mark.parametrize(
    ("text", "document", "complaint"),
    [
        (GOOD, GOOD, ""),
        (f"```json\n{GOOD}\n```", GOOD, ""),
        (f" {GOOD}\n", GOOD, ""),
        (BAD, BAD, "ok: 'yes' is not of type 'boolean'."),
        ("Sure!", "Sure!", "it is not JSON"),
        ("[]", "[]", "is not of type 'object'"),
        ("", "", "it is not JSON"),
    ],
)
def test_an_answer_is_checked(text: str, document: str, complaint: str) -> None:
    found, why = check_answer(text, WANTED)
    assert found == document
    assert (complaint in why) if complaint else not why


def test_a_json_object_needs_no_schema() -> None:
    assert check_answer('{"a": 1}', AnswerFormat()) == ('{"a": 1}', "")
    assert check_answer("[1]", AnswerFormat())[1] == "it is not a JSON object."


def test_a_reference_to_another_place_is_not_fetched() -> None:
    remote = AnswerFormat(schema={"$ref": "http://127.0.0.1:9/schema.json"})
    assert check_answer(GOOD, remote) == (GOOD, "")


@pytest.mark.parametrize("schema", [{"type": "nothing"}, {"properties": []}])
def test_an_unusable_schema_is_found(schema: dict[str, Any]) -> None:
    assert find_schema_error(schema)
    assert not find_schema_error(SCHEMA)


async def test_the_format_is_sent_and_the_text_shown_once_checked(play: Play) -> None:
    stage, done = await run(play, ok(f"```json\n{GOOD}\n```"))
    assert (done.text, shown(stage)) == (GOOD, GOOD)
    assert done.message
    assert done.message.content == GOOD
    body = stage.server.requests[0].body
    schema = {"name": "state", "schema": SCHEMA, "strict": True}
    assert body["response_format"] == {"type": "json_schema", "json_schema": schema}
    assert '"required":["ok"]' in stage.sent(1)[0]["content"]


async def test_only_the_last_step_counts(play: Play) -> None:
    first = 'H T"Let me look." C(0,c1,read,{"path":"a"}) F tool_calls U D'
    stage, done = await run(play, first, ok(GOOD))
    assert (done.text, shown(stage)) == (GOOD, GOOD)
    assert stage.shop.effects == ["read a"]


async def test_a_wrong_answer_is_repaired_once_without_tools(play: Play) -> None:
    stage, done = await run(play, ok(BAD), ok(GOOD))
    assert (done.text, shown(stage)) == (GOOD, GOOD)
    assert "is not of type 'boolean'" in stage.sent(2)[-1]["content"]
    assert "tools" not in stage.server.requests[1].body
    assert stage.journal.rows == []


async def test_a_second_wrong_answer_is_an_honest_failure(play: Play) -> None:
    stage, done = await run(play, ok(BAD), ok("Sorry."))
    assert (done.ending, shown(stage)) == (TurnEnding.FAILED, "")
    assert "does not have the requested format: it is not JSON" in done.cause
    assert len(stage.server.requests) == 2


async def test_a_service_without_formats_is_asked_without_it(play: Play) -> None:
    refusal = 'S400"response_format is not supported with tools"'
    stage, done = await run(play, refusal, ok(GOOD))
    assert done.text == GOOD
    sent = ["response_format" in each.body for each in stage.server.requests]
    assert sent == [True, False]


async def test_calls_are_not_checked(play: Play) -> None:
    _, done = await run(play, calls(("c1", "read", '{"path":"a"}')), ok(GOOD))
    assert done.text == GOOD
