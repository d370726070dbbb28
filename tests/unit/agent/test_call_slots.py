from typing import Any

import pytest

from agent.answer.call_slots import ArgumentsState, CallSlots, StepCall, classify_arguments
from agent.model.contract import CallChunk, ToolSchema

NEEDS_PATH: dict[str, Any] = {"type": "object", "required": ["path"]}
TOOLS = (
    ToolSchema("read", "", NEEDS_PATH),
    ToolSchema("read_file", "", NEEDS_PATH),
    ToolSchema("write", "", NEEDS_PATH),
    ToolSchema("noop", "", {"type": "object"}),
)


def d(
    index: int | None = None,
    id: str | None = None,  # noqa: A002 - field name of the protocol
    name: str | None = None,
    args: str | None = None,
) -> CallChunk:
    return CallChunk(index, id, name=name, arguments=args)


def collect(*pieces: CallChunk, ended: bool = True, taken: tuple[str, ...] = ()) -> list[StepCall]:
    slots = CallSlots(TOOLS)
    for piece in pieces:
        slots.feed(piece)
    return list(slots.calls("call_t_1", frozenset(taken), ended=ended))


def brief(calls: list[StepCall]) -> list[tuple[str, str, str]]:
    return [(call.id, call.name, call.arguments) for call in calls]


A, B = '{"path":"a"}', '{"path":"b"}'
GEN0, GEN1 = "call_t_1_0", "call_t_1_1"


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        pytest.param(
            [d(0, "c1", "read", ""), d(0, args='{"path"'), d(0, args=':"a"}')],
            [("c1", "read", A)],
            id="one call in pieces",
        ),
        pytest.param(
            [d(0, "c1", "read", A), d(1, "c2", "write", B)],
            [("c1", "read", A), ("c2", "write", B)],
            id="1: another index is another call",
        ),
        pytest.param(
            [d(0, "c1", "read"), d(1, "c2", "write"), d(0, args=A), d(1, args=B)],
            [("c1", "read", A), ("c2", "write", B)],
            id="1: interleaved pieces of two calls",
        ),
        pytest.param(
            [d(0, "x1", "read", '{"pa'), d(0, "x2", args='th":'), d(0, "x3", args='"a"}')],
            [("x1", "read", A)],
            id="2: a new id for every piece is still one call",
        ),
        pytest.param(
            [d(0, "c1", "read", A), d(0, "c2", "read", B)],
            [("c1", "read", A), ("c2", "read", B)],
            id="2: new id with a name at the same index",
        ),
        pytest.param(
            [d(0, "c1", "read", '{"pa'), d(0, "c2", "read", B)],
            [("c1", "read", '{"pa'), ("c2", "read", B)],
            id="2: new id with a name after an incomplete call",
        ),
        pytest.param(
            [d(0, "c1", "read", A), d(0, "c2", args=B)],
            [("c1", "read", A), ("c2", "", B)],
            id="2: new id without a name after a complete call",
        ),
        pytest.param(
            [d(0, None, "read", A), d(0, None, "read", B)],
            [(GEN0, "read", A), (GEN1, "read", B)],
            id="3: index reused without ids",
        ),
        pytest.param(
            [d(0, None, "read", A), d(0, "c2", "read", B)],
            [(GEN0, "read", A), ("c2", "read", B)],
            id="3: index reused, only the second has an id",
        ),
        pytest.param(
            [d(None, None, "read", A), d(None, None, "write", B)],
            [(GEN0, "read", A), (GEN1, "write", B)],
            id="4: no index, a name starts a call",
        ),
        pytest.param(
            [
                d(None, "c1", "read", '{"path"'),
                d(None, "c2", "write", B),
                d(None, "c1", None, ':"a"}'),
            ],
            [("c1", "read", A), ("c2", "write", B)],
            id="4: no index, the id decides",
        ),
        pytest.param(
            [d(None, None, "read", '{"path"'), d(None, None, None, ':"a"}')],
            [(GEN0, "read", A)],
            id="4: no index, id or name continues the last call",
        ),
        pytest.param([d(None, None, None, A)], [(GEN0, "", A)], id="4: no index, id or name"),
        pytest.param(
            [d(0, "c1", "read", '{"path"'), d(0, None, "read", ':"a"}'), d(0, None, "read", "")],
            [("c1", "read", A)],
            id="5: the name repeated in every piece",
        ),
        pytest.param(
            [d(0, None, "read", A), d(0, None, "read", "")],
            [(GEN0, "read", A)],
            id="5: the name repeated after the complete call",
        ),
        pytest.param(
            [d(0, "c1", "rea"), d(0, None, "read_file"), d(0, args=A)],
            [("c1", "read_file", A)],
            id="5: a cumulative name replaces",
        ),
        pytest.param(
            [d(0, "c1", "read_"), d(0, None, "file"), d(0, args=A)],
            [("c1", "read_file", A)],
            id="5: pieces of a name are joined",
        ),
        pytest.param(
            [d(0, None, "noop"), d(0, None, "write", A)],
            [(GEN0, "noop", "{}"), (GEN1, "write", A)],
            id="5: two known names are two calls",
        ),
        pytest.param(
            [d(0, "c1", "read", '{"path"'), d(0, args=':"a"}'), d(0, args=A)],
            [("c1", "read", A)],
            id="6: all arguments restated",
        ),
        pytest.param(
            [d(0, "c1", "read", A + B)],
            [("c1", "read", A), (GEN1, "read", B)],
            id="7: two objects in one",
        ),
        pytest.param(
            [d(0, "c1", "read", A + '{"path":')],
            [("c1", "read", A + '{"path":')],
            id="7: the second object is truncated",
        ),
        pytest.param(
            [d(0, "c1", "read", A + "[1]")], [("c1", "read", A + "[1]")], id="7: not an object"
        ),
        pytest.param(
            [d(0, "c1", "read", A + "x}")], [("c1", "read", A + "x}")], id="7: no JSON after it"
        ),
        pytest.param(
            [d(0, "c1", "read", A), d(1, "c1", "read", B)],
            [("c1", "read", A), ("c1_2", "read", B)],
            id="8: the same id twice",
        ),
        pytest.param([d(0, "", "read", A)], [(GEN0, "read", A)], id="8: an empty id is replaced"),
        pytest.param(
            [d(0, "c1", "noop"), d(1, "c2", "noop", "")],
            [("c1", "noop", "{}"), ("c2", "noop", "{}")],
            id="11: missing arguments are {} if none are required",
        ),
        pytest.param(
            [d(0, "c1", "read")],
            [("c1", "read", "")],
            id="11: missing arguments stay empty otherwise",
        ),
        pytest.param(
            [d(7, "c1", "read", A), d(2, "c2", "read", B)],
            [("c1", "read", A), ("c2", "read", B)],
            id="12: gaps, in the order of appearance",
        ),
    ],
)
def test_deltas_are_assembled_into_calls(
    pieces: list[CallChunk], calls: list[tuple[str, str, str]]
) -> None:
    assert brief(collect(*pieces)) == calls


def test_call_ids_from_the_conversation_are_not_reused() -> None:
    calls = collect(d(0, "c1", "read", A), taken=("c1", "c1_2"))
    assert calls[0].id == "c1_3"


def test_opaque_extras_are_kept_even_without_other_fields() -> None:
    slots = CallSlots(TOOLS)
    slots.feed(d(0, "c1", "read", A))
    slots.feed(CallChunk(index=0, extra=b'{"signature":"x"}'))
    (call,) = slots.calls("p", frozenset(), ended=True)
    assert (call.extra, call.arguments) == (b'{"signature":"x"}', A)


def test_empty_arguments_stay_empty_without_terminal_evidence() -> None:
    assert collect(d(0, "c1", "noop"), ended=False)[0].arguments_state is ArgumentsState.NONE


def test_a_call_is_sealed_by_the_start_of_the_next() -> None:
    calls = collect(d(0, "c1", "read", A), d(1, "c2", "write", B), ended=False)
    assert [call.sealed for call in calls] == [True, False]


def test_a_repeated_name_does_not_seal_the_previous_call() -> None:
    calls = collect(d(0, None, "read", A), d(0, None, "read", ""), ended=False)
    assert [call.sealed for call in calls] == [False]


def test_a_call_that_continues_after_the_next_started_is_not_sealed() -> None:
    calls = collect(d(0, "c1", "read", "{"), d(1, "c2", "write", B), d(0, args="}"), ended=False)
    assert [call.sealed for call in calls] == [False, False]


def test_the_end_of_the_answer_seals_all_calls() -> None:
    calls = collect(d(0, "c1", "read", A), d(1, "c2", "write", B))
    assert all(call.sealed for call in calls)


def test_a_call_is_sealed_by_an_end_marker() -> None:
    pieces = d(0, "c1", "read", A), CallChunk(index=0, ended=True), d(1, "c2", "write", B)
    calls = collect(*pieces, ended=False)
    assert [call.sealed for call in calls] == [True, False]
    late = collect(d(0, "c1", "read", A), CallChunk(index=0, ended=True), ended=False)
    assert [call.sealed for call in late] == [True]


def test_an_end_marker_may_arrive_with_the_last_piece() -> None:
    last = CallChunk(index=0, arguments=':"a"}', ended=True)
    (call,) = collect(d(0, "c1", "read", '{"path"'), last, ended=False)
    assert (call.arguments, call.sealed) == (A, True)


def test_an_end_marker_seals_a_truncated_call() -> None:
    (call,) = collect(d(0, "c1", "read", '{"pa'), CallChunk(index=0, ended=True), ended=False)
    assert (call.arguments_state, call.sealed) == (ArgumentsState.TRUNCATED, True)


@pytest.mark.parametrize(
    ("arguments", "shape"),
    [
        ("", ArgumentsState.NONE),
        (" \n", ArgumentsState.NONE),
        ("{}", ArgumentsState.COMPLETE),
        ('{"amount": 1', ArgumentsState.TRUNCATED),
        ('{"amount": 1,', ArgumentsState.TRUNCATED),
        ('{"amount": 1,}', ArgumentsState.INVALID),
        ("{'a': 1}", ArgumentsState.INVALID),
        ('{"a": NaN}', ArgumentsState.INVALID),
        ("[1]", ArgumentsState.INVALID),
        ("7", ArgumentsState.INVALID),
        ('{"a": "}', ArgumentsState.INVALID),
        ('```json\n{"a": 1}\n```', ArgumentsState.INVALID),
        ('```json\n{"a": 1}', ArgumentsState.TRUNCATED),
        ('```json\n{"a": 1\n```', ArgumentsState.TRUNCATED),
        (' {"a": 1} ', ArgumentsState.COMPLETE),
    ],
)
def test_arguments_are_classified_by_strict_json(arguments: str, shape: ArgumentsState) -> None:
    assert classify_arguments(arguments) is shape


def test_pieces_without_new_content_are_not_progress() -> None:
    slots = CallSlots(TOOLS)
    assert slots.feed(d(0, "c1", "read", '{"path":'))
    assert not slots.feed(d(0, None, "read", ""))
    assert slots.feed(d(0, None, None, '"a"}'))
    assert not slots.feed(d(0, None, None, A))
    assert slots
