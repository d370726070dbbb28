"""Arguments nested too deeply for JSON decoders."""

import pytest

from agent.answer.call_slots import ArgumentsState, StepCall, classify_arguments
from agent.tools.gate import RefusedCall, admit_call
from agent.tools.registry import BUILT_IN, ToolRegistry

_DEEP = 100_000


@pytest.mark.parametrize(
    ("arguments", "shape"),
    [
        pytest.param('{"path":' + "[" * _DEEP, ArgumentsState.TRUNCATED, id="cut"),
        pytest.param(
            '{"path":' + "[" * _DEEP + "]" * _DEEP + "}", ArgumentsState.INVALID, id="closed"
        ),
        pytest.param('{"path":' * _DEEP + "1" + "}" * _DEEP, ArgumentsState.INVALID, id="objects"),
    ],
)
def test_arguments_nested_too_deeply_are_not_complete(
    arguments: str, shape: ArgumentsState
) -> None:
    assert classify_arguments(arguments) is shape


def test_a_call_nested_too_deeply_gets_an_error_result_and_does_not_run() -> None:
    arguments = '{"path":' + "[" * _DEEP + "]" * _DEEP + "}"
    call = StepCall(
        id="c1",
        name="read_file",
        arguments=arguments,
        arguments_state=classify_arguments(arguments),
        sealed=True,
    )
    how = admit_call(call, ToolRegistry(BUILT_IN).by_name)
    assert isinstance(how, RefusedCall)
    assert "NOT run" in how.text
    assert "nested too deeply" in how.text
