"""Hash of a model request."""

import subprocess
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.contract import ModelRequest, Picture, ToolSchema
from agent.request.request_hash import hash_request
from sessions.records import Attachment, Message, ToolCall

TOOL = ToolSchema("pay", "Pay.", {"type": "object", "properties": {"a": {}, "b": {}}})
REQUEST = ModelRequest(
    "one",
    "Be kind.",
    messages=(
        Message(
            "user", "go", files=(Attachment(name="p.png", media_type="image/png", path="in/p.png"),)
        ),
        Message("assistant", "", tool_calls=(ToolCall("c1", "pay", "{}", b"\xff"),)),
        Message("tool", "paid", tool_call_id="c1"),
    ),
    tools=(TOOL,),
    max_output_tokens=50,
)


def changed(**fields: Any) -> ModelRequest:
    return msgspec.structs.replace(REQUEST, **fields)


@pytest.mark.process
def test_equal_requests_have_the_same_hash_in_every_process() -> None:
    turned = ToolSchema("pay", "Pay.", {"properties": {"b": {}, "a": {}}, "type": "object"})
    assert hash_request(REQUEST) == hash_request(changed(tools=(turned,)))
    there = "from tests.unit.agent import test_request_hash as t; print(t.hash_request(t.REQUEST))"
    said = subprocess.run([sys.executable, "-c", there], stdout=subprocess.PIPE, check=True)
    assert said.stdout.decode().strip() == hash_request(REQUEST)


@pytest.mark.parametrize(
    "other",
    [
        changed(model="two"),
        changed(system="Be brief."),
        changed(messages=REQUEST.messages[:-1]),
        changed(messages=(*REQUEST.messages[:-1], Message("tool", "paid ", tool_call_id="c1"))),
        changed(tools=()),
        changed(max_output_tokens=51),
        changed(temperature=0.5),
        changed(reasoning_effort="low"),
        changed(stream=False),
    ],
    ids=["model", "system", "row", "text", "tools", "limit", "temperature", "effort", "stream"],
)
def test_different_requests_have_different_hashes(other: ModelRequest) -> None:
    assert hash_request(other) != hash_request(REQUEST)


def test_picture_contents_do_not_affect_the_hash() -> None:
    assert hash_request(
        changed(pictures={"in/p.png": Picture("image/png", "AAAA")})
    ) == hash_request(REQUEST)


@given(st.text(st.characters(codec=None)), st.text(st.characters(codec=None)))
def test_any_text_is_hashable_and_different_texts_differ(one: str, other: str) -> None:
    marks = [hash_request(changed(messages=(Message("user", text),))) for text in (one, other)]
    assert (marks[0] == marks[1]) == (one == other)


def test_lone_surrogates_are_hashable() -> None:
    marks = {hash_request(changed(system=text)) for text in ("\ud800", "\ud801", "?", "\ufffd")}
    assert len(marks) == 4
