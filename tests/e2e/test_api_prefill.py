"""Requests that end with the beginning of an answer, over a whole gateway."""

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.api_kit import served, user
from tests.fakes.model_script import ok
from tests.fakes.model_server import ModelServer

BEGINNING = "Once upon a time there was a king"
SAID: list[Any] = [*user("A story, please."), {"role": "assistant", "content": BEGINNING}]


@pytest.mark.parametrize("answer", [" who lived.", "there was a king who lived."])
async def test_an_answer_is_continued_without_repeated_words(tmp_path: Path, answer: str) -> None:
    scripts = [ok(answer)] * 4
    async with ModelServer(*scripts) as model, served(tmp_path, model) as api:
        chat = await api.chat.create(model="scripted", messages=SAID)
        assert chat.choices[0].message.content == " who lived."
        response = await api.client.responses.create(model="scripted", input=SAID)
        assert response.output_text == " who lived."
        _, _, message = await api.wire.send("POST", "/messages", json={"messages": SAID})
        assert message["content"][0]["text"] == " who lived."
        sent = await api.kit.asked(1)
        assert [each["role"] for each in sent] == ["user", "assistant", "user"]
        assert sent[1]["content"] == BEGINNING
        assert "Continue" in sent[2]["content"]
        stream = await api.chat.create(model="scripted", messages=SAID, stream=True)
        texts = [each.choices[0].delta.content or "" async for each in stream]
        assert "".join(texts) == " who lived."


async def test_a_bracket_can_begin_an_answer_in_json(tmp_path: Path) -> None:
    said: list[Any] = [*user("JSON"), {"role": "assistant", "content": "{"}]
    async with (
        ModelServer(ok('{"a": 1}'), ok('"a": 1}')) as model,
        served(tmp_path, model) as api,
    ):
        for _ in range(2):
            answer = await api.chat.create(model="scripted", messages=said)
            assert answer.choices[0].message.content == '"a": 1}'


async def test_a_call_without_result_cannot_be_continued(tmp_path: Path) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "a", "arguments": "{}"}}
    said = [*user("hi"), {"role": "assistant", "content": "So", "tool_calls": [call]}]
    async with ModelServer() as model, served(tmp_path, model) as api:
        for messages in (said, [*user("hi"), {"role": "assistant", "content": " "}]):
            status, _, body = await api.wire.ask("", messages=messages)
            assert (status, body["error"]["param"]) == (400, "messages")
