"""One body of tests, every adapter: what the gateway relies on whatever the platform."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from platforms.core.contract import (
    Accepted,
    Address,
    Button,
    Delete,
    Draft,
    Edit,
    File,
    Inbound,
    InboundMessage,
    Live,
    Post,
    Repeat,
    Typing,
)
from platforms.core.errors import PlatformError
from platforms.core.split import SMALLEST_LIMIT
from tests.contract.adapter_kit import Stage, available


@pytest.fixture(params=available())
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    async with available()[request.param]() as stage:
        yield stage
        assert stage.violations() == []


def _address(stage: Stage) -> Address:
    return Address(stage.adapter.name, stage.chat, stage.adapter.account)


async def test_capabilities_leave_room_to_work_with(stage: Stage) -> None:
    can = stage.adapter.capabilities
    assert can.text_limit >= 2 * SMALLEST_LIMIT  # room for a mark, too
    assert can.burst >= 1
    assert can.per_second > 0
    assert can.live_interval >= 0
    assert can.command.format(word="stop") != can.command
    assert can.repeat is not Repeat.NONCE or can.repeat_seconds > 0
    assert can.live not in {Live.EDIT, Live.STREAM} or can.edit


async def test_a_post_is_seen(stage: Stage) -> None:
    async with asyncio.timeout(5):
        await stage.adapter.deliver(Post("a.0", _address(stage), "Hello *you*"))
    assert stage.screen() == ["Hello *you*"]


async def test_a_text_as_long_as_the_limit_is_taken(stage: Stage) -> None:
    text = "x" * min(stage.adapter.capabilities.text_limit, 20_000)
    async with asyncio.timeout(5):
        await stage.adapter.deliver(Post("a.0", _address(stage), text))
    assert stage.screen() == [text]


async def test_an_edit_changes_the_message_and_may_be_repeated(stage: Stage) -> None:
    can = stage.adapter.capabilities
    address = _address(stage)
    async with asyncio.timeout(5):
        receipt = await stage.adapter.deliver(Post("a.0", address, "Before"))
        if not can.edit:
            return
        buttons = (Button("Yes", "yes"),)[: can.buttons]
        edit = Edit("a.0.e", address, receipt.message, "After", buttons)
        for _ in range(2):
            await stage.adapter.deliver(edit)
    assert stage.screen() == ["After"]


async def test_a_deleted_message_is_gone(stage: Stage) -> None:
    can = stage.adapter.capabilities
    address = _address(stage)
    async with asyncio.timeout(5):
        first = await stage.adapter.deliver(Post("a.0", address, "First"))
        await stage.adapter.deliver(Post("a.1", address, "Second"))
        if can.delete:
            await stage.adapter.deliver(Delete("a.0.d", address, first.message))
    assert stage.screen() == (["Second"] if can.delete else ["First", "Second"])


async def test_a_repeat_is_shown_twice_only_where_the_capabilities_say_so(stage: Stage) -> None:
    address = _address(stage)
    async with asyncio.timeout(5):
        first = await stage.adapter.deliver(Post("a.0", address, "Once"))
        again = Post("a.0", address, "Once", again=True, since=1)
        second = await stage.adapter.deliver(again)
    if stage.adapter.capabilities.repeat is Repeat.MARK:
        assert stage.screen() == ["Once", "Once"]
    else:
        assert stage.screen() == ["Once"]
        assert second == first


async def test_equal_texts_of_different_ops_are_different_messages(stage: Stage) -> None:
    async with asyncio.timeout(5):
        for op in ("a.0", "b.0"):
            await stage.adapter.deliver(Post(op, _address(stage), "Yes"))
    assert stage.screen() == ["Yes", "Yes"]


async def test_an_answer_being_written_grows_in_its_message(stage: Stage) -> None:
    if stage.adapter.capabilities.live not in {Live.EDIT, Live.STREAM}:
        return
    address = _address(stage)
    async with asyncio.timeout(5):
        receipt = await stage.adapter.deliver(Post("a.0", address, "One", streaming=True))
        for text in ("One, two", "One, two, three"):
            op = Edit("a.0.e", address, receipt.message, text, streaming=True)
            await stage.adapter.deliver(op)
            assert stage.screen() == [text]
        await stage.adapter.deliver(Edit("a.0.e", address, receipt.message, "1, 2, 3, 4"))
    assert stage.screen() == ["1, 2, 3, 4"]


async def test_a_draft_is_seen_until_it_is_withdrawn_or_its_answer_is_posted(stage: Stage) -> None:
    if stage.adapter.capabilities.live is not Live.DRAFT:
        return
    address = _address(stage)
    async with asyncio.timeout(5):
        for item in ("a", "b"):
            await stage.adapter.deliver(Draft(f"{item}.p", address, item, "So"))
            await stage.adapter.deliver(Draft(f"{item}.p", address, item, "So far", "searching"))
            assert "So far" in stage.screen()[-1]
            if item == "a":
                await stage.adapter.deliver(Draft("a.p", address, "a", ""))
                assert stage.screen() == []
        await stage.adapter.deliver(Post("b.0", address, "So far so good"))
    assert stage.screen() == ["So far so good"]


async def test_typing_leaves_nothing_behind(stage: Stage) -> None:
    if stage.adapter.capabilities.typing_interval is None:
        return
    async with asyncio.timeout(5):
        await stage.adapter.deliver(Typing("a.t", _address(stage)))
        await stage.adapter.deliver(Post("a.0", _address(stage), "Hello"))
    assert stage.screen() == ["Hello"]


async def test_what_somebody_says_comes_in_and_is_acknowledged_once_it_is_stored(
    stage: Stage,
) -> None:
    stored: list[Inbound] = []
    told: list[str] = []
    may_store = asyncio.Event()

    async def inbox(event: Inbound) -> Accepted:
        await may_store.wait()
        stored.append(event)
        return Accepted.STORED

    async def person() -> None:
        await stage.say("Hello")
        told.append("stored" if stored else "too early")

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        ready = asyncio.Event()
        adapter = group.create_task(stage.adapter.run(inbox, ready.set))
        await ready.wait()
        said = group.create_task(person())
        await asyncio.sleep(0)
        assert told == []
        may_store.set()
        await said
        adapter.cancel()
    assert told == ["stored"]
    (message,) = stored
    assert isinstance(message, InboundMessage)
    assert message.text == "Hello"
    assert message.address == _address(stage)
    assert message.sender.id
    assert message.id
    assert message.addressed


async def test_a_file_that_is_not_there_is_a_platform_error(stage: Stage) -> None:
    async def read() -> None:
        async for _ in stage.adapter.fetch(File("x.png", "image/png", "no such file")):
            pass

    async with asyncio.timeout(5):
        with pytest.raises(PlatformError):
            await read()
