import itertools
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.answer.reasoning_blocks import ReasoningBlocks, encode_reasoning
from agent.model.contract import ModelRequest, ToolSchema
from agent.providers.anthropic.dialect import (
    BINDING_BETA,
    AnthropicDialect,
    ThinkingMode,
    ThinkingOffMode,
    dialect_for,
    persistent_dialect,
    simpler_dialects,
)
from agent.providers.anthropic.request import DEFAULT_OUTPUT_TOKENS, beta_header, encode_request
from sessions.records import Message, ToolCall

OLD, NEW = "claude-sonnet-4-5-20250929", "claude-sonnet-5-5"
FOREIGN = "kimi-k2"
USER = Message("user", "hi")
READ = ToolSchema("read", "Reads.", {"type": "object"})


def asked(*messages: Message, model: str = FOREIGN, **fields: Any) -> ModelRequest:
    return ModelRequest(model, fields.pop("system", ""), messages or (USER,), **fields)


def body(request: ModelRequest, dialect: AnthropicDialect | None = None) -> Any:
    return json.loads(encode_request(request, dialect or dialect_for(request.model)))


def messages(*rows: Message, model: str = FOREIGN, **fields: Any) -> Any:
    return body(asked(*rows, model=model, **fields))["messages"]


def text(said: str) -> dict[str, str]:
    return {"type": "text", "text": said}


def call(call_id: str, arguments: str = "{}", name: str = "read") -> ToolCall:
    return ToolCall(call_id, name, arguments)


def used(call_id: str, **given: object) -> dict[str, object]:
    return {"type": "tool_use", "id": call_id, "name": "read", "input": given}


def result(call_id: str, said: str = "ok") -> Message:
    return Message("tool", said, tool_call_id=call_id)


def resulted(call_id: str, said: str = "ok") -> dict[str, str]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": said}


# --- complete requests -----------------------------------------------------------------------


def test_a_plain_request_has_only_the_required_fields() -> None:
    assert body(asked()) == {
        "model": FOREIGN,
        "max_tokens": DEFAULT_OUTPUT_TOKENS,
        "stream": True,
        "messages": [{"role": "user", "content": [text("hi")]}],
        "cache_control": {"type": "ephemeral"},
    }


def test_every_option_has_its_field() -> None:
    request = asked(
        system="Be kind.", tools=(READ,), max_output_tokens=100, temperature=0.5, stream=False
    )
    assert body(request) == {
        "model": FOREIGN,
        "max_tokens": 100,
        "stream": False,
        "system": "Be kind.",
        "messages": [{"role": "user", "content": [text("hi")]}],
        "temperature": 0.5,
        "cache_control": {"type": "ephemeral"},
        "tools": [
            {
                "name": "read",
                "description": "Reads.",
                "input_schema": {"type": "object"},
                "eager_input_streaming": True,
            }
        ],
    }


def test_the_output_limit_defaults_to_that_of_the_model() -> None:
    assert body(asked(model=OLD))["max_tokens"] == 64_000
    assert body(asked(model=OLD, max_output_tokens=5))["max_tokens"] == 5


def test_unsupported_features_are_omitted() -> None:
    lesser = AnthropicDialect(eager=False, cache=False, temperature=False)
    written = body(asked(tools=(READ,), temperature=1.0), lesser)
    assert not {"cache_control", "temperature"} & written.keys()
    assert written["tools"][0].keys() == {"name", "description", "input_schema"}


def test_the_temperature_is_limited_to_the_maximum_of_the_protocol() -> None:
    assert body(asked(temperature=1.7))["temperature"] == 1.0


# --- messages --------------------------------------------------------------------------------


def test_results_and_the_user_text_after_them_are_one_message() -> None:
    rows = (
        Message("user", "go"),
        Message("assistant", "I look.", (call("a", '{"path":"x"}'), call("b"))),
        result("a"),
        result("b", " "),
        Message("user", "and?"),
        Message("assistant", "Done."),
        Message("user", "thanks"),
    )
    assert messages(*rows) == [
        {"role": "user", "content": [text("go")]},
        {"role": "assistant", "content": [text("I look."), used("a", path="x"), used("b")]},
        {
            "role": "user",
            "content": [resulted("a"), {"type": "tool_result", "tool_use_id": "b"}, text("and?")],
        },
        {"role": "assistant", "content": [text("Done.")]},
        {"role": "user", "content": [text("thanks")]},
    ]


def test_empty_texts_are_never_sent() -> None:
    rows = (
        Message("user", " \n"),
        Message("user", "go"),
        Message("assistant", ""),
        Message("assistant", " ", (call("a"),)),
        result("a"),
    )
    assert messages(*rows) == [
        {"role": "user", "content": [text("go")]},
        {"role": "assistant", "content": [used("a")]},
        {"role": "user", "content": [resulted("a")]},
    ]


@pytest.mark.parametrize(
    "arguments", ['{ "path":\t"ä\\u00e4", "n": 1.0 }', '{"a":{"b":[1e3]}}', "{}"]
)
def test_arguments_are_sent_unchanged(arguments: str) -> None:
    request = asked(USER, Message("assistant", "", (call("a", arguments),)), result("a"))
    assert f'"input":{arguments}'.encode() in encode_request(request, AnthropicDialect())


@pytest.mark.parametrize("arguments", ["", '{"a":', "[1]", "null", '"x"', "{}{}"])
def test_arguments_that_are_no_object_become_an_empty_object(arguments: str) -> None:
    rows = (USER, Message("assistant", "", (call("a", arguments),)), result("a"))
    assert messages(*rows)[1]["content"] == [used("a")]


def test_a_text_to_be_continued_has_no_trailing_white_space() -> None:
    assert messages(USER, Message("assistant", "So \n"))[-1] == {
        "role": "assistant",
        "content": [text("So")],
    }
    assert messages(USER, Message("assistant", "So \n"), USER)[1]["content"] == [text("So \n")]
    assert messages(USER, Message("assistant", "So ", (call("a"),)))[-1]["content"] == [
        text("So "),
        used("a"),
    ]


def test_ids_and_names_of_other_services_are_sanitized() -> None:
    rows = (
        USER,
        Message("assistant", "", (call("f:0", name="a.b"), call("f.0", name=""), call("f_0_2"))),
        result("f:0"),
        result("f.0"),
        result("f_0_2"),
    )
    made, results = messages(*rows)[1:]
    ids = [block["id"] for block in made["content"]]
    assert ids == [block["tool_use_id"] for block in results["content"]]
    assert ids == ["f_0", "f_0_2", "f_0_2_2"]
    assert [block["name"] for block in made["content"]] == ["a_b", "unnamed", "read"]


def test_without_tools_earlier_calls_are_described_and_new_ones_forbidden() -> None:
    rows = (USER, Message("assistant", "", (call("a"), call("b"), call("c", name=""))))
    written = body(asked(*rows))
    assert written["tools"] == [
        {"name": "read", "input_schema": {"type": "object"}},
        {"name": "unnamed", "input_schema": {"type": "object"}},
    ]
    assert written["tool_choice"] == {"type": "none"}


ROWS = st.lists(
    st.one_of(
        st.builds(Message, st.sampled_from(["user", "assistant"]), st.text("a \n", max_size=3)),
        st.builds(
            Message,
            st.just("assistant"),
            st.text("a ", max_size=2),
            st.lists(st.builds(call, st.text(":.ab", max_size=2)), max_size=2).map(tuple),
        ),
        st.builds(result, st.text(":.ab", max_size=2), st.text("a ", max_size=2)),
    ),
    max_size=8,
)


@given(ROWS)
def test_roles_alternate_and_no_block_is_empty_for_any_rows(rows: list[Message]) -> None:
    written = body(ModelRequest(FOREIGN, "", tuple(rows)))["messages"]
    roles = [message["role"] for message in written]
    assert all(a != b for a, b in itertools.pairwise(roles))
    for message in written:
        assert message["content"]
        for block in message["content"]:
            assert block.get("text", "x").strip()
            assert re.fullmatch("[A-Za-z0-9_-]+", block.get("id", "x"))


# --- thinking --------------------------------------------------------------------------------

ADAPTIVE = {"type": "adaptive"}
SHOWN = {**ADAPTIVE, "display": "summarized"}
BOUND = {**SHOWN, "block_binding": {"prefix_mismatch_behavior": "drop_block"}}


@pytest.mark.parametrize(
    ("model", "effort", "thinking", "told"),
    [
        pytest.param("claude-3-5-sonnet-20241022", "high", None, None, id="3.5 without thinking"),
        pytest.param(OLD, None, None, None, id="4.5 by default"),
        pytest.param(OLD, "none", None, None, id="4.5 off"),
        pytest.param(OLD, "minimal", None, None, id="4.5 minimal"),
        pytest.param(OLD, "low", {"type": "enabled", "budget_tokens": 4096}, None, id="4.5 low"),
        pytest.param(
            "us.anthropic.claude-opus-4-5-20251101-v1:0",
            "xhigh",
            {"type": "enabled", "budget_tokens": 48_000},
            None,
            id="4.5 highest effort",
        ),
        pytest.param("claude-opus-4-6", None, None, None, id="4.6 by default"),
        pytest.param("claude-opus-4-6", "low", ADAPTIVE, "low", id="4.6 low"),
        pytest.param("claude-sonnet-4-6", "xhigh", ADAPTIVE, "high", id="4.6 without xhigh"),
        pytest.param("anthropic/claude-opus-4.7", "xhigh", SHOWN, "xhigh", id="4.7 with xhigh"),
        pytest.param("claude-opus-4-8", "none", None, None, id="4.8 off"),
        pytest.param("claude-opus-5", None, SHOWN, None, id="5 by default"),
        pytest.param("claude-sonnet-5", "none", {"type": "disabled"}, None, id="5 off"),
        pytest.param(NEW, None, BOUND, None, id="5.5 by default"),
        pytest.param(NEW, "medium", BOUND, "medium", id="5.5 medium"),
        pytest.param(NEW, "none", {"type": "between_tools"}, None, id="Sonnet 5.5 off"),
        pytest.param("claude-opus-5-5", "none", BOUND, "low", id="Opus 5.5 always thinks"),
        pytest.param("claude-haiku-5-5", "none", {"type": "disabled"}, None, id="Haiku 5.5 off"),
        pytest.param("claude-fable-5", "minimal", SHOWN, "low", id="Fable always thinks"),
        pytest.param("claude-mythos-preview", "high", BOUND, "high", id="no version"),
        pytest.param(FOREIGN, None, None, None, id="other models by default"),
        pytest.param(FOREIGN, "none", None, None, id="other models off"),
        pytest.param(
            FOREIGN,
            "high",
            {"type": "enabled", "budget_tokens": 5120},
            None,
            id="other models high",
        ),
    ],
)
def test_thinking_is_requested_in_the_form_of_each_model(
    model: str, effort: str | None, thinking: object, told: str | None
) -> None:
    request = asked(model=model, reasoning_effort=effort, temperature=0.5)
    written = body(request)
    assert written.get("thinking") == thinking
    assert written.get("output_config") == (None if told is None else {"effort": told})
    assert "temperature" not in written or thinking is None
    bound = thinking is not None and "block_binding" in str(thinking)
    assert beta_header(request, dialect_for(model)) == (BINDING_BETA if bound else "")


@pytest.mark.parametrize(
    ("model", "taken"),
    [("claude-sonnet-4-6", True), ("claude-opus-4-7", False), ("claude-mythos-preview", False)],
)
def test_the_newer_models_get_no_temperature(model: str, taken: bool) -> None:
    request = asked(model=model, temperature=0.5, reasoning_effort="none")
    assert ("temperature" in body(request)) is taken


@pytest.mark.parametrize(
    ("limit", "budget"), [(1638, None), (1639, 1024), (4000, 2500), (100_000, 24_576)]
)
def test_a_budget_leaves_room_for_the_answer(limit: int, budget: int | None) -> None:
    written = body(asked(model=OLD, reasoning_effort="high", max_output_tokens=limit))
    assert written.get("thinking", {}).get("budget_tokens") == budget


@given(st.integers(1, 200_000))
def test_a_lower_effort_has_a_lower_budget_under_any_limit(limit: int) -> None:
    efforts = ("xhigh", "high", "medium", "low", "minimal")
    written = [
        body(asked(model=FOREIGN, reasoning_effort=each, max_output_tokens=limit))
        for each in efforts
    ]
    budgets = [each.get("thinking", {}).get("budget_tokens", 0) for each in written]
    assert all(more > less or more == less == 0 for more, less in itertools.pairwise(budgets))
    assert max(budgets) <= limit * 3 / 4


def thought(*parts: dict[str, Any], by: str, **fields: Any) -> Message:
    row = encode_reasoning(ReasoningBlocks(f"anthropic/{by}", "Hm.", parts))
    return Message("assistant", reasoning=row, **fields)


SIGNED = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
UNSIGNED = {"type": "thinking", "thinking": "Hm.", "signature": ""}
HIDDEN = {"type": "redacted_thinking", "data": "xyz"}
HALF_HIDDEN = {"type": "redacted_thinking", "data": ""}
OTHER = {"type": "reasoning", "id": "rs_1"}


def turn(*parts: dict[str, Any], by: str, after: tuple[Message, ...] = ()) -> tuple[Message, ...]:
    rows = thought(*parts, by=by, content="I look.", tool_calls=(call("a"),)), result("a")
    return (USER, *rows, *after)


@pytest.mark.parametrize(
    ("model", "effort", "parts", "replayed"),
    [
        pytest.param(NEW, None, (SIGNED, HIDDEN), (SIGNED, HIDDEN), id="by default"),
        pytest.param(NEW, "high", (SIGNED,), (SIGNED,), id="requested"),
        pytest.param(NEW, "none", (SIGNED,), (), id="off"),
        pytest.param(OLD, None, (SIGNED,), (), id="thinking not requested"),
        pytest.param(OLD, "low", (SIGNED,), (SIGNED,), id="a budget"),
        pytest.param(NEW, None, (UNSIGNED, HALF_HIDDEN, OTHER), (), id="incomplete parts"),
        pytest.param(
            FOREIGN, None, (UNSIGNED,), (UNSIGNED,), id="unsigned thinking of other models"
        ),
    ],
)
def test_thinking_is_replayed_before_the_text(
    model: str, effort: str | None, parts: Any, replayed: Any
) -> None:
    rows = turn(*parts, by=model)
    written = messages(*rows, model=model, reasoning_effort=effort)
    assert written[1]["content"] == [*replayed, text("I look."), used("a")]


def test_thinking_of_another_model_is_not_replayed() -> None:
    assert messages(*turn(SIGNED, by=OLD), model=NEW)[1]["content"][0] == text("I look.")


def test_a_row_with_only_thinking_is_omitted() -> None:
    assert messages(USER, thought(SIGNED, by=NEW), USER, model=NEW) == [
        {"role": "user", "content": [text("hi"), text("hi")]}
    ]


def test_a_message_to_be_continued_contains_no_thinking() -> None:
    written = messages(USER, thought(SIGNED, by=NEW, content="So"), model=NEW)
    assert written[-1]["content"] == [text("So")]


@pytest.mark.parametrize(
    ("rows", "thinks"),
    [
        pytest.param(turn(SIGNED, by=OLD), True, id="began with thinking"),
        pytest.param(turn(by=OLD), False, id="began without thinking"),
        pytest.param(turn(UNSIGNED, by=OLD), False, id="truncated thinking"),
        pytest.param(turn(SIGNED, by=NEW), False, id="thinking of another model"),
        pytest.param(
            turn(by=OLD, after=(Message("assistant", "x"), USER)), True, id="finished turn"
        ),
        pytest.param((USER, Message("assistant", "So")), False, id="a text to be continued"),
    ],
)
def test_an_answer_that_began_without_thinking_continues_without_a_budget(
    rows: tuple[Message, ...], thinks: bool
) -> None:
    written = body(asked(*rows, model=OLD, reasoning_effort="low"))
    assert ("thinking" in written) is thinks
    assert ("redacted" in str(written) or "signature" in str(written)) is (
        thinks and "c2ln" in str(rows)
    )


# --- refusals --------------------------------------------------------------------------------


def other(dialect: AnthropicDialect, said: str, **fields: Any) -> None:
    found = next(simpler_dialects(dialect, said), None)
    assert found is not None
    changed = {
        k for k in AnthropicDialect.__struct_fields__ if getattr(found, k) != getattr(dialect, k)
    }
    assert {k: getattr(found, k) for k in changed} == fields


@pytest.mark.parametrize(
    ("model", "said", "fields"),
    [
        pytest.param(
            NEW,
            "tools.0.custom.eager_input_streaming: Extra inputs are not permitted",
            {"eager": False},
            id="eager",
        ),
        pytest.param(
            NEW, "cache_control: Extra inputs are not permitted", {"cache": False}, id="cache"
        ),
        pytest.param(
            FOREIGN,
            "`temperature` is deprecated for this model.",
            {"temperature": False},
            id="temperature",
        ),
        pytest.param(
            NEW,
            f"Unexpected value(s) `{BINDING_BETA}` for the `anthropic-beta` header.",
            {"binding": False},
            id="beta",
        ),
        pytest.param(
            NEW,
            "thinking.adaptive.block_binding: Extra inputs are not permitted",
            {"binding": False},
            id="binding",
        ),
        pytest.param(
            "claude-opus-4-8",
            "thinking.adaptive.display: Extra inputs are not permitted",
            {"summary": False},
            id="display",
        ),
        pytest.param(
            OLD,
            "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
            "`tool_use`. To avoid this requirement, disable `thinking`.",
            {"think": False},
            id="thinking missing",
        ),
        pytest.param(
            OLD,
            "messages.27.content.0: Invalid `signature` in `thinking` block",
            {"replay": False},
            id="signature",
        ),
        pytest.param(
            "claude-opus-5",
            "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to "
            'a different conversation. Remove the block, or set `thinking.block_binding.x` to "y".',
            {"replay": False},
            id="bound to another conversation",
        ),
        pytest.param(
            NEW,
            "`thinking` or `redacted_thinking` blocks in the latest message cannot be modified",
            {"replay": False},
            id="thinking was modified",
        ),
        pytest.param(
            "claude-opus-5",
            '"thinking.type.disabled" is not supported for this model. Use "thinking.type.adaptive"'
            ' and "output_config.effort" to control thinking behavior.',
            {"off": ThinkingOffMode.LOW},
            id="disabled",
        ),
        pytest.param(
            "claude-haiku-5-5",
            '"thinking.type.disabled" is not supported for this model. Use "between_tools".',
            {"off": ThinkingOffMode.BETWEEN_TOOLS},
            id="disabled, with advice",
        ),
        pytest.param(
            NEW,
            '"thinking.type.between_tools" is unknown',
            {"off": ThinkingOffMode.LOW},
            id="between tools",
        ),
        pytest.param(
            FOREIGN,
            '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive"'
            ' and "output_config.effort" to control thinking behavior.',
            {"form": ThinkingMode.ADAPTIVE},
            id="budget",
        ),
        pytest.param(
            NEW,
            "adaptive thinking is not supported on this model",
            {"form": ThinkingMode.BUDGET},
            id="adaptive",
        ),
        pytest.param(NEW, "effort xhigh is not supported", {"xhigh": False}, id="xhigh"),
        pytest.param(
            NEW,
            "This model does not support the effort parameter.",
            {"effort": False},
            id="effort",
        ),
        pytest.param(FOREIGN, "failed to parse grammar", {"schemas": False}, id="grammar"),
        pytest.param(
            FOREIGN,
            "thinking: unknown field",
            {"form": ThinkingMode.NONE},
            id="no thinking supported",
        ),
        pytest.param(
            NEW,
            "thinking: unknown field",
            {"form": ThinkingMode.NONE},
            id="no adaptive thinking supported",
        ),
    ],
)
def test_an_error_that_names_a_feature_leads_to_a_dialect_without_it(
    model: str, said: str, fields: dict[str, Any]
) -> None:
    other(dialect_for(model), said, **fields)


@pytest.mark.parametrize(
    ("dialect", "said"),
    [
        pytest.param(dialect_for(NEW), "messages: too few", id="something else"),
        pytest.param(
            AnthropicDialect(cache=False), "cache_control: unknown", id="feature was not sent"
        ),
    ],
)
def test_other_errors_yield_no_simpler_dialect(dialect: AnthropicDialect, said: str) -> None:
    assert not list(simpler_dialects(dialect, said))


@given(st.sampled_from([OLD, NEW, FOREIGN, "claude-opus-5-5", "claude-opus-5"]), st.data())
def test_simplifying_a_dialect_terminates(model: str, data: st.DataObject) -> None:
    words = "eager_input_streaming cache_control temperature block_binding display signature"
    said = f"{words} expected `thinking` between_tools disabled type.enabled adaptive xhigh effort"
    dialect, seen = dialect_for(model), set[AnthropicDialect]()
    while choices := [each for each in simpler_dialects(dialect, said) if each not in seen]:
        seen.add(dialect)
        dialect = data.draw(st.sampled_from(choices))
    assert len(seen) < 40


def test_restrictions_of_one_conversation_are_not_remembered() -> None:
    assert persistent_dialect(
        AnthropicDialect(replay=False, think=False, eager=False)
    ) == AnthropicDialect(eager=False)


def test_a_model_that_thinks_by_default_needs_no_thinking_mode() -> None:
    dialect = AnthropicDialect(form=ThinkingMode.NONE, unasked=True)
    request = asked(*turn(UNSIGNED, by=FOREIGN), reasoning_effort="high")
    written = body(request, dialect)
    assert "thinking" not in written
    assert written["messages"][1]["content"][0] == UNSIGNED


@pytest.mark.parametrize(
    "dialect", [AnthropicDialect(replay=False), AnthropicDialect(think=False)], ids=repr
)
def test_a_conversation_continues_without_replayed_thinking(dialect: AnthropicDialect) -> None:
    written = body(asked(*turn(UNSIGNED, by=FOREIGN)), dialect)
    assert written["messages"][1]["content"][0] == text("I look.")


def test_an_unsupported_effort_is_not_sent() -> None:
    dialect = AnthropicDialect(form=ThinkingMode.ADAPTIVE, effort=False)
    written = body(asked(reasoning_effort="high"), dialect)
    assert written["thinking"] == ADAPTIVE
    assert "output_config" not in written
