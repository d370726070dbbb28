from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.answer.call_slots import ArgumentsState, StepCall, classify_arguments
from agent.model.contract import ToolSchema
from agent.tools.contract import Risk, Tool, ToolContext
from agent.tools.define import tool
from agent.tools.gate import AdmittedCall, RefusedCall, admit_call
from agent.tools.names import nearest_names, repair_name


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


async def _foreign(_given: dict[str, Any], _context: ToolContext) -> str:
    return ""


def _complaint(given: dict[str, Any]) -> str | None:
    return None if "to" in given else "'to' is a required property."


remote_pay = Tool(
    name="remote_pay",
    risk=Risk.NET,
    schema=ToolSchema("remote_pay", "Pay elsewhere.", {"type": "object"}),
    arguments=dict[str, Any],
    call=_foreign,
    check=_complaint,
)

TOOLS: dict[str, Tool] = {"pay": pay, "read": read, "remote_pay": remote_pay}


def call(name: str, arguments: str, *, sealed: bool = True) -> StepCall:
    return StepCall(
        id="c1",
        name=name,
        arguments=arguments,
        arguments_state=classify_arguments(arguments),
        sealed=sealed,
    )


def test_a_complete_and_valid_call_may_run_with_decoded_arguments() -> None:
    made = call("pay", '{"amount": 100}')
    admitted = admit_call(made, TOOLS)
    assert isinstance(admitted, AdmittedCall)
    assert admitted.tool is pay
    assert admitted.call == made
    assert msgspec.structs.asdict(admitted.arguments) == {"amount": 100, "note": ""}


def test_arguments_without_a_type_are_checked_by_the_tool() -> None:
    admitted = admit_call(call("remote_pay", '{"to": "me", "x": [1]}'), TOOLS)
    assert isinstance(admitted, AdmittedCall)
    assert admitted.arguments == {"to": "me", "x": [1]}
    refused = admit_call(call("remote_pay", '{"from": "me"}'), TOOLS)
    assert isinstance(refused, RefusedCall)
    assert refused.text == (
        "remote_pay has NOT run, its arguments do not fit: 'to' is a required property."
    )


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        pytest.param("pay", '{"amount": 1', "truncated (byte 12)", id="cut"),
        pytest.param("pay", '{"amount": "é', "truncated (byte 14)", id="cut, in bytes"),
        pytest.param("pay", '{"amount": 1,', "truncated (byte 13)", id="cut behind a comma"),
        pytest.param("pay", "{'amount': 1}", "must be strings (byte 1)", id="single quotes"),
        pytest.param(
            "pay", '{"amount": 1}{"amount": 1}', "trailing characters (byte 14)", id="two objects"
        ),
        pytest.param("pay", "[1]", "not a JSON object", id="a list"),
        pytest.param("pay", "", "no arguments", id="nothing"),
        pytest.param("pay", "{}", "amount", id="a missing key"),
        pytest.param("pay", '{"amount": "1"}', "int", id="an ill-typed key"),
        pytest.param("pay", '{"amount": 1, "to": "x"}', "to", id="an unknown key"),
        pytest.param("pay", '{"amount": null}', "null", id="null"),
        pytest.param("pay", '{"amount": None,}', "null", id="repaired, but ill-typed"),
        pytest.param("zzz", "{}", "no tool 'zzz'. The nearest names are: ", id="unknown"),
    ],
)
def test_an_invalid_call_is_refused_with_a_reason_for_the_model(
    name: str, arguments: str, words: str
) -> None:
    refused = admit_call(call(name, arguments), TOOLS)
    assert isinstance(refused, RefusedCall)
    assert words in refused.text
    assert refused.text.startswith((f"{name} has NOT run", "Nothing has run"))
    assert refused.text.endswith((".", "remote_pay."))


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        pytest.param('{"amount": @}', "(byte 11).", id="in the middle"),
        pytest.param('{"amount": 1', "(byte 12).", id="at the end"),
        pytest.param('{"note": "ä', "(byte 12).", id="at the end, in bytes"),
    ],
)
def test_the_place_of_an_error_in_arguments_is_told_once(arguments: str, place: str) -> None:
    refused = admit_call(call("pay", arguments), TOOLS)
    assert isinstance(refused, RefusedCall)
    assert refused.text.endswith(place)
    assert refused.text.count("(byte ") == 1


@pytest.mark.parametrize("name", ["", " ", "\n"])
def test_a_call_without_a_name_is_refused_without_a_list_of_tools(name: str) -> None:
    refused = admit_call(call(name, "{}"), TOOLS)
    assert isinstance(refused, RefusedCall)
    assert refused.text == "Nothing has run: the call has no tool name."


def test_an_unknown_name_is_shortened_and_answered_with_a_few_names() -> None:
    many = {f"tool_{number}": read for number in range(50)}
    refused = admit_call(call("x" * 5000, "{}"), many)
    assert isinstance(refused, RefusedCall)
    nearest = ", ".join(nearest_names("x" * 100, many))
    assert refused.text == (
        f"Nothing has run: there is no tool '{'x' * 100}'. The nearest names are: {nearest}."
    )
    assert nearest.count("tool_") == 20
    none: dict[str, Tool] = {}
    nothing = admit_call(call("read", "{}"), none)
    assert isinstance(nothing, RefusedCall)
    assert nothing.text == "Nothing has run: there is no tool 'read'. There are no tools at all."


@pytest.mark.parametrize("name", ["Read", "READ"])
def test_the_notation_of_a_name_is_repaired_and_the_arguments_stay(name: str) -> None:
    admitted = admit_call(call(name, '{"path":  "a"}'), TOOLS)
    assert isinstance(admitted, AdmittedCall)
    assert admitted.tool is read
    assert admitted.call == call("read", '{"path":  "a"}')


def test_a_refused_call_has_the_repaired_name_too() -> None:
    refused = admit_call(call("Remote-Pay", "{}"), TOOLS)
    assert refused.call.name == "remote_pay"


@pytest.mark.parametrize(
    ("name", "sealed", "runs"),
    [
        pytest.param("send_money", True, "pay", id="an earlier name"),
        pytest.param("send_money", False, None, id="a name that may be incomplete"),
        pytest.param("send_coins", True, None, id="another name"),
        pytest.param("read", True, "read", id="a present name"),
    ],
)
def test_an_earlier_name_runs_the_tool_with_its_present_name(
    name: str, sealed: bool, runs: str | None
) -> None:
    made = call(name, '{"amount": 1, "path": "a"}', sealed=sealed)
    earlier = {"send_money": "pay", "read": "pay"}
    tools = TOOLS | {"read": _loose("read"), "pay": _loose("pay")}
    decision = admit_call(made, tools, earlier_names=earlier)
    admitted = decision.tool.name if isinstance(decision, AdmittedCall) else None
    assert (admitted, decision.call.name) == (runs, runs or name)


def _loose(name: str) -> Tool:
    return Tool(
        name=name,
        risk=Risk.WRITE,
        schema=ToolSchema(name, "Takes any arguments.", {"type": "object"}),
        arguments=dict[str, Any],
        call=_foreign,
    )


def test_the_name_of_an_unsealed_call_is_not_repaired() -> None:
    assert isinstance(admit_call(call("Read", '{"path": "a"}', sealed=False), TOOLS), RefusedCall)
    assert isinstance(admit_call(call("Read", '{"path": "a"}'), TOOLS), AdmittedCall)


@pytest.mark.parametrize(
    ("name", "existing"),
    [
        ("lock_door", "unlock_door"),
        ("get_item", "set_item"),
        ("evh_echo", "ev_echo"),
        ("add_user1", "add_user2"),
        ("raed", "read"),
    ],
)
def test_a_similar_name_never_runs_another_tool(name: str, existing: str) -> None:
    made = call(name, '{"path": "a"}')
    refused = admit_call(made, {existing: read})
    assert isinstance(refused, RefusedCall)
    assert refused.call == made
    assert refused.text == (
        f"Nothing has run: there is no tool {name!r}. The nearest names are: {existing}."
    )


def test_a_call_of_a_tool_that_is_away_never_runs_one_with_the_same_letters() -> None:
    made = call("mail_echo", '{"path": "a"}')
    refused = admit_call(made, {"Mail_echo": read}, {"mail_echo"})
    assert isinstance(refused, RefusedCall)
    assert refused.call == made
    assert isinstance(admit_call(made, {"Mail_echo": read}), AdmittedCall)


@pytest.mark.parametrize(
    ("name", "names", "reserved", "found"),
    [
        pytest.param("Read_File", ["read_file", "write_file"], [], "read_file", id="letter case"),
        pytest.param("read-file", ["read_file"], [], "read_file", id="hyphen"),
        pytest.param("READ_FILE", ["Read-File"], [], "Read-File", id="case and hyphen"),
        pytest.param("readfile", ["read_file"], [], None, id="underscore missing"),
        pytest.param("read_file_", ["read_file"], [], None, id="underscore too many"),
        pytest.param("read_fiel", ["read_file"], [], None, id="two letters swapped"),
        pytest.param("read_file ", ["read_file"], [], None, id="a space"),
        pytest.param("Read_file", ["read_file", "read-file"], [], None, id="two candidates"),
        pytest.param("read-File", ["read_file"], ["read-file"], None, id="a reserved candidate"),
        pytest.param("READ_FILE", ["read_file"], ["read_file"], "read_file", id="the same name"),
        pytest.param("Read_File", [], ["read_file"], None, id="only a reserved candidate"),
        pytest.param("\u212aeep", ["keep"], [], None, id="a letter that only looks alike"),
        pytest.param("", ["a"], [], None, id="empty"),
        pytest.param("anything", [], [], None, id="no tools"),
    ],
)
def test_only_letter_case_and_hyphens_of_a_name_are_repaired(
    name: str, names: list[str], reserved: list[str], found: str | None
) -> None:
    assert repair_name(name, names, reserved) == found


def test_the_nearest_names_come_first() -> None:
    assert nearest_names("file_read", ["pay", "read_file", "file_reader"])[0] == "file_reader"


NAMES = st.text(alphabet="abAB_-", max_size=5)


@given(name=NAMES, names=st.sets(NAMES, max_size=6))
def test_a_repaired_name_has_the_same_letters(name: str, names: set[str]) -> None:
    found = repair_name(name, names)
    assert found is None or found in names
    if found is not None:
        assert found.lower().replace("-", "_") == name.lower().replace("-", "_")


@pytest.mark.parametrize(
    ("arguments", "as_run"),
    [
        pytest.param('{"amount": 1,}', '{"amount": 1}', id="closed"),
        pytest.param('```json\n{"amount": 1}\n```', '{"amount": 1}', id="fenced"),
        pytest.param(
            '{"amount": 1, "note": "a\nb"}', '{"amount": 1, "note": "a\\nb"}', id="line end"
        ),
    ],
)
def test_repaired_arguments_are_the_ones_that_run_and_are_shown(
    arguments: str, as_run: str
) -> None:
    admitted = admit_call(call("pay", arguments), TOOLS)
    assert isinstance(admitted, AdmittedCall)
    assert admitted.call == call("pay", as_run)


def test_arguments_of_an_unsealed_call_are_not_repaired() -> None:
    assert isinstance(admit_call(call("read", '{"path": "a",}', sealed=False), TOOLS), RefusedCall)


def test_an_unsealed_call_runs_only_if_its_tool_is_read_only() -> None:
    unsealed = call("pay", '{"amount": 1}', sealed=False)
    assert isinstance(admit_call(unsealed, TOOLS), RefusedCall)
    assert isinstance(admit_call(call("read", '{"path": "a"}', sealed=False), TOOLS), AdmittedCall)


@pytest.mark.parametrize("sealed", [True, False])
def test_every_prefix_of_a_call_is_refused(sealed: bool) -> None:
    whole = '{"amount": 100, "note": "for {this} and \\"that\\""}'
    for end in range(len(whole)):
        refused = admit_call(call("pay", whole[:end], sealed=sealed), TOOLS)
        assert isinstance(refused, RefusedCall), whole[:end]
        assert refused.call.arguments == whole[:end]
    assert call("pay", whole).arguments_state is ArgumentsState.COMPLETE


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ('{"amount": 1}', '{"note":"", "amount":1}', True),
        ('{"amount": 1, "note": "a"}', '{"note": "\\u0061", "amount": 1}', True),
        ('{"amount": 1}', '{"amount": 2}', False),
    ],
)
def test_the_identity_of_a_call_does_not_depend_on_its_notation(
    one: str, other: str, same: bool
) -> None:
    first, second = admit_call(call("pay", one), TOOLS), admit_call(call("pay", other), TOOLS)
    assert isinstance(first, AdmittedCall)
    assert isinstance(second, AdmittedCall)
    assert (first.identity == second.identity) is same


def test_the_identity_of_a_call_of_a_foreign_tool_does_not_depend_on_the_order_of_its_arguments() -> (
    None
):
    one, other = (
        admit_call(call("remote_pay", arguments), TOOLS)
        for arguments in ('{"to": "a", "amount": 1}', '{"amount": 1, "to": "a"}')
    )
    assert isinstance(one, AdmittedCall)
    assert isinstance(other, AdmittedCall)
    assert one.identity == other.identity
