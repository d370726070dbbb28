"""Turns that lose tool calls, file contents, or their process."""

import json
import shutil
from typing import Any

import msgspec
import pytest

from agent.events import TextDelta, TurnEnding
from agent.tools.contract import Risk, ToolContext
from agent.tools.define import tool
from agent.tools.files.writing import write_file, write_file_continue
from sessions.records import Message, ToolCall, ToolRun
from tests.fakes.model_script import Script, body_of, call_delta, calls, cut, ok, steps
from tests.fakes.model_server import always
from tests.unit.agent.turn_kit import CLOCKS, GO, LOST_PAY, PAY, Play, lost_file, lost_note, note

pytestmark = pytest.mark.quick

# --- cut calls --------------------------------------------------------------------------------


async def test_a_long_cut_call_is_requested_in_smaller_parts(play: Play) -> None:
    stage = await play(lost_note(3000), calls(("c1", "note", '{"text":"part"}')), ok("done"))
    done = await stage.run()
    assert (done.text, done.tools_run) == ("done", ("note",))
    asked = stage.asked(2)
    assert "`note` (cut off after 3,009 bytes received)" in asked
    assert "has not run" in asked
    assert "8K tokens" in asked
    assert "maxLength" not in stage.offered(2)["note"]["properties"]["text"]
    assert stage.notices == ["N4"]
    assert stage.notice("N4") == {"tool": "note"}
    assert stage.sent(3)[1:2] == [{"role": "user", "content": "go"}]
    assert "xxx" not in json.dumps(stage.sent(3))


async def test_a_short_cut_call_is_retried_silently_and_reported_the_second_time(
    play: Play,
) -> None:
    stage = await play(f"H {LOST_PAY} RST", f"H {LOST_PAY} RST", calls(PAY), ok("done"))
    await stage.run()
    assert stage.sent(2) == stage.sent(1)
    assert "`pay`" in stage.asked(3)
    assert stage.notices == ["N4"]  # smaller parts are requested only the second time
    assert stage.shop.effects == ["pay 5"]


async def test_retrying_a_short_cut_call_emits_a_notice_when_slow(play: Play) -> None:
    stage = await play(f"H {LOST_PAY} RST", calls(PAY), ok("done"))
    stage.settings = {"timeouts": msgspec.structs.replace(CLOCKS, notice_after=0.06, backoff=1.0)}
    await stage.run()
    assert [each for each in stage.notices if each != "N1"] == ["N2"]
    assert stage.shop.effects == ["pay 5"]


async def test_each_loss_halves_the_limit_until_the_tool_is_withheld(play: Play) -> None:
    stage = await play(*[lost_note(3000)] * 4, 'H T"I could not note it." F stop D')
    done = await stage.run()
    assert (done.ending, done.text, done.attempts) == (
        TurnEnding.ANSWERED,
        "I could not note it.",
        5,
    )
    limits = [f"{limit}K tokens" in stage.asked(at) for at, limit in ((2, 8), (3, 4), (4, 2))]
    assert all(limits)
    longest = [stage.offered(at)["note"]["properties"]["text"].get("maxLength") for at in (2, 3, 4)]
    assert longest == [None, 6000, 6000]
    assert "maxLength" not in json.dumps(stage.offered(4)["pay"])
    assert "note" not in stage.offered(5)
    assert "pay" in stage.offered(5)
    assert "`note` is not available" in stage.asked(5)


async def test_a_loss_after_the_tool_was_withheld_ends_the_turn(play: Play) -> None:
    stage = await play(always(lost_note(3000)))
    done = await stage.run()
    assert (done.ending, done.attempts) == (TurnEnding.FAILED, 5)


async def test_a_capped_call_is_requested_in_parts_at_once(play: Play) -> None:
    stage = await play(f"H {LOST_PAY} F tool_calls U(100) D", ok("done"))
    stage.settings = {"max_output_tokens": 100}
    await stage.run()
    assert [request.max_tokens for request in stage.server.requests] == [100, 200]
    assert "smaller calls" in stage.asked(2)


async def test_an_unsealed_call_is_requested_again(play: Play) -> None:
    stage = await play('H C(0,c1,pay,{"amount":5}) EOF', calls(PAY), ok("done"))
    done = await stage.run()
    assert (done.text, stage.shop.effects) == ("done", ["pay 5"])
    assert "`pay`; it has not run" in stage.asked(2)
    assert [message["role"] for message in stage.sent(2)] == ["system", "user"]
    assert "smaller" not in stage.asked(2)
    assert stage.notices == []


async def test_a_call_that_stays_unsealed_is_requested_in_smaller_parts(
    play: Play,
) -> None:
    unproven = 'H C(0,c1,pay,{"amount":5}) EOF'
    stage = await play(*[unproven] * 3, calls(PAY), ok("done"))
    done = await stage.run()
    assert (done.text, stage.shop.effects) == ("done", ["pay 5"])
    assert "make the same call again" in stage.asked(3)
    assert "`pay` (cut off after 12 bytes received)" in stage.asked(4)
    assert "make the same call again" not in stage.asked(4)
    assert "smaller calls" in stage.asked(4)
    assert [each for each in stage.notices if each == "N4"] == ["N4"]
    assert stage.notice("N4") == {"tool": "pay"}


async def test_a_capped_call_after_completed_calls_gets_a_higher_limit(
    play: Play,
) -> None:
    first = f'H C(0,c2,read,{{"path":"a"}}) {LOST_PAY.replace("0,c1", "1,c3")} F length U(100) D'
    stage = await play(first, calls(PAY), ok("done"))
    stage.settings = {"max_output_tokens": 100}
    await stage.run()
    assert stage.shop.effects == ["read a", "pay 5"]
    assert [request.max_tokens for request in stage.server.requests] == [100, 200, 100]


async def test_a_cut_call_after_completed_calls_keeps_the_limit(play: Play) -> None:
    first = f'H C(0,c2,read,{{"path":"a"}}) {LOST_PAY.replace("0,c1", "1,c3")} RST'
    stage = await play(first, calls(PAY), ok("done"))
    stage.settings = {"max_output_tokens": 100}
    await stage.run()
    assert [request.max_tokens for request in stage.server.requests] == [100, 100, 100]


async def test_an_unsealed_read_only_call_runs(
    play: Play,
) -> None:
    stage = await play('H C(0,c1,read,{"path":"a"}) EOF', ok("done"))
    assert (await stage.run()).text == "done"
    assert stage.shop.effects == ["read a"]
    assert len(stage.server.requests) == 2


async def test_complete_calls_run_and_only_lost_ones_are_reported(play: Play) -> None:
    first = (
        *steps('H T"Both. " C(0,c1,read,{"path":"a"}) C(1,c2,pay,{"amount":5})'),
        call_delta(2, "c3", "note", '{"text":"' + "x" * 3000),
        *steps("RST"),
    )
    stage = await play(first, calls(("c4", "note", '{"text":"x"}')), ok("done"))
    done = await stage.run()
    assert (done.text, done.attempts) == ("done", 3)
    assert stage.shop.effects == ["read a", "pay 5"]
    assert stage.notices == ["N4"]
    roles = [message["role"] for message in stage.sent(2)]
    assert roles == ["system", "user", "assistant", "tool", "tool", "user"]
    assert [call["id"] for call in stage.sent(2)[2]["tool_calls"]] == ["c1", "c2"]
    assert "`note`" in stage.asked(2)
    assert "read (c1), pay (c2)" in stage.asked(2)
    assert [message["role"] for message in stage.sent(3)][-2:] == ["assistant", "tool"]


async def test_a_completed_call_is_not_repeated_after_a_loss(play: Play) -> None:
    first = (
        *steps('H C(0,c1,pay,{"amount":5})'),
        call_delta(1, "c2", "note", '{"text":"' + "x" * 3000),
        *steps("RST"),
    )
    again = ("c3", "pay", '{"amount": 5}')
    stage = await play(first, calls(again), calls(("c4", "pay", '{"amount": 5}')), ok("done"))
    await stage.run()
    assert stage.shop.effects == [
        "pay 5",
        "pay 5",
    ]  # the third call is deliberate, not a repetition
    answered = [row.content for row in stage.journal.rows if row.tool_call_id == "c3"]
    assert answered[0].startswith("already done in this turn (call c1)")


async def test_a_completed_call_is_not_repeated_after_a_dropped_request(play: Play) -> None:
    stage = await play(calls(PAY), "H RST", calls(("c9", "pay", '{"amount": 5}')), ok("done"))
    await stage.run()
    assert stage.shop.effects == ["pay 5"]


async def test_visible_text_is_continued_with_a_lost_call(play: Play) -> None:
    stage = await play(f'H T"I pay. " {LOST_PAY} RST', calls(PAY), ok("done"))
    await stage.run()
    assert stage.sent(2)[-2] == {"role": "assistant", "content": "I pay. "}
    assert "repeating these last words verbatim, «I pay. »" in stage.asked(2)
    assert stage.shown == "I pay. done"
    assert [row.content for row in stage.journal.rows if row.role == "assistant"] == ["I pay. "]


@pytest.mark.process
async def test_a_payment_runs_at_most_once_for_any_cut(play: Play) -> None:
    whole = 'H T"ok" C(0,c1,pay,{"amount":5}) F tool_calls U D'
    for after in range(0, len(body_of(whole)), 17):
        for ending in ("RST", "EOF"):
            stage = await play(cut(whole, after, ending), *[ok("done")] * 3)
            done = await stage.run()
            assert stage.shop.effects in ([], ["pay 5"]), (after, ending)
            assert done.ending is TurnEnding.ANSWERED, (after, ending)
            assert done.text.endswith("done")


# --- cut files --------------------------------------------------------------------------------


async def test_a_cut_file_is_kept_as_a_draft_and_finished(play: Play) -> None:
    def go_on(body: dict[str, Any]) -> Script:
        last = body["messages"][-1]
        if last["role"] == "tool":
            return ok("done")
        if "draft" not in last["content"]:
            return lost_file("line one\nline two")
        draft = last["content"].partition('draft_id "')[2].partition('"')[0]
        rest = json.dumps({"draft_id": draft, "content": "\nline three", "final": True})
        return calls(("c2", "write_file_continue", rest))

    stage = await play(go_on)
    stage.more_tools = (write_file, write_file_continue)
    done = await stage.run()
    assert (done.text, done.unfinished_drafts) == ("done", ())
    assert (stage.folder / "a.txt").read_text() == "line one\nline two\nline three"
    assert stage.notices == ["N4", "N13"]
    assert stage.notice("N13") == {"n": 2, "path": "a.txt"}
    assert "«line one\nline two»" in stage.asked(2)


async def test_unfinished_files_are_named_at_the_end_of_the_turn(play: Play) -> None:
    stage = await play(lost_file("line one\nline two"), "S401")
    stage.more_tools = (write_file, write_file_continue)
    done = await stage.run()
    (kept,) = await stage.drafts.list_drafts()
    assert done.unfinished_drafts == (f"a.txt (17 characters, {kept.id})",)
    assert not (stage.folder / "a.txt").exists()


async def test_a_grown_draft_is_reported_with_its_current_size(play: Play) -> None:
    """The quoted end of the draft is the place to continue."""

    def go_on(body: dict[str, Any]) -> Script:
        last = body["messages"][-1]
        if last["role"] == "tool":
            return lost_note(3000)
        if "`note`" in last["content"]:
            return "S401"
        if "draft" not in last["content"]:
            return lost_file("line one")
        draft = last["content"].partition('draft_id "')[2].partition('"')[0]
        part = json.dumps({"draft_id": draft, "content": " and two", "final": False})
        return calls(("c2", "write_file_continue", part))

    stage = await play(go_on)
    stage.more_tools = (write_file, write_file_continue, note)
    done = await stage.run()
    assert "«line one»" in stage.asked(2)
    assert "«line one and two»" in stage.asked(4)
    (kept,) = await stage.drafts.list_drafts()
    assert done.unfinished_drafts == (f"a.txt (16 characters, {kept.id})",)


async def test_unreadable_drafts_do_not_end_the_turn(play: Play) -> None:
    stage = await play(lost_file("line one"), calls(("c2", "spoil", "{}")), ok("done"))

    @tool(risk=Risk.WRITE)
    async def spoil(_context: ToolContext) -> str:
        """Replace the drafts folder by a file."""
        shutil.rmtree(stage.folder / "drafts")
        (stage.folder / "drafts").touch()
        return "spoilt"

    stage.more_tools = (write_file, write_file_continue, spoil)
    done = await stage.run()
    assert (done.ending, done.text) == (TurnEnding.ANSWERED, "done")


async def test_endless_repetition_is_not_kept_as_a_draft(play: Play) -> None:
    block = "".join(chr(97 + at * 7 % 26) for at in range(120)) + " end. "
    stage = await play(lost_file(block * 200, after="HANG"), ok("done"))
    stage.more_tools = (write_file, write_file_continue)
    assert (await stage.run()).text == "done"
    assert await stage.drafts.list_drafts() == []
    assert "`write_file`" in stage.asked(2)


# --- resumed turns ----------------------------------------------------------------------------


async def test_a_resumed_turn_continues_its_visible_text(play: Play) -> None:
    stage = await play('H T"The quick brown fox jumps." F stop D')
    stage.task = {"resumed": True, "partial_text": "The quick brown "}
    done = await stage.run()
    assert done.text == "The quick brown fox jumps."
    assert stage.events == [TextDelta("fox jumps.")]
    assert stage.sent(1)[-2] == {"role": "assistant", "content": "The quick brown "}
    assert "network" in stage.asked(1)


async def test_the_partial_text_applies_to_the_first_step_only(play: Play) -> None:
    stage = await play(
        'H T"The quick brown fox. " C(0,c1,read,{"path":"a"}) F tool_calls D', ok("done")
    )
    stage.task = {"resumed": True, "partial_text": "The quick brown "}
    done = await stage.run()
    assert done.text == "done"
    assert stage.journal.rows[0].content == "The quick brown fox. "
    assert stage.sent(2)[-1]["role"] == "tool"


PAID = Message("assistant", "", (ToolCall("c1", "pay", '{"amount":5}'),))


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        ("paid 5", "already done in this turn (call c1): paid 5"),
        ("Not run, but walked: paid 5", "already done in this turn (call c1): Not run, but walked"),
        (None, "pay has NOT run: the same call (c1)"),
    ],
)
async def test_a_resumed_turn_does_not_repeat_its_calls(
    play: Play, result: str | None, answer: str
) -> None:
    stage = await play(calls(("c9", "pay", '{"amount": 5}')), ok("done"))
    ok_ = True if result else None
    run = ToolRun(
        turn_id="t",
        call_id="c1",
        tool="pay",
        risk="write",
        arguments='{"amount":5}',
        started_at=1,
        finished_at=ok_ and 2,
        ok=ok_,
        result=result,
    )
    stage.task = {"resumed": True, "earlier_runs": (run,)}
    await stage.run(GO, PAID, Message("tool", result or "UNKNOWN", tool_call_id="c1"))
    assert stage.shop.effects == []
    assert stage.journal.rows[-1].content.startswith(answer)


async def test_a_call_of_an_earlier_turn_may_be_repeated(play: Play) -> None:
    stage = await play(calls(("c9", "pay", '{"amount": 5}')), ok("done"))
    stage.task = {"resumed": True}
    paid = (PAID, Message("tool", "paid 5", tool_call_id="c1"), Message("assistant", "Paid."))
    await stage.run(GO, *paid, GO)
    assert stage.shop.effects == ["pay 5"]
