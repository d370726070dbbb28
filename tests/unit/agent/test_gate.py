import msgspec
import pytest

from agent.slots import Shape, StepCall, shape_of
from agent.tools.contract import Risk, Tool, ToolContext
from agent.tools.define import tool
from agent.tools.gate import Refuse, Run, admit


@tool(risk=Risk.WRITE)
async def pay(_context: ToolContext, amount: int, note: str = "") -> str:
    """Pay somebody.

    Args:
        amount: How much.
        note: What for.
    """
    return f"{amount} {note}"


@tool(risk=Risk.READ)
async def read(_context: ToolContext, path: str) -> str:
    """Read a file.

    Args:
        path: Which one.
    """
    return path


TOOLS: dict[str, Tool] = {"pay": pay, "read": read}


def call(name: str, arguments: str, *, sealed: bool = True) -> StepCall:
    return StepCall("c1", name, arguments, shape_of(arguments), sealed)


def test_a_whole_and_fitting_call_may_run_with_decoded_arguments() -> None:
    admitted = admit(call("pay", '{"amount": 100}'), TOOLS)
    assert isinstance(admitted, Run)
    assert admitted.tool is pay
    assert msgspec.structs.asdict(admitted.arguments) == {"amount": 100, "note": ""}


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("pay", '{"amount": 1', "truncated"),
        ("pay", '{"amount": 1,}', "malformed"),
        ("pay", "{'amount': 1}", "malformed"),
        ("pay", '```json\n{"amount": 1}\n```', "malformed"),
        ("pay", '{"amount": 1}{"amount": 1}', "trailing"),
        ("pay", "[1]", "not a JSON object"),
        ("pay", "", "no arguments"),
        ("pay", "{}", "amount"),
        ("pay", '{"amount": "1"}', "int"),
        ("pay", '{"amount": 1, "to": "x"}', "to"),
        ("pay", '{"amount": null}', "null"),
        ("raed", '{"path": "a"}', "Did you mean read?"),
        ("zzz", "{}", "no tool 'zzz'."),
        (" ", "{}", "no tool name"),
    ],
)
def test_anything_else_is_refused_with_a_reason_for_the_model(
    name: str, arguments: str, words: str
) -> None:
    refused = admit(call(name, arguments), TOOLS)
    assert isinstance(refused, Refuse)
    assert words in refused.text
    assert "NOT run" in refused.text or "Nothing has run" in refused.text


def test_a_call_that_may_have_been_cut_off_runs_only_if_it_changes_nothing() -> None:
    unsealed = call("pay", '{"amount": 1}', sealed=False)
    assert isinstance(admit(unsealed, TOOLS), Refuse)
    assert isinstance(admit(call("read", '{"path": "a"}', sealed=False), TOOLS), Run)


def test_every_prefix_of_a_call_is_refused() -> None:
    whole = '{"amount": 100, "note": "for {this} and \\"that\\""}'
    for end in range(len(whole)):
        assert isinstance(admit(call("pay", whole[:end]), TOOLS), Refuse), whole[:end]
    assert call("pay", whole).shape is Shape.WHOLE
