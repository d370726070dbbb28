"""Tests of the test kit, because a fake that misses a mistake would hide it everywhere."""

import asyncio
from collections.abc import Callable

import pytest

from platforms.core.contract import (
    Accepted,
    Address,
    Ask,
    Button,
    Delete,
    Draft,
    Edit,
    File,
    Inbound,
    InboundAction,
    InboundMessage,
    Live,
    Op,
    Post,
    React,
    Repeat,
    Sender,
    Typing,
    Upload,
)
from platforms.core.errors import ChatGone, Rejected, Unavailable, Unconfirmed
from tests.fakes import memory
from tests.fakes.memory import MemoryAdapter

HERE = Address("memory", "1")


class ManualClock:
    """A manually advanced clock."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> int:
        return round(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def _post(op: str = "a.0", text: str = "Hello", *, again: bool = False) -> Post:
    return Post(op, HERE, text, again=again)


@pytest.mark.parametrize(
    ("op", "complaint"),
    [
        (_post(text="x" * 101), "longer than the limit"),
        (_post(text=" "), "nothing to show"),
        (_post(text="```\ncode"), "an open code block"),
        (Post("a.0", HERE, "x", buttons=(Button("a", "a"),) * 3), "too many buttons"),
        (Post("a.0", HERE, "x", streaming=True), "no live updates here"),
        (Draft("a.p", HERE, draft="a", text="text"), "no drafts here"),
        (Edit("a.e", HERE, message="1", text="text"), "no edits here"),
        (Delete("a.d", HERE, "1"), "no deletes here"),
        (Typing("a.t", HERE), "no typing here"),
        (React("a.r", HERE, "9", "👀"), "no reactions here"),
        (Upload("a.0", HERE, path="/x", name="x", media_type="text/plain"), "no files here"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_an_unsupported_op_is_a_violation(op: Op, complaint: str) -> None:
    adapter = MemoryAdapter(
        text_limit=100,
        buttons=2,
        edit=False,
        delete=False,
        typing_interval=None,
        reactions=False,
        files=None,
    )
    await adapter.deliver(_post("b.0"))
    assert adapter.violations() == []
    await adapter.deliver(op)
    assert any(complaint in violation for violation in adapter.violations())


async def test_too_many_ops_are_a_violation(clock: ManualClock) -> None:
    adapter = MemoryAdapter(clock=clock, burst=2, per_second=0.5)
    for op in ("a.0", "b.0"):
        await adapter.deliver(_post(op))
    clock.seconds = 2.0
    await adapter.deliver(_post("c.0"))
    assert adapter.violations() == []
    clock.seconds = 3.9
    await adapter.deliver(_post("d.0"))
    assert adapter.violations() == ["1: Post d.0: over the documented pace"]


async def test_an_op_during_a_retry_after_is_a_violation(clock: ManualClock) -> None:
    adapter = MemoryAdapter(clock=clock)
    adapter.fail(memory.rate_limited(10.0))
    with pytest.raises(Unavailable) as caught:
        await adapter.deliver(_post())
    assert caught.value.retry_after == 10.0
    clock.seconds = 9.9
    await adapter.deliver(_post())
    assert "Retry-After" in adapter.violations()[0]


async def test_a_rewritten_or_unfinished_stream_is_a_violation() -> None:
    adapter = MemoryAdapter(live=Live.STREAM)
    receipt = await adapter.deliver(Post("a.0", HERE, "One", streaming=True))
    assert "being written" in adapter.violations()[0]
    await adapter.deliver(Edit("a.e", HERE, message=receipt.message, text="Two", streaming=True))
    await adapter.deliver(Edit("a.e", HERE, message=receipt.message, text="Three"))
    assert adapter.violations() == ["1: Edit a.e: a stream may only grow, until its last edit"]


async def test_an_abandoned_draft_is_a_violation_until_it_expires(clock: ManualClock) -> None:
    adapter = MemoryAdapter(live=Live.DRAFT, clock=clock)
    await adapter.deliver(Draft("a.p", HERE, draft="a", text="text", status="status"))
    assert adapter.screen("1") == ["text status"]
    assert "draft" in adapter.violations()[0]
    clock.seconds = memory.DRAFT_LIFETIME_SECONDS
    assert adapter.screen("1") == []
    assert adapter.violations() == []


async def test_typing_after_the_final_message_is_a_violation(clock: ManualClock) -> None:
    adapter = MemoryAdapter(clock=clock)
    await adapter.deliver(_post())
    await adapter.deliver(Typing("a.t", HERE))
    assert adapter.typing("1")
    assert "typing" in adapter.violations()[0]
    clock.seconds = 6.0
    assert adapter.violations() == []


async def test_an_op_in_a_lost_chat_is_a_violation() -> None:
    adapter = MemoryAdapter()
    adapter.lose_chat("1")
    for _ in range(2):
        with pytest.raises(ChatGone):
            await adapter.deliver(_post())
    assert len(adapter.violations()) == 1
    adapter.restore_chat("1")
    await adapter.deliver(_post())
    assert adapter.screen("1") == ["Hello"]


@pytest.mark.parametrize(
    ("repeat", "again", "passed", "copies"),
    [
        (Repeat.ALWAYS, False, 1e6, 1),
        (Repeat.NONCE, False, 100.0, 1),
        (Repeat.NONCE, False, 130.0, 2),
        (Repeat.NONCE, True, 130.0, 1),
        (Repeat.LOOKUP, False, 0.0, 2),
        (Repeat.LOOKUP, True, 1e6, 1),
        (Repeat.MARK, True, 0.0, 2),
    ],
)
async def test_repeats_are_recognised_according_to_the_capabilities(
    clock: ManualClock, repeat: Repeat, again: bool, passed: float, copies: int
) -> None:
    adapter = MemoryAdapter(repeat=repeat, clock=clock)
    await adapter.deliver(_post())
    clock.seconds = passed
    await adapter.deliver(_post(again=again))
    assert len(adapter.messages("1")) == copies


@pytest.mark.parametrize(
    ("fault", "error", "shown"),
    [
        (memory.unavailable, Unavailable, 0),
        (memory.rejected, Rejected, 0),
        (memory.connection_lost_before, Unconfirmed, 0),
        (memory.connection_lost_after, Unconfirmed, 1),
    ],
)
async def test_an_ordered_fault_happens_once(
    fault: Callable[[], memory.DeliveryFault], error: type[Exception], shown: int
) -> None:
    adapter = MemoryAdapter(repeat=Repeat.MARK)
    adapter.fail(fault(), Post, chat="1")
    await adapter.deliver(Typing("t", HERE))
    await adapter.deliver(Post("z.0", Address("memory", "2"), "Elsewhere"))
    with pytest.raises(error):
        await adapter.deliver(_post())
    assert len(adapter.messages("1")) == shown
    await adapter.deliver(_post())
    assert len(adapter.messages("1")) == shown + 1


async def test_an_op_can_be_delayed_before_or_after_its_effect() -> None:
    adapter = MemoryAdapter()
    gate = asyncio.Event()
    adapter.fail(memory.delayed(gate), Post)
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        delayed = group.create_task(adapter.deliver(_post()))
        await asyncio.sleep(0)
        assert adapter.screen("1") == []
        gate.set()
        await delayed
        assert adapter.screen("1") == ["Hello"]
        adapter.fail(memory.hanging(carried_out=True))
        hanging = group.create_task(adapter.deliver(_post("b.0")))
        await asyncio.sleep(0)
        assert adapter.screen("1") == ["Hello", "Hello"]
        hanging.cancel()


async def test_the_screen_shows_edits_deletes_and_reactions() -> None:
    adapter = MemoryAdapter()
    yes = (Button("Yes", "yes"),)
    asked = await adapter.deliver(Ask("q.0", HERE, text="Sure?", buttons=yes))
    assert adapter.messages("1")[0].buttons == yes
    await adapter.deliver(Edit("q.e", HERE, message=asked.message, text="Sure."))
    sent = await adapter.deliver(
        Upload(
            "u.0", HERE, path="/x.png", name="x.png", media_type="image/png", caption="A picture"
        )
    )
    assert adapter.messages("1")[1].file == "x.png"
    assert adapter.screen("1") == ["Sure.", "A picture"]
    await adapter.deliver(Delete("u.d", HERE, sent.message))
    await adapter.deliver(React("r", HERE, "77", "👍"))
    assert adapter.screen("1") == ["Sure."]
    assert adapter.reactions("1") == {"77": "👍"}
    adapter.erase("1", asked.message)
    with pytest.raises(Rejected, match="no message"):
        await adapter.deliver(Edit("q.e", HERE, message=asked.message, text="Gone"))


async def test_messages_and_button_presses_are_received() -> None:
    adapter = MemoryAdapter(account="two")
    events: list[Inbound] = []

    async def inbox(event: Inbound) -> Accepted:
        events.append(event)
        return Accepted.STORED if len(events) == 1 else Accepted.DUPLICATE

    boss = Sender("2002", "Boss")
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        running = group.create_task(adapter.run(inbox, lambda: None))
        assert await adapter.say("1", "Hello", thread="7") is Accepted.STORED
        assert await adapter.say("1", "Hello", event="x", sender=boss) is Accepted.DUPLICATE
        assert await adapter.press("1", "resume", message="3") is Accepted.DUPLICATE
        running.cancel()
    first, second, third = events
    assert isinstance(first, InboundMessage)
    assert first.address == Address("memory", "1", "two", "7")
    assert (first.text, first.direct, first.addressed) == ("Hello", True, True)
    assert (second.id, second.sender) == ("x", boss)
    assert isinstance(third, InboundAction)
    assert (third.action, third.message) == ("resume", "3")


async def test_an_event_that_was_not_stored_is_not_acknowledged() -> None:
    adapter = MemoryAdapter()

    async def full(_: Inbound) -> Accepted:
        raise OSError

    async def run() -> None:
        with pytest.raises(OSError):  # noqa: PT011 - raised just above
            await adapter.run(full, lambda: None)

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(run())
        with pytest.raises(asyncio.CancelledError):
            await adapter.say("1", "Hello")


async def test_a_connection_can_break() -> None:
    adapter = MemoryAdapter()
    adapter.break_connection(Unavailable("gone"))

    async def inbox(_: Inbound) -> Accepted:
        return Accepted.STORED

    with pytest.raises(Unavailable, match="gone"):
        async with asyncio.timeout(5):
            await adapter.run(inbox, lambda: None)


async def test_a_file_is_read_in_chunks() -> None:
    adapter = MemoryAdapter()
    adapter.files["ref"] = bytes(range(256)) * 40
    pieces = [piece async for piece in adapter.fetch(File("x", "text/plain", "ref"))]
    assert len(pieces) == 3
    assert b"".join(pieces) == adapter.files["ref"]
    with pytest.raises(Rejected, match="no file"):
        await anext(adapter.fetch(File("x", "text/plain", "other")))
