from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
import time_machine

from agent.errors import ToolError
from agent.model.contract import ToolSchema
from agent.tools.clock import current_time
from agent.tools.contract import Risk, Tool, ToolContext
from agent.tools.define import tool
from agent.tools.drafts import DraftStore
from agent.tools.registry import BUILT_IN, ToolRegistry, filter_enabled, load_entry_points
from agent.tools.run import CallContext
from sessions.values.clock import SystemClock
from tests.fakes.distribution import write_distribution

CONTEXT = CallContext(
    clock=SystemClock(),
    workspace=Path(),
    idempotency_key="key",
    drafts=DraftStore(Path(), SystemClock()),
)


class Spot(msgspec.Struct):
    x: int


@tool(risk=Risk.WRITE, timeout=5, emoji="📌", parallel=True, label="name")
async def pin(
    context: ToolContext, name: str, spot: Spot, colour: Literal["red", "blue"] = "red"
) -> str:
    """Put a pin on the map.

    It stays there.

    Args:
        context: Not part of the call.
        name: What to call it, in
            two lines.
        spot: Where.
    """
    return f"{name} {spot.x} {colour} {context.idempotency_key}"


def a_tool(**given: Any) -> Tool:
    """Return a tool as another distribution may build one."""
    fields = {"name": "far", "risk": Risk.NET, "arguments": dict, "call": pin.call, **given}
    return Tool(schema=ToolSchema("far", "Far away.", {"type": "object"}), **fields)


def test_a_tool_that_says_nothing_about_itself_asks_and_runs_alone() -> None:
    far = a_tool()
    assert far.must_ask
    assert not far.parallel
    assert (far.label, far.touches, far.grows, far.family) == ("", "", "", "")
    assert far.change == ""
    assert (far.timeout, far.check) == (None, None)


@pytest.mark.parametrize(
    ("risk", "sends", "asks"),
    [
        (Risk.READ, True, False),
        (Risk.WRITE, True, False),
        (Risk.EXEC, True, True),
        (Risk.EXEC, False, True),
        (Risk.NET, True, True),
        (Risk.NET, False, False),
    ],
)
def test_programs_and_calls_that_send_ask_first(risk: Risk, *, sends: bool, asks: bool) -> None:
    assert a_tool(risk=risk, sends=sends).must_ask is asks


@pytest.mark.parametrize(
    ("risk", "asks", "change", "must_ask"),
    [
        pytest.param(Risk.EXEC, False, "", False, id="a trusted program"),
        pytest.param(Risk.NET, False, "", False, id="a trusted call that sends"),
        pytest.param(Risk.READ, True, "", True, id="a reader that asks"),
        pytest.param(Risk.EXEC, False, "new words", True, id="a program changed since"),
        pytest.param(Risk.NET, False, "new words", True, id="a call that sends, changed since"),
        pytest.param(Risk.EXEC, None, "new words", True, id="changed without a setting"),
    ],
)
def test_the_setting_of_a_tool_decides_until_the_tool_changes(
    risk: Risk, asks: bool | None, change: str, must_ask: bool
) -> None:
    assert a_tool(risk=risk, asks=asks, change=change).must_ask is must_ask


@pytest.mark.parametrize(
    ("risk", "sends", "only_reads"),
    [
        (Risk.READ, True, True),
        (Risk.READ, False, True),
        (Risk.WRITE, True, False),
        (Risk.WRITE, False, False),
        (Risk.EXEC, True, False),
        (Risk.EXEC, False, False),
        (Risk.NET, True, False),
        (Risk.NET, False, True),
    ],
)
def test_readers_and_network_tools_that_send_nothing_only_read(
    risk: Risk, *, sends: bool, only_reads: bool
) -> None:
    assert a_tool(risk=risk, sends=sends).only_reads is only_reads


def test_the_built_in_tools_are_complete() -> None:
    assert [each.name for each in BUILT_IN] == [
        "current_time",
        "read_file",
        "write_file",
        "write_file_continue",
        "edit_file",
        "list_dir",
        "search_files",
        "send_file",
    ]


def test_only_tools_of_enabled_families_and_tools_without_a_family_are_offered() -> None:
    free, web, shell = a_tool(), a_tool(family="web"), a_tool(family="shell")
    assert filter_enabled((free, web, shell), {"web"}) == (free, web)
    assert filter_enabled((free, web, shell), ()) == (free,)


def test_signature_and_docstring_become_the_schema() -> None:
    assert (pin.name, pin.risk, pin.timeout, pin.emoji, pin.parallel, pin.label) == (
        "pin",
        Risk.WRITE,
        5,
        "📌",
        True,
        "name",
    )
    assert not pin.read_only
    assert pin.schema.description == "Put a pin on the map.\n\nIt stays there."
    assert pin.schema.parameters == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "What to call it, in two lines."},
            "spot": {"description": "Where.", "$ref": "#/$defs/Spot"},
            "colour": {"enum": ["blue", "red"], "default": "red"},
        },
        "required": ["name", "spot"],
        "additionalProperties": False,
        "$defs": {
            "Spot": {
                "title": "Spot",
                "type": "object",
                "properties": {"x": {"type": "integer"}},
                "required": ["x"],
            }
        },
    }


async def test_a_decoded_call_reaches_the_function() -> None:
    arguments = msgspec.json.decode('{"name":"a","spot":{"x":1}}', type=pin.arguments)
    assert await pin.call(arguments, CONTEXT) == "a 1 red key"


def test_a_tool_without_a_docstring_is_an_error_at_start_up() -> None:
    async def silent(_context: ToolContext) -> str:
        return ""

    with pytest.raises(TypeError, match="silent needs a docstring"):
        tool(risk=Risk.READ)(silent)


def test_a_label_that_is_not_an_argument_is_an_error_at_start_up() -> None:
    async def labelled(_context: ToolContext) -> str:
        """Do it."""
        return ""

    with pytest.raises(TypeError, match="no argument 'path'"):
        tool(risk=Risk.READ, label="path")(labelled)


def test_two_tools_with_one_name_are_an_error_at_start_up() -> None:
    with pytest.raises(ValueError, match="Two tools are named 'pin'"):
        ToolRegistry([pin, pin])


def test_a_registry_lists_its_tools() -> None:
    registry = ToolRegistry([pin])
    assert (list(registry), len(registry), registry.schemas) == ([pin], 1, (pin.schema,))
    assert current_time in ToolRegistry()
    assert registry.earlier_names == {}
    assert ToolRegistry([pin], earlier_names={"tack": "pin"}).earlier_names == {"tack": "pin"}
    assert all(isinstance(each, Tool) for each in BUILT_IN)


def test_tools_of_other_distributions_are_loaded_from_entry_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_distribution(
        tmp_path, "guest", "[holdfast.tools]\nclock = agent.tools.clock:current_time\n"
    )
    assert load_entry_points() == ()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load_entry_points() == (current_time,)


@time_machine.travel("2026-11-18T12:00:00+00:00", tick=False)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("{}", "Wednesday, 2026-11-18 12:00:00 UTC (UTC+0000)"),
        ('{"timezone":"Europe/Berlin"}', "Wednesday, 2026-11-18 13:00:00 CET (UTC+0100)"),
    ],
)
async def test_the_clock_returns_the_time_in_any_zone(arguments: str, said: str) -> None:
    given = msgspec.json.decode(arguments, type=current_time.arguments)
    assert await current_time.call(given, CONTEXT) == said


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../etc/passwd", ""])
async def test_an_unknown_time_zone_is_an_error(zone: str) -> None:
    given = current_time.arguments(timezone=zone)
    with pytest.raises(ToolError, match="no time zone"):
        await current_time.call(given, CONTEXT)
