"""Ops carried out through Slack's real client on the fake Slack."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from platforms.core.contract import (
    Accepted,
    Address,
    Ask,
    Button,
    Delete,
    Edit,
    File,
    Inbound,
    Live,
    Post,
    React,
    Task,
    TaskState,
    Typing,
    Upload,
)
from platforms.core.errors import (
    ChatGone,
    PlatformError,
    Rejected,
    Unauthorized,
    Unavailable,
    Unconfirmed,
)
from platforms.slack.adapter import SlackAdapter
from tests.fakes.archive import MemoryShelf
from tests.fakes.slack.kit import ShiftedClock, adapter_for, slack_server
from tests.fakes.slack.server import Fault, SlackServer, rate_limited
from tests.fakes.slack.workspace import BOT_USER, STREAM_LIFE, Message

ROOT = "1700000000.000100"
THREAD = Address("slack", "T1/C1", thread=ROOT)
DM = Address("slack", "T1/D1")
READING = Task("c1", "📖 notes.md", TaskState.RUNNING)
READ = msgspec.structs.replace(READING, state=TaskState.DONE)
BROKEN = Task("c2", "🔎 web", TaskState.FAILED)


@pytest.fixture
async def slack() -> AsyncIterator[SlackServer]:
    async with asyncio.timeout(15), slack_server() as slack:
        slack.add_channel("C1")
        slack.workspace.put("C1", Message(ROOT, "U1", "hello", ROOT))
        yield slack


@pytest.fixture
def clock() -> ShiftedClock:
    return ShiftedClock()


@pytest.fixture
def adapter(slack: SlackServer, clock: ShiftedClock) -> SlackAdapter:
    """An adapter to which a person has written in the thread."""
    adapter = adapter_for(slack, clock=clock)
    adapter._receiver.places.update("C1", ROOT, ROOT, "U1", "T1")
    return adapter


def screen(slack: SlackServer) -> list[str]:
    return slack.workspace.screen("C1", ROOT)


# --- streams -------------------------------------------------------------------------------------


async def test_an_answer_in_a_thread_is_a_stream_of_appended_text(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    receipt = await adapter.deliver(Post("a.0", THREAD, "One", streaming=True))
    ts = receipt.message
    for text in ("One, two", "One, two, three"):
        await adapter.deliver(Edit("a.0.e", THREAD, ts, text, streaming=True))
        assert screen(slack) == [text]
    await adapter.deliver(Edit("a.0.e", THREAD, ts, "One, two, three!"))
    assert screen(slack) == ["One, two, three!"]
    pieces = [call["chunks"] for call in slack.workspace.calls("chat.appendStream")]
    assert pieces == [[{"type": "markdown_text", "text": text}] for text in (", two", ", three")]
    (message,) = slack.workspace.ours("C1")
    assert not message.streaming
    assert message.metadata == {"event_type": "holdfast_op", "event_payload": {"op": "a.0"}}
    assert slack.workspace.calls("chat.update") == []


async def test_the_end_of_a_stream_can_have_buttons(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    ts = (await adapter.deliver(Post("a.0", THREAD, "One", streaming=True))).message
    await adapter.deliver(Edit("a.0.e", THREAD, ts, "One two", (Button("Go", "go"),)))
    (message,) = slack.workspace.ours("C1")
    assert message.shown == "One two"
    assert [button["value"] for button in message.buttons] == ["go"]


async def test_a_final_text_that_differs_replaces_the_stream(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    ts = (await adapter.deliver(Post("a.0", THREAD, "One", streaming=True))).message
    await adapter.deliver(Edit("a.0.e", THREAD, ts, "1, 2, 3"))
    assert screen(slack) == ["1, 2, 3"]


async def test_a_table_ends_as_a_block(slack: SlackServer, adapter: SlackAdapter) -> None:
    ts = (await adapter.deliver(Post("a.0", THREAD, "See:", streaming=True))).message
    table = "See:\n\n| a | b |\n|---|---|\n| 1 | 2 |"
    await adapter.deliver(Edit("a.0.e", THREAD, ts, table))
    (message,) = slack.workspace.ours("C1")
    assert message.blocks == [{"type": "markdown", "text": table}]


async def test_a_stream_that_slack_ended_continues_as_an_edited_message(
    slack: SlackServer, adapter: SlackAdapter, clock: ShiftedClock
) -> None:
    ts = (await adapter.deliver(Post("a.0", THREAD, "One", streaming=True))).message
    slack.workspace.is_agent = False  # an older app does the same
    slack.workspace.offset += STREAM_LIFE + 1
    clock.offset += STREAM_LIFE + 1
    await adapter.deliver(Edit("a.0.e", THREAD, ts, "One, **two", streaming=True))
    assert screen(slack) == ["One, **two**"]
    await adapter.deliver(Edit("a.0.e", THREAD, ts, "One, **two** and three", streaming=True))
    await adapter.deliver(Edit("a.0.e", THREAD, ts, "One, **two**, three."))
    assert screen(slack) == ["One, **two**, three."]


async def test_a_stream_stopped_by_a_person_is_finished_by_an_edit(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    ts = (await adapter.deliver(Post("a.0", THREAD, "One", streaming=True))).message
    (message,) = slack.workspace.ours("C1")
    message.stopped_by_user, message.streaming = True, False
    await adapter.deliver(Edit("a.0.e", THREAD, ts, "One (stopped)"))
    assert screen(slack) == ["One (stopped)"]
    assert slack.workspace.sessions["C1", ROOT] == "active"


async def test_an_append_of_unknown_outcome_is_not_repeated(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    ts = (await adapter.deliver(Post("a.0", THREAD, "One", streaming=True))).message
    slack.fail("chat.appendStream", Fault(drop="after"))
    edit = Edit("a.0.e", THREAD, ts, "One, two", streaming=True)
    with pytest.raises(Unconfirmed):
        await adapter.deliver(edit)
    await adapter.deliver(edit)
    assert screen(slack) == ["One, two"]
    await adapter.deliver(Edit("a.0.e", THREAD, ts, "One, two, three"))
    assert screen(slack) == ["One, two, three"]


async def test_a_stop_of_unknown_outcome_is_repeated_safely(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    ts = (await adapter.deliver(Post("a.0", THREAD, "One", streaming=True))).message
    slack.fail("chat.stopStream", Fault(drop="after"))
    end = Edit("a.0.e", THREAD, ts, "One, two")
    with pytest.raises(Unconfirmed):
        await adapter.deliver(end)
    await adapter.deliver(end)
    assert screen(slack) == ["One, two"]


async def test_a_stream_of_an_earlier_process_is_stopped_by_its_final_edit(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    ts = (await adapter.deliver(Post("a.0", THREAD, "One", streaming=True))).message
    later = adapter_for(slack)
    await later.deliver(Edit("a.0.e", THREAD, ts, "One, and then I was cut off."))
    assert screen(slack) == ["One, and then I was cut off."]


async def test_an_answer_is_edited_where_slack_refuses_streams(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    slack.workspace.streams_allowed = False
    ts = (await adapter.deliver(Post("a.0", THREAD, "One", streaming=True))).message
    await adapter.deliver(Edit("a.0.e", THREAD, ts, "One, two", streaming=True))
    await adapter.deliver(Edit("a.0.e", THREAD, ts, "One, two."))
    assert screen(slack) == ["One, two."]
    await adapter.deliver(Post("b.0", THREAD, "Two", streaming=True))
    assert len(slack.workspace.calls("chat.startStream")) == 1  # refused once, not tried again


async def test_a_mention_of_everyone_cannot_pass_a_stream_in_pieces(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    text = "Look <!channel> and @here and <!subteam^S1>"
    ts = (await adapter.deliver(Post("a.0", THREAD, "Look <!ch", streaming=True))).message
    await adapter.deliver(Edit("a.0.e", THREAD, ts, text[:24], streaming=True))
    await adapter.deliver(Edit("a.0.e", THREAD, ts, text))
    (shown,) = screen(slack)
    assert shown.replace("\u200b", "") == text
    await adapter.deliver(Post("b.0", DM, text))


async def test_live_updates_stop_before_slack_would_refuse_them(
    slack: SlackServer, adapter: SlackAdapter, clock: ShiftedClock
) -> None:
    shown = 0
    for number in range(70):
        with contextlib.suppress(Unavailable):  # no room: the whole answer would follow
            post = Post(f"{number}.0", THREAD, f"answer {number}", streaming=True)
            ts = (await adapter.deliver(post)).message
            await adapter.deliver(Edit(f"{number}.0.e", THREAD, ts, f"answer {number}."))
            shown += 1
        for moved in (clock, slack.workspace):
            moved.offset += 1.0
    assert slack.workspace.limited == []
    assert shown >= 40


async def test_live_edits_wait_while_final_edits_use_up_the_limit(
    slack: SlackServer, adapter: SlackAdapter, clock: ShiftedClock
) -> None:
    ts = (await adapter.deliver(Post("a.0", DM, "0", streaming=True))).message
    other = (await adapter.deliver(Post("b.0", DM, "0"))).message
    for number in range(50):
        await adapter.deliver(Edit("b.0.e", DM, other, f"{number}"))
    for text in ("1", "1, 2"):
        await adapter.deliver(Edit("a.0.e", DM, ts, text, streaming=True))
    assert len(slack.workspace.calls("chat.update")) == 50
    async with asyncio.TaskGroup() as group:
        ready = asyncio.Event()
        turns = group.create_task(adapter.run(_nothing, ready.set))
        await ready.wait()
        for moved in (clock, slack.workspace):
            moved.offset += 61.0
        await slack.until(lambda: slack.workspace.screen("D1") == ["1, 2", "49"])
        turns.cancel()
    await adapter.deliver(Edit("a.0.e", DM, ts, "1, 2, 3"))
    assert slack.workspace.screen("D1") == ["1, 2, 3", "49"]


async def _nothing(_: Inbound) -> Accepted:
    return Accepted.IGNORED


# --- posts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", [DM, THREAD], ids=["dm", "thread"])
@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "live"])
@pytest.mark.parametrize("drop", ["before", "after"])
async def test_a_post_of_unknown_outcome_is_shown_once(
    slack: SlackServer, adapter: SlackAdapter, address: Address, streaming: bool, drop: str
) -> None:
    slack.fail("chat.postMessage", Fault(drop=drop))
    slack.fail("chat.startStream", Fault(drop=drop))
    post = Post("a.0", address, "Hello there", streaming=streaming)
    with pytest.raises(Unconfirmed):
        await adapter.deliver(post)
    again = Post(
        "a.0", address, "Hello there", streaming=streaming, again=True, since=adapter._clock.now()
    )
    ts = (await adapter.deliver(again)).message
    await adapter.deliver(Edit("a.0.e", address, ts, "Hello there, you"))
    assert slack.workspace.screen(address.chat[3:]) == ["Hello there, you"]


async def test_a_repeat_does_not_mistake_the_message_of_another_op_for_its_own(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    since = adapter._clock.now()
    await adapter.deliver(Post("a.0", THREAD, "Hello"))
    await adapter.deliver(Post("b.0", THREAD, "Hello", again=True, since=since))
    assert screen(slack) == ["Hello", "Hello"]


async def test_a_repeat_finds_its_message_behind_many_others(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    since = adapter._clock.now()
    first = await adapter.deliver(Post("a.0", DM, "Hello"))
    for number in range(450):
        ts = slack.workspace.new_ts()
        slack.workspace.put("D1", Message(ts, "U1", f"{number}"))
    assert await adapter.deliver(Post("a.0", DM, "Hello", again=True, since=since)) == first


async def test_a_failed_lookup_posts_nothing_and_can_be_repeated(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    cut = Fault(drop="before")  # twice: aiohttp repeats a GET once by itself
    slack.fail("conversations.history", cut, cut, Fault(status=500))
    again = Post("a.0", DM, "Hello", again=True, since=adapter._clock.now())
    for _ in range(2):
        with pytest.raises(Unavailable):
            await adapter.deliver(again)
    await adapter.deliver(again)
    assert slack.workspace.screen("D1") == ["Hello"]


async def test_markdown_that_slack_refuses_is_posted_as_plain_text(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    slack.fail("chat.postMessage", Fault(error="invalid_blocks"))
    ts = (await adapter.deliver(Post("a.0", DM, "**Hello**"))).message
    slack.fail("chat.update", Fault(error="invalid_blocks"))
    await adapter.deliver(Edit("a.0.e", DM, ts, "**Bye**"))
    assert slack.workspace.screen("D1") == ["**Bye**"]


async def test_a_former_stream_may_have_to_stay_rich_text(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    ts = (await adapter.deliver(Post("a.0", DM, "Hello"))).message
    slack.fail("chat.update", Fault(error="block_mismatch"))
    await adapter.deliver(Edit("a.0.e", DM, ts, "**Bye**"))
    assert slack.workspace.screen("D1") == ["**Bye**"]


async def test_dms_are_edited_and_rooms_are_streamed(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    assert adapter.capabilities_in(DM).live is Live.EDIT
    assert adapter.capabilities_in(THREAD).live is Live.STREAM
    in_a_dm = Address("slack", "T1/D1", thread=ROOT)
    adapter._receiver.places.update("D1", ROOT, ROOT, "U1", "T1")
    await adapter.deliver(Post("a.0", in_a_dm, "Hello", streaming=True))
    assert slack.workspace.calls("chat.startStream") == []


async def test_a_channel_gets_no_more_posts_than_its_limit(
    slack: SlackServer, adapter: SlackAdapter, clock: ShiftedClock
) -> None:
    for number in range(20):
        post = Post(f"{number}.0", DM, f"{number}")
        try:
            await adapter.deliver(post)
        except Unavailable as error:
            for moved in (clock, slack.workspace):
                moved.offset += error.retry_after or 0.0
            await adapter.deliver(post)
    assert slack.workspace.screen("D1") == [f"{number}" for number in range(20)]
    assert slack.workspace.limited == []


async def test_a_question_shows_buttons_until_it_is_edited(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    ask = Ask("q.0", DM, "May I?", (Button("Yes", "yes:1"), Button("No", "no:1")))
    ts = (await adapter.deliver(ask)).message
    (message,) = slack.workspace.ours("D1")
    assert [button["value"] for button in message.buttons] == ["yes:1", "no:1"]
    await adapter.deliver(Edit("q.0.e", DM, ts, "Allowed."))
    assert message.buttons == []


async def test_a_deleted_message_can_be_deleted_again(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    ts = (await adapter.deliver(Post("a.0", DM, "Hello"))).message
    for _ in range(2):
        await adapter.deliver(Delete("a.0.d", DM, ts))
    assert slack.workspace.screen("D1") == []
    with pytest.raises(Rejected):
        await adapter.deliver(Edit("a.0.e", DM, ts, "Again"))


async def test_a_reaction_replaces_the_earlier_one(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    def signs() -> list[str]:
        message = slack.workspace.get("C1", ROOT)
        return [name for name, users in message.reactions.items() if BOT_USER in users]

    for emoji, names in (
        ("👀", ["eyes"]),
        ("✅", ["white_check_mark"]),
        ("✅", ["white_check_mark"]),
    ):
        await adapter.deliver(React("a.r", THREAD, f"C1:{ROOT}", emoji))
        assert signs() == names
    await adapter_for(slack).deliver(React("a.r", THREAD, f"C1:{ROOT}", "❌"))  # after a restart
    assert signs() == ["x"]
    await adapter_for(slack).deliver(React("a.r", THREAD, f"C1:{ROOT}", ""))
    assert signs() == []
    with pytest.raises(Rejected):
        await adapter.deliver(React("a.r", THREAD, f"C1:{ROOT}", "🦆"))


# --- cards ---------------------------------------------------------------------------------------


async def test_tool_calls_are_cards_in_the_stream(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    ts = (await adapter.deliver(Post("a.0", THREAD, "", streaming=True, tasks=(READING,)))).message
    (message,) = slack.workspace.ours("C1")
    assert message.drawn == "\n  ┌ ◌ 📖 notes.md\n"
    text, tasks = "I have read it.", (READ, BROKEN)
    await adapter.deliver(Edit("a.0.e", THREAD, ts, text, streaming=True, tasks=tasks))
    await adapter.deliver(Edit("a.0.e", THREAD, ts, f"{text} Done.", tasks=tasks))
    assert message.drawn == ("\n  ┌ ✓ 📖 notes.md\n\n  ┌ ✗ 🔎 web\nI have read it. Done.")
    assert message.shown == "I have read it. Done."
    assert slack.workspace.calls("chat.update") == []
    assert not any("markdown_text" in call for _, call in slack.workspace.log)


async def test_a_running_card_follows_the_text_before_it(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    post = Post("a.0", THREAD, "Let me see.", streaming=True, tasks=(READING,))
    await adapter.deliver(
        Edit("a.0.e", THREAD, (await adapter.deliver(post)).message, "Let me see.")
    )
    (message,) = slack.workspace.ours("C1")
    assert message.drawn == "Let me see.\n  ┌ ✗ 📖 notes.md\n"  # the turn was cut off
    (end,) = slack.workspace.calls("chat.stopStream")
    assert [chunk["status"] for chunk in end["chunks"]] == ["error"]


async def test_cards_change_without_text_and_an_unchanged_state_makes_no_call(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    post = Post("a.0", THREAD, "One", streaming=True, tasks=(READING,))
    ts = (await adapter.deliver(post)).message
    for tasks in ((READING,), (READ,), (READ,)):
        await adapter.deliver(Edit("a.0.e", THREAD, ts, "One", streaming=True, tasks=tasks))
    (call,) = slack.workspace.calls("chat.appendStream")
    assert [chunk["status"] for chunk in call["chunks"]] == ["complete"]
    await adapter.deliver(Edit("a.0.e", THREAD, ts, "One", tasks=(READ,)))


async def test_a_line_names_the_running_tool_where_slack_refuses_streams(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    slack.workspace.streams_allowed = False
    ts = (await adapter.deliver(Post("a.0", THREAD, "", streaming=True, tasks=(READING,)))).message
    assert screen(slack) == ["📖 notes.md"]
    edit = Edit("a.0.e", THREAD, ts, "One **two", streaming=True, tasks=(READ, BROKEN))
    await adapter.deliver(edit)
    assert screen(slack) == ["One **two**\n\n🔎 web"]
    await adapter.deliver(Edit("a.0.e", THREAD, ts, "One **two**.", tasks=(READ, BROKEN)))
    assert screen(slack) == ["One **two**."]


@pytest.mark.parametrize("end", ["expired", "stopped", "too long", "mismatch"])
async def test_an_edit_shows_the_whole_answer_when_the_stream_ended_early(
    slack: SlackServer, adapter: SlackAdapter, clock: ShiftedClock, end: str
) -> None:
    post = Post("a.0", THREAD, "One", streaming=True, tasks=(READING,))
    ts = (await adapter.deliver(post)).message
    if end == "expired":
        slack.workspace.offset += STREAM_LIFE + 1
        clock.offset += STREAM_LIFE + 1
    elif end == "stopped":
        message = slack.workspace.get("C1", ts)
        message.stopped_by_user, message.streaming = True, False
    elif end == "too long":
        slack.fail("chat.appendStream", Fault(error="msg_too_long"))
    else:
        slack.fail("chat.appendStream", Fault(error="streaming_mode_mismatch"))
        slack.workspace.get("C1", ts).streaming = False
    live = Edit("a.0.e", THREAD, ts, "One, two", streaming=True, tasks=(READING,))
    await adapter.deliver(live)
    assert screen(slack) == ["One, two\n\n📖 notes.md"]
    await adapter.deliver(Edit("a.0.e", THREAD, ts, "One, two, three", tasks=(READ,)))
    assert screen(slack) == ["One, two, three"]


async def test_an_end_too_long_for_a_stream_is_shown_by_an_edit(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    ts = (await adapter.deliver(Post("a.0", THREAD, "One", streaming=True))).message
    slack.fail("chat.stopStream", Fault(error="msg_too_long"))
    await adapter.deliver(Edit("a.0.e", THREAD, ts, "One, two"))
    assert screen(slack) == ["One, two"]


@pytest.mark.parametrize("task", [READING, READ], ids=["card below", "card above"])
@pytest.mark.parametrize("text", ["So", ""], ids=["words", "no words"])
async def test_a_stream_with_cards_is_found_again(
    slack: SlackServer, adapter: SlackAdapter, task: Task, text: str
) -> None:
    slack.fail("chat.startStream", Fault(drop="after"))
    post = Post("a.0", THREAD, text, streaming=True, tasks=(task,))
    with pytest.raises(Unconfirmed):
        await adapter.deliver(post)
    again = msgspec.structs.replace(post, again=True, since=adapter._clock.now())
    ts = (await adapter.deliver(again)).message
    await adapter.deliver(Edit("a.0.e", THREAD, ts, "So be it", tasks=(task,)))
    assert screen(slack) == ["So be it"]


@pytest.mark.parametrize("restarted", [False, True], ids=["same process", "after a restart"])
async def test_a_stream_can_be_deleted(
    slack: SlackServer, adapter: SlackAdapter, restarted: bool
) -> None:
    ts = (await adapter.deliver(Post("a.0", THREAD, "", streaming=True, tasks=(READ,)))).message
    await (adapter_for(slack) if restarted else adapter).deliver(Delete("a.0.d", THREAD, ts))
    assert screen(slack) == []


# --- status and stop button ----------------------------------------------------------------------


def has_stop_button(slack: SlackServer) -> bool:
    return slack.workspace.sessions.get(("C1", ROOT)) == "processing"


def status(slack: SlackServer) -> str:
    return slack.workspace.statuses.get(("C1", ROOT), ("", 0.0))[0]


async def test_typing_shows_a_status_and_a_stop_button_until_it_ends(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    await adapter.deliver(Typing("a.t", THREAD))
    assert status(slack) == "is writing…"
    assert has_stop_button(slack)
    await adapter.deliver(Typing("a.t", THREAD, "is patient <!here>"))
    assert status(slack).startswith("is patient")
    await adapter.deliver(Post("a.0", THREAD, "Hello"))
    assert status(slack) == ""
    assert has_stop_button(slack)  # the post may be a notice during the turn
    for _ in range(2):
        await adapter.deliver(Typing("a.t", THREAD, over=True))
    assert not has_stop_button(slack)
    assert len(slack.workspace.calls("agents.sessions.setStatus")) == 2


async def test_the_status_is_renewed_before_it_expires_and_cleared_at_the_end(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    for _ in range(2):
        await adapter.deliver(Typing("a.t", THREAD))
    said = [call["status"] for call in slack.workspace.calls("assistant.threads.setStatus")]
    assert said == ["is writing…"] * 2
    await adapter.deliver(Typing("a.t", THREAD, over=True))
    assert status(slack) == ""


async def test_the_end_of_a_stream_clears_the_stop_button_without_another_call(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    ts = (await adapter.deliver(Post("a.0", THREAD, "One", streaming=True))).message
    assert has_stop_button(slack)
    await adapter.deliver(Typing("a.t", THREAD, "is patient"))
    await adapter.deliver(Typing("a.t", THREAD))  # the stream shows the progress
    assert status(slack) == ""
    await adapter.deliver(Edit("a.0.e", THREAD, ts, "One, two"))
    await adapter.deliver(Typing("a.t", THREAD, over=True))
    assert not has_stop_button(slack)
    assert len(slack.workspace.calls("agents.sessions.setStatus")) == 1


async def test_a_stop_button_that_could_not_be_cleared_is_cleared_later(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    await adapter.deliver(Typing("a.t", THREAD))
    slack.fail("agents.sessions.setStatus", Fault(status=500))
    await adapter.deliver(Typing("a.t", THREAD, over=True))
    assert has_stop_button(slack)
    await adapter._thread_status.retry_clearing()
    assert not has_stop_button(slack)


async def test_a_stop_button_of_an_earlier_process_is_cleared_unless_a_turn_runs(
    slack: SlackServer, clock: ShiftedClock
) -> None:
    shelf = MemoryShelf()
    other = Address("slack", "T1/C1", thread="1700000000.000200")
    slack.workspace.put("C1", Message(other.thread, "U1", "hello", other.thread))
    first = adapter_for(slack, clock=clock, shelf=shelf)
    for address in (THREAD, other):
        await first.deliver(Typing("a.t", address))
    later = adapter_for(slack, clock=clock, shelf=shelf)
    slack.fail("agents.sessions.setStatus", Fault(drop="before"), Fault(drop="before"))
    async with asyncio.TaskGroup() as group:
        ready = asyncio.Event()
        running = group.create_task(later.run(_nothing, ready.set))
        await ready.wait()
        await later.deliver(Typing("b.t", other))
        await later._thread_status.retry_clearing()
        assert not has_stop_button(slack)
        assert slack.workspace.sessions["C1", other.thread] == "processing"
        await later.deliver(Typing("b.t", other, over=True))
        running.cancel()
    assert slack.workspace.sessions["C1", other.thread] == "active"


async def test_typing_does_nothing_where_slack_has_neither_status_nor_sessions(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    slack.fail("assistant.threads.setStatus", Fault(error="missing_scope"))
    slack.workspace.is_agent = False
    for _ in range(2):
        await adapter.deliver(Typing("a.t", THREAD))
    await adapter.deliver(Typing("a.t", THREAD, over=True))
    await adapter.deliver(Typing("a.t", DM))
    assert slack.workspace.calls("assistant.threads.setStatus") == []
    assert len(slack.workspace.calls("agents.sessions.setStatus")) == 1


async def test_a_rate_limit_on_the_status_delays_nothing_else(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    slack.fail("assistant.threads.setStatus", rate_limited(60))
    slack.fail("agents.sessions.setStatus", rate_limited(60))
    await adapter.deliver(Typing("a.t", THREAD))
    await adapter.deliver(Post("a.0", THREAD, "Hello"))
    await adapter.deliver(Typing("a.t", THREAD, over=True))
    assert screen(slack) == ["Hello"]


async def test_a_status_call_that_hangs_delays_an_answer_only_briefly(
    slack: SlackServer, adapter: SlackAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platforms.slack.status.STATUS_TIMEOUT_SECONDS", 0.05)
    gate = asyncio.Event()
    for method in ("assistant.threads.setStatus", "agents.sessions.setStatus"):
        slack.fail(method, Fault(gate=gate))
    await adapter.deliver(Typing("a.t", THREAD))
    gate.set()
    await adapter.deliver(Typing("a.t", THREAD, over=True))
    assert not has_stop_button(slack)
    assert status(slack) == ""


async def test_no_more_stop_buttons_are_shown_than_can_be_cleared(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    threads = []
    for number in range(40):
        ts = f"1700000001.{number:06}"
        slack.workspace.put("C1", Message(ts, "U1", "hello", ts))
        threads.append(Address("slack", "T1/C1", thread=ts))
        await adapter.deliver(Typing("a.t", threads[-1]))
    for address in threads:
        await adapter.deliver(Typing("a.t", address, over=True))
    assert slack.workspace.limited == []
    assert len(slack.workspace.calls("agents.sessions.setStatus")) >= 45


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(error="invalid_auth"), Unauthorized),
        (Fault(error="account_inactive"), Unauthorized),
        (Fault(error="channel_not_found"), ChatGone),
        (Fault(error="is_archived"), ChatGone),
        (Fault(error="missing_scope"), Rejected),
        (Fault(error="internal_error"), Unconfirmed),
        (Fault(status=500), Unconfirmed),
        (Fault(status=502), Unconfirmed),
        (Fault(status=503), Unavailable),
        (Fault(page=True), Unconfirmed),
        (Fault(drop="before"), Unconfirmed),
        (Fault(drop="after"), Unconfirmed),
        (Fault(error="ratelimited"), Unavailable),
    ],
    ids=str,
)
async def test_slacks_errors_are_translated(
    slack: SlackServer, adapter: SlackAdapter, fault: Fault, error: type[PlatformError]
) -> None:
    slack.fail("chat.postMessage", fault)
    with pytest.raises(error) as raised:
        await adapter.deliver(Post("a.0", DM, "Hello"))
    assert type(raised.value) is error or error is Rejected


async def test_an_unreachable_server_is_unavailable_not_unconfirmed(
    clock: ShiftedClock,
) -> None:
    async with SlackServer() as gone:
        pass
    with pytest.raises(Unavailable):
        await adapter_for(gone, clock=clock).deliver(Post("a.0", DM, "Hello"))


async def test_a_retry_after_is_raised_and_holds_for_the_method(
    slack: SlackServer, adapter: SlackAdapter, clock: ShiftedClock
) -> None:
    ts = (await adapter.deliver(Post("a.0", DM, "Hello"))).message
    slack.fail("chat.update", rate_limited(7))
    with pytest.raises(Unavailable) as first:
        await adapter.deliver(Edit("a.0.e", DM, ts, "One"))
    assert first.value.retry_after == 7
    other = Address("slack", "T1/C1")
    with pytest.raises(Unavailable) as second:  # the limit holds for the whole workspace
        await adapter.deliver(Edit("b.0.e", other, ts, "One"))
    assert second.value.retry_after is not None
    assert 6 < second.value.retry_after <= 7
    clock.offset += 7
    slack.workspace.offset += 7
    await adapter.deliver(Edit("a.0.e", DM, ts, "One"))


# --- files ---------------------------------------------------------------------------------------


def an_upload(tmp_path: Path, **more: bool | int) -> Upload:
    path = tmp_path / "plot.png"
    path.write_bytes(b"picture" * 1000)
    return Upload("u.0", THREAD, str(path), "plot.png", "image/png", "Look <!here>", **more)  # type: ignore[arg-type]


async def test_a_file_is_shared_in_its_thread_and_can_be_deleted(
    slack: SlackServer, adapter: SlackAdapter, tmp_path: Path
) -> None:
    receipt = await adapter.deliver(an_upload(tmp_path))
    (message,) = slack.workspace.ours("C1", ROOT)
    assert [file["name"] for file in message.files] == ["plot.png"]
    assert slack.workspace.contents[receipt.message] == b"picture" * 1000
    await adapter.deliver(Delete("u.0.d", THREAD, receipt.message))
    assert slack.workspace.ours("C1") == []


@pytest.mark.parametrize("restarted", [False, True], ids=["same process", "after a restart"])
async def test_a_file_of_unknown_outcome_is_shared_once(
    slack: SlackServer, adapter: SlackAdapter, tmp_path: Path, restarted: bool
) -> None:
    slack.fail("upload", Fault(drop="before"))
    with pytest.raises(Unavailable):  # nothing is visible yet
        await adapter.deliver(an_upload(tmp_path))
    slack.fail("files.completeUploadExternal", Fault(drop="after"))
    with pytest.raises(Unconfirmed):
        await adapter.deliver(an_upload(tmp_path))
    used = adapter_for(slack) if restarted else adapter
    await used.deliver(an_upload(tmp_path, again=True, since=adapter._clock.now()))
    assert len(slack.workspace.ours("C1")) == 1


async def test_a_missing_file_is_rejected(adapter: SlackAdapter, tmp_path: Path) -> None:
    with pytest.raises(Rejected):
        await adapter.deliver(Upload("u.0", DM, str(tmp_path / "no"), "no", "text/plain"))


async def read(adapter: SlackAdapter, ref: str, name: str = "a.png") -> bytes:
    return b"".join([piece async for piece in adapter.fetch(File(name, "image/png", ref))])


async def test_a_file_is_downloaded_with_the_token(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    file = slack.workspace.add_file("a.png", b"picture" * 50_000, "image/png")
    assert await read(adapter, file["id"]) == b"picture" * 50_000


async def test_a_web_page_in_place_of_a_file_is_an_error(
    slack: SlackServer, adapter: SlackAdapter
) -> None:
    file = slack.workspace.add_file("a.png", b"picture", "image/png")
    slack.fail("download", Fault(page=True))
    with pytest.raises(Rejected, match="files:read"):
        await read(adapter, file["id"])


async def test_the_token_is_sent_only_to_slack(slack: SlackServer, adapter: SlackAdapter) -> None:
    file = slack.workspace.add_file("a.png", b"", "image/png")
    for url in ("https://evil.example/a", "https://notslack.com/a", "https://slack.com.evil.org/"):
        file["url_private_download"] = url
        with pytest.raises(Rejected, match="is not stored on Slack"):
            await read(adapter, file["id"])


# --- load ----------------------------------------------------------------------------------------


async def test_twenty_live_answers_stay_within_the_limits(
    slack: SlackServer, adapter: SlackAdapter, clock: ShiftedClock
) -> None:
    addresses, messages = [], []
    for number in range(20):
        channel = f"C{number + 10}"
        slack.add_channel(channel)
        slack.workspace.put(channel, Message(ROOT, "U1", "hello", ROOT))
        adapter._receiver.places.update(channel, ROOT, ROOT, "U1", "T1")
        addresses.append(Address("slack", f"T1/{channel}", thread=ROOT))
        post = Post(f"{number}.0", addresses[-1], "0", streaming=True)
        messages.append((await adapter.deliver(post)).message)
    text = "0"
    for second in range(59):
        text += f" {second}"
        for moved in (clock, slack.workspace):
            moved.offset += 1.0
        for number, address in enumerate(addresses):
            edit = Edit(f"{number}.0.e", address, messages[number], text, streaming=True)
            await adapter.deliver(edit)
        await adapter._sender.show_waiting_edits()
    assert slack.workspace.limited == []
    appends = slack.workspace.calls("chat.appendStream")
    assert len(appends) >= 70
    each = [sum(call["ts"] == message for call in appends) for message in messages]
    assert max(each) - min(each) <= 2  # no answer lags behind
    for number, address in enumerate(addresses):
        await adapter.deliver(Edit(f"{number}.0.e", address, messages[number], f"{text}."))
        assert slack.workspace.screen(f"C{number + 10}") == [f"{text}."]
