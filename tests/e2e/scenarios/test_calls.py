"""Tool calls that are cut off, on three protocols: which ones run and which are requested again."""

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from agent.tools.contract import Risk, Tool, ToolContext
from agent.tools.define import tool
from sessions.records import TurnState
from sessions.store.schema import attempts
from tests.e2e.scenarios.scenario_kit import UNHURRIED, Stage, stage
from tests.fakes.dialects.steps import PROTOCOLS, ProtocolName
from tests.fakes.model_script import Event, Script, Step, call_delta, calls, steps

OK = 'H T"done" F stop U D EOF'
each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


def cut_call(call_id: str, name: str, arguments: str, ending: str, index: int = 0) -> Script:
    """Return a script that is cut off inside the arguments of a call."""
    return (*steps("H"), call_delta(index, call_id, name, arguments), *steps(ending))


def written(path: str, content: str) -> str:
    return json.dumps({"path": path, "content": content}, separators=(",", ":"))


def files(scene: Stage) -> dict[str, str]:
    """Return the files in the workspace, without internal ones."""
    if not scene.workspace.exists():
        return {}
    found = (path for path in scene.workspace.rglob("*") if path.is_file())
    return {
        str(path.relative_to(scene.workspace)): path.read_text()
        for path in found
        if ".holdfast" not in path.parts
    }


def made(scene: Stage, number: int) -> list[tuple[str, str]]:
    """Return the calls in the history of a request as (name, arguments)."""
    return [
        (call["name"], call["arguments"])
        for message in scene.asked(number)
        for call in message["tool_calls"]
    ]


# --- calls with only a name --------------------------------------------------------------------


@each_protocol
@pytest.mark.parametrize("name", ["write_file", "noop"])
async def test_a_call_with_only_a_name_does_not_run(
    tmp_path: Path, protocol: ProtocolName, name: str
) -> None:
    script = f"H C(0,c1,{name},-) EOF"
    async with stage(tmp_path, protocol, script, OK, timeouts=UNHURRIED) as scene:
        await scene.go()
        assert scene.desk.ran == []
        assert files(scene) == {}
        assert await scene.history() == ["U:go", "A:done"]
        assert scene.shown() == ["done"]
        assert set(scene.told.ids) <= {"N4"}
        assert len(scene.requests) == 2
        await scene.check()


@each_protocol
async def test_a_sealed_call_without_arguments_runs_if_none_are_required(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    async with stage(tmp_path, protocol, "H C(0,c1,noop,-) F tool_calls U D", OK) as scene:
        await scene.go()
        assert scene.desk.ran == ["noop"]
        assert await scene.history() == ["U:go", "A{noop}", "T:nothing", "A:done"]
        assert (await scene.rows())[1].tool_calls[0].arguments == "{}"
        await scene.check()


@each_protocol
async def test_a_call_without_required_arguments_does_not_run(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    async with stage(tmp_path, protocol, "H C(0,c1,pay,-) F tool_calls U D", OK, OK) as scene:
        await scene.go()
        assert scene.desk.ran == []
        assert scene.shown() == ["done"]
        await scene.check(readable=False)


async def test_the_journal_records_the_attempt_of_each_call(tmp_path: Path) -> None:
    def asked(connection: Connection) -> list[tuple[int, str]]:
        found = sa.select(attempts.c.number, attempts.c.request_hash).order_by(attempts.c.number)
        return [(number, mark) for number, mark in connection.execute(found)]

    call = calls(("c1", "noop", "{}"))
    async with stage(tmp_path, "chat", "S500", call, OK, timeouts=UNHURRIED) as scene:
        turn = await scene.go()
        assert [run.attempt for run in await scene.tool_runs(turn)] == [2]
        rows = await scene._store.database.read(asked)
        assert [number for number, _ in rows] == [1, 2, 3]
        first, again, other = (mark for _, mark in rows)
        assert first == again != other
        await scene.check()


# --- stalled arguments ---------------------------------------------------------------------------


CONTENT = "".join(f"line {number} of the file; " for number in range(150))[:3000]


@each_protocol
async def test_a_stalled_long_call_is_requested_in_smaller_parts(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    arguments = written("a", CONTENT).removesuffix('"}')
    received = len(arguments.encode())
    first = (*steps("H W.1"), call_delta(0, "c1", "write_file", arguments), *steps("HANG"))
    smaller = calls(
        ("c2", "write_file", written("a", "part1")), ("c3", "write_file", written("b", "part2"))
    )
    async with stage(tmp_path, protocol, first, smaller, OK) as scene:
        await scene.go()
        hung, again, _ = scene.requests
        assert hung.closed_at is not None
        assert hung.closed_at - hung.at == pytest.approx(0.9, abs=0.15)
        assert again.at - hung.closed_at < 0.1
        (asked,) = scene.asked(2)
        assert asked["role"] == "user"
        assert asked["content"].startswith("go\n\n[")
        assert "`write_file`" in asked["content"]
        assert f"{received:,} bytes received" in asked["content"]
        assert 3000 < received < 3100
        assert "not run" in asked["content"]
        assert "8K tokens" in asked["content"]
        assert "as draft d" in asked["content"]
        assert f"«{CONTENT[-200:]}»" in asked["content"]
        assert again.body != hung.body
        assert "N4" in scene.told.ids
        assert files(scene) == {"a": "part1", "b": "part2"}
        short = await scene.history()
        assert [row.partition(":")[0] for row in short] == [
            "U",
            "A{write_file,write_file}",
            "T",
            "T",
            "A",
        ]
        assert short[-1] == "A:done"
        for row in await scene.rows():
            assert CONTENT[:40] not in row.content
            assert all(CONTENT[:40] not in call.arguments for call in row.tool_calls)
        await scene.check()


def publishing() -> tuple[Tool, list[str]]:
    """Return a tool with a long parameter and without drafts."""
    published: list[str] = []

    @tool(risk=Risk.WRITE, grows="text")
    async def publish(_context: ToolContext, place: str, text: str) -> str:
        """Publish a text."""
        published.append(f"{place}: {text}")
        return "published"

    return publish, published


@each_protocol
async def test_without_a_draft_the_model_is_told_not_to_make_the_same_call_again(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    publish, published = publishing()
    arguments = json.dumps({"place": "blog", "text": CONTENT})[:-2]
    small = calls(("c2", "publish", '{"place":"blog","text":"short"}'))
    first = cut_call("c1", "publish", arguments, "RST")
    async with stage(tmp_path, protocol, first, small, OK, tools=(publish,)) as scene:
        await scene.go()
        asked = scene.asked(2)[-1]["content"]
        assert "`publish`" in asked
        assert "not make the same call with the same content" in asked
        assert "several smaller calls" in asked
        assert "draft" not in asked
        assert published == ["blog: short"]
        assert "N4" in scene.told.ids
        await scene.check()


async def test_repeated_losses_of_a_tool_halve_the_requested_size(
    tmp_path: Path,
) -> None:
    publish, published = publishing()
    arguments = json.dumps({"place": "blog", "text": CONTENT})[:-2]
    cuts = [cut_call(f"c{number}", "publish", arguments, "RST") for number in range(4)]
    async with stage(tmp_path, "chat", *cuts, OK, tools=(publish,)) as scene:
        await scene.go()
        asked = [scene.asked(number)[-1]["content"] for number in range(2, 6)]
        assert ["8K tokens" in each for each in asked] == [True, False, False, False]
        assert ["4K tokens" in each for each in asked] == [False, True, False, False]
        assert ["2K tokens" in each for each in asked] == [False, False, True, False]
        assert "plain words" in asked[3]
        limits = [
            request.tools["publish"]["properties"]["text"].get("maxLength")
            for request in scene.requests[:4]
        ]
        assert limits == [None, None, 6000, 6000]
        assert "publish" not in scene.requests[4].tools
        assert published == []
        assert await scene.history() == ["U:go", "A:done"]
        await scene.check()


async def test_a_tool_whose_calls_are_always_lost_ends_the_turn_with_its_cause(
    tmp_path: Path,
) -> None:
    publish, published = publishing()
    arguments = json.dumps({"place": "blog", "text": CONTENT})[:-2]
    cuts = [cut_call(f"c{number}", "publish", arguments, "RST") for number in range(9)]
    async with stage(tmp_path, "chat", *cuts, tools=(publish,)) as scene:
        turn = await scene.go()
        assert turn.state is TurnState.FAILED
        assert published == []
        assert len(scene.requests) == 5
        (notice,) = scene.shown()
        assert "connection drops" in notice
        assert await scene.history() == ["U:go"]
        await scene.check()


async def test_a_turn_without_progress_ends_after_twelve_recoveries(tmp_path: Path) -> None:
    cuts = [cut_call("c1", f"tool_{number}", '{"x": "', "RST") for number in range(20)]
    async with stage(tmp_path, "chat", *cuts) as scene:
        turn = await scene.go()
        assert turn.state is TurnState.FAILED
        assert len(scene.requests) == 13
        assert await scene.history() == ["U:go"]
        await scene.check()


async def test_completed_tools_reset_the_recovery_budget(tmp_path: Path) -> None:
    cuts = [cut_call("c1", f"tool_{number}", '{"x": "', "RST") for number in range(16)]
    read = calls(("c1", "read", '{"path":"a"}'))
    async with stage(tmp_path, "chat", *cuts[:8], read, *cuts[8:], OK) as scene:
        turn = await scene.go()
        assert turn.state is TurnState.DONE
        assert len(scene.requests) == 18
        assert scene.desk.ran == ["read a"]
        await scene.check()


@each_protocol
async def test_text_before_a_cut_call_is_kept_and_not_repeated(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    first = (
        *steps('H T"Writing it now."'),
        call_delta(0, "c1", "write_file", '{"path":"a","content":"some'),
        *steps("RST"),
    )
    second = calls(("c2", "write_file", written("a", "all of it")))
    async with stage(tmp_path, protocol, first, second, OK) as scene:
        await scene.go()
        *_, shown, asked = scene.asked(2)
        assert (shown["role"], shown["content"]) == ("assistant", "Writing it now.")
        assert shown["tool_calls"] == []
        assert "`write_file`" in asked["content"]
        assert "network error" not in asked["content"]
        assert "repeating these last words verbatim, «Writing it now.»" in asked["content"]
        rows = await scene.rows()
        assert rows[1].content == "Writing it now."
        assert [call.id for call in rows[1].tool_calls] == ["c2"]
        assert files(scene) == {"a": "all of it"}
        assert scene.shown()[0].count("Writing it now.") == 1
        await scene.check()


async def test_at_most_three_lost_calls_are_listed(tmp_path: Path) -> None:
    # All unsealed calls are lost together when the answer is capped.
    names = ("pay", "noop", "sleepy", "write_file", "edit_file")
    begun = [call_delta(n, f"c{n}", name, '{"x": "') for n, name in enumerate(names)]
    first = (*steps("H"), *begun, *steps("F length U D"))
    async with stage(tmp_path, "chat", first, OK) as scene:
        await scene.go()
        asked = scene.asked(2)[-1]["content"]
        assert sum(f"`{name}`" in asked for name in names) == 3
        assert scene.desk.ran == []
        await scene.check()


# --- truncated calls that look complete ----------------------------------------------------------


REPAIRABLE = ["EOF", "RST", "F tool_calls U(64) D EOF"]


@each_protocol
@pytest.mark.parametrize("ending", REPAIRABLE, ids=["end", "reset", "limit"])
async def test_no_brace_is_added_to_a_truncated_call(
    tmp_path: Path, protocol: ProtocolName, ending: str
) -> None:
    first = cut_call("c1", "pay", '{"amount": 1', ending)
    second = calls(("c2", "pay", '{"amount": 100}'))
    options: dict[str, Any] = {"max_output_tokens": 64}
    async with stage(tmp_path, protocol, first, second, OK, model=options) as scene:
        turn = await scene.go()
        assert scene.desk.ran == ["pay 100"]
        assert await scene.history() == ["U:go", "A{pay}", "T:paid 100", "A:done"]
        assert [run.arguments for run in await scene.tool_runs(turn)] == ['{"amount": 100}']
        assert len(scene.requests) == 3
        await scene.check()


@each_protocol
@pytest.mark.parametrize("ending", ["EOF", "RST", "HANG"])
async def test_an_unsealed_side_effecting_call_is_requested_again(
    tmp_path: Path, protocol: ProtocolName, ending: str
) -> None:
    first = cut_call("c1", "pay", '{"amount": 7}', ending)
    second = calls(("c2", "pay", '{"amount": 7}'))
    async with stage(tmp_path, protocol, first, second, OK) as scene:
        await scene.go()
        assert scene.desk.ran == ["pay 7"]
        assert "`pay`; it has not run" in scene.asked(2)[-1]["content"]
        assert made(scene, 2) == []
        rows = await scene.rows()
        assert [call.id for call in rows[1].tool_calls] == ["c2"]
        await scene.check()


@each_protocol
async def test_an_unsealed_read_only_call_runs(tmp_path: Path, protocol: ProtocolName) -> None:
    async with stage(tmp_path, protocol, 'H C(0,c1,read,{"path":"a"}) RST', OK) as scene:
        await scene.go()
        assert scene.desk.ran == ["read a"]
        assert await scene.history() == ["U:go", "A{read}", "T:content of a", "A:done"]
        assert len(scene.requests) == 2
        await scene.check()


# --- siblings ------------------------------------------------------------------------------------


BEGUN = '{"path":"n.txt","content":"the first pa'


def _siblings() -> tuple[Step, ...]:
    return (
        *steps('H C(0,c1,read,{"path":"a"}) C(1,c2,pay,{"amount":5})'),
        call_delta(2, "c3", "write_file", BEGUN),
        *steps("W.1 RST"),
    )


@each_protocol
async def test_calls_before_a_cut_one_run_and_only_the_cut_one_is_redone(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    second = calls(("c4", "write_file", written("n.txt", "the first part")))
    async with stage(tmp_path, protocol, _siblings(), second, OK) as scene:
        turn = await scene.go()
        assert scene.desk.ran == ["read a", "pay 5"]
        broken = scene.requests[0]
        assert broken.closed_at is not None
        assert min(scene.desk.at) - broken.at > 0.09, "ran before the answer was judged"
        user, made_calls, first, paid, told = scene.asked(2)
        assert user["content"] == "go"
        assert made(scene, 2) == [("read", '{"path":"a"}'), ("pay", '{"amount":5}')]
        assert [call["id"] for call in made_calls["tool_calls"]] == ["c1", "c2"]
        assert (first["tool_call_id"], first["content"]) == ("c1", "content of a")
        assert (paid["tool_call_id"], paid["content"]) == ("c2", "paid 5")
        assert told["role"] == "user"
        assert f"`write_file` (cut off after {len(BEGUN)} bytes received)" in told["content"]
        assert "pay (c2)" in told["content"]
        assert "Do not repeat these" in told["content"]
        ids = [call["id"] for m in scene.asked(2) for call in m["tool_calls"]]
        assert ids + [m["tool_call_id"] for m in scene.asked(2) if m["role"] == "tool"] == [
            *("c1", "c2", "c1", "c2")
        ]
        (warned,) = {words for notice, words in scene.told.notices if notice == "N4"}
        assert warned.startswith("⚠️ write_file was cut off")
        history = await scene.history()
        assert [row.partition(":")[0] for row in history] == [
            "U",
            "A{read,pay}",
            "T",
            "T",
            "A{write_file}",
            "T",
            "A",
        ]
        assert files(scene) == {"n.txt": "the first part"}
        assert [run.call_id for run in await scene.tool_runs(turn)] == ["c1", "c2", "c4"]
        assert len(scene.requests) == 3
        await scene.check()


@each_protocol
async def test_a_payment_repeated_after_a_cut_is_answered_from_the_journal(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    second = calls(
        ("c9", "pay", '{ "amount": 5 }'), ("c4", "write_file", written("n.txt", "the first part"))
    )
    async with stage(tmp_path, protocol, _siblings(), second, OK) as scene:
        await scene.go()
        assert scene.desk.ran.count("pay 5") == 1
        results = {row.tool_call_id: row.content for row in await scene.rows() if row.tool_call_id}
        assert results["c9"] == "already done in this turn (call c2): paid 5"
        assert files(scene) == {"n.txt": "the first part"}
        await scene.check()


async def test_the_same_payment_later_in_the_turn_runs_normally(tmp_path: Path) -> None:
    write = calls(("c4", "write_file", written("n.txt", "whole")))
    pay = calls(("c9", "pay", '{"amount":5}'))
    async with stage(tmp_path, "chat", _siblings(), write, pay, OK) as scene:
        await scene.go()
        assert scene.desk.ran.count("pay 5") == 2
        await scene.check()


@each_protocol
async def test_a_payment_is_not_repeated_when_the_following_answer_is_cut(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    pay = calls(("c1", "pay", '{"amount":5}'))
    again = calls(("c2", "pay", '{"amount":5}'))
    async with stage(tmp_path, protocol, pay, "H RST", again, OK) as scene:
        turn = await scene.go()
        assert scene.desk.ran == ["pay 5"]
        assert [run.call_id for run in await scene.tool_runs(turn)] == ["c1"]
        assert (await scene.history())[-2] == "T:already done in this turn (call c1): paid 5"
        await scene.check()


# --- relabelled output limit ---------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["tool_calls", "stop", "length"])
@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "unstreamed"])
@each_protocol
async def test_a_capped_call_is_requested_smaller_and_with_a_higher_limit(
    tmp_path: Path, protocol: ProtocolName, streams: bool, reason: str
) -> None:
    first = cut_call("c1", "write_file", '{"path":"a","content":"the first', f"F {reason} U(64) D")
    second = calls(("c2", "write_file", written("a", "small")))
    refused = [] if streams else ['S400"Streaming is not supported for this model."']
    scripts = (*refused, first, second, OK)
    async with stage(tmp_path, protocol, *scripts, model={"max_output_tokens": 64}) as scene:
        turn = await scene.go()
        assert turn.state is TurnState.DONE
        *_, cut, again, _ = scene.requests
        assert [cut.stream, again.stream] == [streams, streams]
        assert (cut.max_tokens, again.max_tokens) == (64, 128)
        asked = again.messages[-1]["content"]
        assert "`write_file`" in asked
        assert "smaller calls" in asked or "in several calls" in asked
        assert "N4" in scene.told.ids
        assert files(scene) == {"a": "small"}
        short = await scene.history()
        assert [row.partition(":")[0] for row in short] == ["U", "A{write_file}", "T", "A"]
        await scene.check()


# --- call assembly -------------------------------------------------------------------------------


def _chunk(delta: dict[str, Any]) -> Event:
    event = {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    return Event(json.dumps(event).encode())


def _at_once(*entries: dict[str, Any]) -> tuple[Step, ...]:
    return (_chunk({"tool_calls": list(entries)}),)


def _entry(path: str) -> dict[str, Any]:
    function = {"name": "read", "arguments": json.dumps({"path": path})}
    return {"type": "function", "function": function}


def _called(said: Script) -> Script:
    return (*steps("H"), *steps(said), *steps("F tool_calls U D"))


INDEX_ZERO: dict[str, Script] = {
    "two ids at one index": 'C(0,c1,read,{"path":"a"}) C(0,c2,read,{"path":"b"})',
    "no index, two in one event": _at_once(_entry("a"), _entry("b")),
}


@pytest.mark.parametrize("said", INDEX_ZERO.values(), ids=INDEX_ZERO)
async def test_two_calls_are_separated_for_any_index_scheme(tmp_path: Path, said: Script) -> None:
    async with stage(tmp_path, "chat", _called(said), OK) as scene:
        await scene.go()
        assert sorted(scene.desk.ran) == ["read a", "read b"]
        assert await scene.history() == [
            "U:go",
            "A{read,read}",
            "T:content of a",
            "T:content of b",
            "A:done",
        ]
        await scene.check()


ONE_CALL: dict[str, Script] = {
    "a new id for each piece": "C(0,c1,read,'{\"pa') C(0,x2,-,'th\":') C(0,x3,-,'\"a\"}')",
    "the old kind of call": (
        _chunk({"function_call": {"name": "read", "arguments": '{"path":'}}),
        _chunk({"function_call": {"arguments": '"a"}'}}),
    ),
}


@pytest.mark.parametrize("said", ONE_CALL.values(), ids=ONE_CALL)
async def test_one_call_is_assembled_from_any_split(tmp_path: Path, said: Script) -> None:
    async with stage(tmp_path, "chat", _called(said), OK) as scene:
        await scene.go()
        assert scene.desk.ran == ["read a"]
        assert await scene.history() == ["U:go", "A{read}", "T:content of a", "A:done"]
        await scene.check()


async def test_a_call_id_of_an_earlier_turn_is_not_reused(tmp_path: Path) -> None:
    call = calls(("c1", "read", '{"path":"a"}'))
    async with stage(tmp_path, "chat", call, OK, call, OK) as scene:
        await scene.go()
        await scene.go()
        made_ids = [c.id for row in await scene.rows() for c in row.tool_calls]
        assert len(set(made_ids)) == 2
        results = [row.tool_call_id for row in await scene.rows() if row.role == "tool"]
        assert results == made_ids
        await scene.check()


async def test_extra_content_of_a_call_is_replayed_to_the_service(tmp_path: Path) -> None:
    extra = {"google": {"thought_signature": "c2lnbmVk"}}
    entry = {"index": 0, "id": "c1", **_entry("a"), "extra_content": extra}
    async with stage(tmp_path, "chat", _called(_at_once(entry)), OK) as scene:
        await scene.go()
        sent = [m for m in scene.requests[1].body["messages"] if m.get("tool_calls")]
        assert sent[0]["tool_calls"][0]["extra_content"] == extra
        await scene.check()


async def test_extra_content_of_a_call_may_arrive_separately(tmp_path: Path) -> None:
    extra = {"google": {"thought_signature": "c2lnbmVk"}}
    alone = _at_once({"index": 0, "extra_content": extra})
    whole = (*steps('C(0,c1,read,{"path":"a"})'), *alone)
    async with stage(tmp_path, "chat", _called(whole), OK) as scene:
        await scene.go()
        sent = [m for m in scene.requests[1].body["messages"] if m.get("tool_calls")]
        assert sent[0]["tool_calls"][0]["extra_content"] == extra
        assert scene.desk.ran == ["read a"]
        await scene.check()


@each_protocol
async def test_text_before_a_call_is_kept_in_the_same_row(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    script = 'H T"Let me see." C(0,c1,read,{"path":"a"}) F tool_calls U D'
    async with stage(tmp_path, protocol, script, OK) as scene:
        await scene.go()
        assert await scene.history() == [
            "U:go",
            "A{read}:Let me see.",
            "T:content of a",
            "A:done",
        ]
        sent = next(m for m in scene.asked(2) if m["tool_calls"])
        assert sent["content"] == "Let me see."
        assert [text.split() for text in scene.shown()] == [["Let", "me", "see.", "done"]]
        await scene.check()


async def test_text_after_a_call_is_shown(tmp_path: Path) -> None:
    script = 'H C(0,c1,read,{"path":"a"}) T"Looking." F tool_calls U D'
    async with stage(tmp_path, "chat", script, OK) as scene:
        await scene.go()
        assert (await scene.history())[1] == "A{read}:Looking."
        assert "Looking." in scene.shown()[0]
        await scene.check()


@each_protocol
async def test_a_call_without_text_shows_no_text(tmp_path: Path, protocol: ProtocolName) -> None:
    script = 'H C(0,c1,read,{"path":"a"}) F tool_calls U D'
    async with stage(tmp_path, protocol, script, OK) as scene:
        await scene.go()
        assert scene.shown() == ["done"]
        await scene.check()
