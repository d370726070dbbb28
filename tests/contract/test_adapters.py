"""The adapter contract: the same tests against every adapter.

Where a platform lacks an ability, its capabilities say so, and the test checks the alternative.
Tests of the whole gateway on every platform are in `test_conversations`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from platforms.core.contract import (
    Ask,
    Button,
    Delete,
    Draft,
    Edit,
    File,
    InboundAction,
    InboundDelete,
    InboundEdit,
    InboundMessage,
    Live,
    Op,
    Post,
    React,
    Repeat,
    Text,
    Typing,
    Upload,
)
from platforms.core.errors import PlatformError, Rejected, Unavailable, Unconfirmed
from platforms.core.split import MIN_LIMIT
from tests.contract.adapter_kit import REMOTE, Stage, available, several, side_by_side, staged
from tests.contract.services.contract import Service, Trouble

pytestmark = pytest.mark.quick

BYTES = bytes(range(256)) * 1_000  # more than one chunk in every adapter


@pytest.fixture(params=available())
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    async with staged(available()[request.param]) as stage:
        yield stage


# --- delivering --------------------------------------------------------------------------------


async def test_capabilities_leave_room_to_work_with(stage: Stage) -> None:
    can = stage.adapter.capabilities
    assert can.text_limit >= 2 * MIN_LIMIT  # leaves room for a mark
    assert can.burst >= 1
    assert can.per_second > 0
    assert can.live_interval >= 0
    assert can.command.format(word="stop") != can.command
    assert can.repeat is not Repeat.NONCE or can.repeat_seconds > 0
    assert can.live not in {Live.EDIT, Live.STREAM} or can.edit


async def test_a_post_is_seen(stage: Stage) -> None:
    await stage.deliver(Post("a.0", stage.address, "Hello *you*"))
    await stage.shows("Hello *you*")


async def test_a_text_of_exactly_the_limit_is_accepted(stage: Stage) -> None:
    text = "x" * min(stage.adapter.capabilities.text_limit, 20_000)
    await stage.deliver(Post("a.0", stage.address, text))
    await stage.shows(text)


async def test_an_edit_changes_the_message_and_may_be_repeated(stage: Stage) -> None:
    receipt = await stage.deliver(Post("a.0", stage.address, "Before"))
    await stage.shows("Before")
    if stage.can.edit:
        buttons = (Button("Yes", "yes"),)[: stage.can.buttons]
        edit = Edit("a.0.e", stage.address, message=receipt.message, text="After", buttons=buttons)
        for _ in range(2):
            await stage.deliver(edit)
        await stage.shows("After")
        (seen,) = stage.service.seen(stage.place)
        assert seen.buttons == tuple(each.label for each in buttons)


async def test_a_deleted_message_is_gone(stage: Stage) -> None:
    first = await stage.deliver(Post("a.0", stage.address, "First"))
    await stage.deliver(Post("b.0", stage.address, "Second"))
    await stage.shows("First", "Second")
    if stage.can.delete:
        await stage.deliver(Delete("a.0.d", stage.address, first.message))
        await stage.shows("Second")


async def test_a_repeat_is_shown_twice_only_if_the_capabilities_allow(stage: Stage) -> None:
    first = await stage.deliver(Post("a.0", stage.address, "Once"))
    again = Post("a.0", stage.address, "Once", again=True, since=stage.clock.now() - 1_000)
    second = await stage.deliver(again)
    if stage.can.repeat is Repeat.MARK:
        await stage.shows("Once", "Once")
    else:
        assert second == first
        await stage.shows("Once")


async def test_equal_texts_of_different_ops_are_different_messages(stage: Stage) -> None:
    for op in ("a.0", "b.0"):
        await stage.deliver(Post(op, stage.address, "Yes"))
    await stage.shows("Yes", "Yes")


async def test_a_streamed_answer_grows_in_its_message(stage: Stage) -> None:
    if stage.can.live not in {Live.EDIT, Live.STREAM}:
        await stage.deliver(Post("a.0", stage.address, "So far so good"))
        await stage.shows("So far so good")
        return
    receipt = await stage.deliver(Post("a.0", stage.address, "One", streaming=True))
    for text in ("One, two", "One, two, three"):
        op = Edit("a.0.e", stage.address, message=receipt.message, text=text, streaming=True)
        await stage.deliver(op)
        await stage.shows(text)
    await stage.deliver(Edit("a.0.e", stage.address, message=receipt.message, text="1, 2, 3, 4"))
    await stage.shows("1, 2, 3, 4")


async def test_a_draft_is_visible_until_withdrawn_or_posted(stage: Stage) -> None:
    if stage.can.live is not Live.DRAFT:
        return
    for item in ("a", "b"):
        await stage.deliver(Draft(f"{item}.p", stage.address, draft=item, text="So"))
        await stage.deliver(
            Draft(f"{item}.p", stage.address, draft=item, text="So far", status="searching")
        )
        await stage.service.until(lambda: "So far" in "".join(stage.service.screen(stage.place)))
        if item == "a":
            await stage.deliver(Draft("a.p", stage.address, draft="a", text=""))
            await stage.shows()
    await stage.deliver(Post("b.0", stage.address, "So far so good"))
    await stage.shows("So far so good")


async def test_typing_leaves_nothing_behind(stage: Stage) -> None:
    if stage.can.typing_interval is not None or stage.can.status:
        await stage.deliver(Typing("a.t", stage.address))
    await stage.deliver(Post("a.0", stage.address, "Hello"))
    await stage.shows("Hello")


async def test_a_reaction_replaces_the_previous_one(stage: Stage) -> None:
    said = await stage.service.say(stage.place, "Hello")
    (message,) = await stage.inbox.messages(1)
    for number, emoji in enumerate(("👀", "✅", "")):
        op = React(f"r.{number}", stage.address, message.id, emoji)
        if not stage.can.reactions:
            with pytest.raises(Rejected):
                await stage.deliver(op)
            continue
        await stage.deliver(op)
        assert stage.service.signs(stage.place, said) == ([emoji] if emoji else [])


async def test_an_answer_in_a_room_replies_to_its_message(stage: Stage) -> None:
    stage.place = stage.service.room or stage.place
    said = await stage.service.say(stage.place, "Hello")
    (message,) = await stage.inbox.messages(1)
    await stage.deliver(Post("a.0", message.address, "Hello you", reply_to=message.id))
    await stage.shows("Hello you")
    (seen,) = stage.service.seen(stage.place)
    in_thread = message.address.thread and not stage.can.reply
    assert seen.reply_to == (said if stage.can.reply or in_thread else "")


async def test_a_file_arrives_with_its_bytes_and_its_caption(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "report.bin"
    path.write_bytes(BYTES)
    op = Upload(
        "u.0",
        stage.address,
        path=str(path),
        name="report.bin",
        media_type="application/x-thing",
        caption="The report",
    )
    if stage.can.files is None:
        with pytest.raises(Rejected):
            await stage.deliver(op)
        await stage.shows()
        return
    receipt = await stage.deliver(op)
    assert receipt.message
    await stage.shows("The report")
    (seen,) = stage.service.seen(stage.place)
    assert seen.file == "report.bin"
    assert seen.content == (b"" if stage.service.name == "memory" else BYTES)


async def test_an_upload_of_an_unreadable_file_is_refused(stage: Stage, tmp_path: Path) -> None:
    if stage.service.name == "memory":
        return  # the platform shows file names without reading files
    op = Upload(
        "u.0",
        stage.address,
        path=str(tmp_path / "none"),
        name="none",
        media_type="text/plain",
        caption="Here",
    )
    with pytest.raises(Rejected):
        await stage.deliver(op)
    await stage.shows()


# --- receiving ---------------------------------------------------------------------------------


async def test_a_message_is_received_and_acknowledged_once_stored(
    stage: Stage,
) -> None:
    stored: list[str] = []

    async def person() -> None:
        await stage.service.say(stage.place, "Hello")
        await stage.service.settled()
        await stage.inbox.wait(1)
        stored.append("stored")

    stage.inbox.may_store.clear()
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        said = group.create_task(person())
        await asyncio.sleep(0)
        assert stored == []
        stage.inbox.may_store.set()
        await said
    (message,) = stage.inbox.events
    assert isinstance(message, InboundMessage)
    assert message.text == "Hello"
    assert message.address == stage.address
    assert message.sender.id
    assert message.id
    assert message.addressed
    assert message.direct


async def test_in_a_room_only_messages_addressing_the_bot_are_addressed(stage: Stage) -> None:
    room = stage.service.room
    if room is None:  # only private chats: every message is addressed
        await stage.service.say(stage.place, "among ourselves")
        assert [each.text for each in await stage.inbox.messages(1)] == ["among ourselves"]
        return
    await stage.service.say(room, "among ourselves", aside=True)
    await stage.service.say(room, "you there")
    (message,) = await stage.inbox.messages(2)
    assert message.text.endswith("you there")
    assert not message.direct
    assert "among ourselves" in "".join(quote.text for quote in message.context)


async def test_a_reply_brings_the_message_it_answers(stage: Stage) -> None:
    """On Slack a reply is a thread below the message; the messages of the thread come along."""
    if not stage.service.quotes:
        await stage.service.say(stage.place, "is that so?")
        (message,) = await stage.inbox.messages(1)
        assert (message.reply_to, message.context) == (None, ())
        return
    for number, place in enumerate((stage.place, stage.service.room)):
        assert place
        await stage.deliver(Post(f"{number}.0", stage.service.address(place), "The sky is green"))
        ours = stage.service.seen(place)[-1].id
        await stage.service.say(place, "is that so?", answers=ours)
        message = (await stage.inbox.messages(number + 1))[-1]
        quoted = [*([message.reply_to] if message.reply_to else []), *message.context]
        assert "The sky is green" in [quote.text for quote in quoted], place


async def test_edits_and_deletes_name_their_message(stage: Stage) -> None:
    said = await stage.service.say(stage.place, "Hlelo")
    (message,) = await stage.inbox.messages(1)
    if stage.service.edits:
        await stage.service.edit(stage.place, said, "Hello")
        edit = (await stage.inbox.wait(2))[-1]
        assert isinstance(edit, InboundEdit)
        assert (edit.message, edit.parts) == (message.id, (Text("Hello"),))
        assert edit.sender.id == message.sender.id
    if stage.service.deletes:
        await stage.service.delete(stage.place, said)
        gone = (await stage.inbox.wait(3))[-1]
        assert isinstance(gone, InboundDelete)
        assert (gone.message, gone.sender.id) == (message.id, message.sender.id)


@pytest.mark.parametrize("restart", [False, True], ids=["at once", "after a restart"])
@pytest.mark.parametrize("name", available())
async def test_a_button_returns_its_action(name: str, restart: bool) -> None:
    action = "approve:" + "x" * 56  # the longest action the contract allows
    buttons = (Button("Approve", action), Button("Deny", "deny:1"))
    async with available()[name]() as service:
        stage = Stage(service)
        async with stage.running():
            if not stage.can.buttons:  # the text must explain how to answer
                await stage.deliver(
                    Ask("a.0", stage.address, text="May I? /approve or /deny", buttons=buttons)
                )
                await stage.shows("May I? /approve or /deny")
                return
            receipt = await stage.deliver(Ask("a.0", stage.address, text="May I?", buttons=buttons))
            await stage.shows("May I?")
            assert service.seen(stage.place)[0].buttons == ("Approve", "Deny")
            if not restart:
                await service.press(stage.place, "Approve")
                await stage.inbox.wait(1)
                await service.rests()
        if restart:
            async with stage.running():
                await service.press(stage.place, "Approve")
                await stage.inbox.wait(1)
                await service.rests()
    (pressed,) = stage.inbox.events
    assert isinstance(pressed, InboundAction)
    assert pressed.action == action
    assert pressed.address == stage.address
    if service.name not in {"memory", "web"}:  # these have other names for the message
        assert pressed.message == receipt.message
    assert service.violations() == []


async def test_a_command_is_received_as_an_addressed_message(stage: Stage) -> None:
    for number, place in enumerate(filter(None, (stage.place, stage.service.room))):
        await stage.service.command(place, "btw", "what is it?")
        message = (await stage.inbox.messages(number + 1))[-1]
        assert message.text.partition("@")[0].startswith("/btw")
        assert message.text.endswith(" what is it?")
        assert message.address.chat == stage.service.address(place).chat
    await stage.service.rests()


async def test_a_thread_has_its_own_address(stage: Stage) -> None:
    other = await stage.service.elsewhere()
    await stage.service.say(other, "Hello")
    (message,) = await stage.inbox.messages(1)
    assert message.address == stage.service.address(other)
    assert message.address != stage.address
    stage.place = other
    await stage.deliver(Post("a.0", message.address, "Hello there"))
    await stage.shows("Hello there")
    assert stage.service.screen(stage.service.direct) == []


async def test_a_received_file_can_be_downloaded_exactly(stage: Stage) -> None:
    if not stage.service.sends_files:
        with pytest.raises(PlatformError):
            await _read(stage, File("x.png", "image/png", "unknown reference"))
        return
    await stage.service.say(stage.place, "look", file=("notes.txt", BYTES, "text/plain"))
    (message,) = await stage.inbox.messages(1)
    text, file = message.parts
    assert text == Text("look")
    assert isinstance(file, File)
    assert (file.name, file.media_type, file.size) == ("notes.txt", "text/plain", len(BYTES))
    # Another process can download the file, because the stored event is enough.
    kept = msgspec.json.decode(msgspec.json.encode(message), type=InboundMessage)
    assert isinstance(kept.parts[1], File)
    assert await _read(stage, kept.parts[1]) == BYTES


async def test_downloading_a_missing_file_is_a_platform_error(stage: Stage) -> None:
    with pytest.raises(PlatformError):
        await _read(stage, File("x.png", "image/png", "no such file"))


async def _read(stage: Stage, file: File) -> bytes:
    async with asyncio.timeout(5):
        return b"".join([piece async for piece in stage.adapter.fetch(file)])


@pytest.mark.parametrize("politely", [True, False], ids=["politely", "abruptly"])
async def test_messages_during_a_connection_break_are_received_once(
    stage: Stage, politely: bool
) -> None:
    for number in range(4):
        await stage.service.say(stage.place, f"say {number}")
        await stage.inbox.wait(number + 1)
        await stage.service.cut(politely=politely)
    await stage.service.say(stage.place, "the last")
    messages = await stage.inbox.messages(5)
    assert [each.text for each in messages] == [*(f"say {n}" for n in range(4)), "the last"]


@pytest.mark.parametrize("name", available())
async def test_messages_sent_while_disconnected_are_received_once_in_order(name: str) -> None:
    async with available()[name]() as service:
        stage = Stage(service)
        async with stage.running():
            await service.say(stage.place, "before")
            await stage.inbox.wait(1)
            await service.settled()
        if service.name == "memory":
            return  # the adapter itself keeps the messages
        for number in range(3):
            await service.say(stage.place, f"away {number}")
        await service.forget()
        async with stage.running():
            await stage.inbox.wait(4)
            await service.say(stage.place, "after")
            messages = await stage.inbox.messages(5)
            await service.settled()
            await service.rests()
    texts = [each.text for each in messages]
    assert texts == ["before", "away 0", "away 1", "away 2", "after"]
    assert service.violations() == []


# --- failing calls -----------------------------------------------------------------------------


def _ops_by_kind(stage: Stage, person: str, ours: str, path: Path) -> dict[str, Op]:
    """Return one op of each kind that the platform supports."""
    here, can = stage.address, stage.can
    found: dict[str, Op] = {
        "post": Post("a.0", here, "Hello **you**"),
        "plain post": Post("a.0", here, "Hello"),
        "table": Post("a.0", here, "| a | b |\n|---|---|\n| 1 | 2 |"),
        "begun": Post("a.0", here, "Hel", streaming=True),
        "ask": Ask("a.0", here, text="May I?", buttons=(Button("Yes", "yes"),)),
        "edit": Edit("z.0.e", here, message=ours, text="Something else"),
        "delete": Delete("z.0.d", here, ours),
        "upload": Upload(
            "a.0",
            here,
            path=str(path),
            name="report.bin",
            media_type="application/x-thing",
            caption="Look",
        ),
        "sign": React("r.0", here, person, "✅"),
        "typing": Typing("a.t", here),
        "draft": Draft("a.p", here, draft="a", text="So far"),
        "draft with a table": Draft("a.p", here, draft="a", text="| a | b |\n|---|---|\n| 1 | 2 |"),
    }
    if can.live not in {Live.EDIT, Live.STREAM}:
        del found["begun"]
    if can.live is not Live.DRAFT:
        del found["draft"], found["draft with a table"]
    if can.files is None:
        del found["upload"]
    if not can.reactions:
        del found["sign"]
    if can.typing_interval is None and not can.status:
        del found["typing"]
    return found


@contextlib.asynccontextmanager
async def _prepared_stage(
    service: Service, path: Path, where: str
) -> AsyncIterator[tuple[Stage, dict[str, Op]]]:
    """Open a stage with a received and an answered message, and one op of each kind."""
    stage = Stage(service)
    async with stage.running():
        if where == "room":
            assert service.room
            stage.place = service.room
        await service.say(stage.place, "Hello")
        (message,) = await stage.inbox.messages(1)
        stage.place = msgspec.structs.replace(stage.place, thread=message.address.thread)
        ours = await stage.deliver(Post("z.0", stage.address, "Something"))
        await service.settled()
        yield stage, _ops_by_kind(stage, message.id, ours.message, path)


async def _called_methods(service: Service, path: Path, kind: str, where: str) -> list[str]:
    """Return the API methods that an op of this kind calls on success."""
    async with _prepared_stage(service, path, where) as (stage, ops):
        if kind not in ops:
            return []
        before = len(service.called())
        await stage.deliver(ops[kind])
        pushes = {"getUpdates", "setMyCommands", "PUT commands"}  # not calls of the op
        calls = service.called()[before:]
        if kind == "begun":  # closed at the end of its stage
            (seen,) = (each for each in service.seen(stage.place) if each.text != "Something")
            await stage.deliver(Edit("a.0.e", stage.address, message=seen.id, text="Hello"))
        await _end_typing(stage, kind)
        return [
            method
            for method in dict.fromkeys(each.method for each in calls)
            if method not in pushes
        ]


KINDS = (
    "post",
    "plain post",
    "table",
    "begun",
    "ask",
    "edit",
    "delete",
    "upload",
    "sign",
    "typing",
    "draft",
    "draft with a table",
)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("trouble", list(Trouble), ids=lambda each: each.value)
@pytest.mark.parametrize("name", REMOTE)
async def test_a_failing_op_raises_the_error_for_its_outcome(
    name: str, trouble: Trouble, tmp_path: Path
) -> None:
    path = tmp_path / "report.bin"
    path.write_bytes(BYTES)
    async with several(name) as opened:

        async def kind_of(kind: str, where: str) -> None:
            async with opened() as service:
                methods = await _called_methods(service, path, kind, where)
            for method in methods:
                async with (
                    opened() as service,
                    _prepared_stage(service, path, where) as (stage, ops),
                ):
                    await _check_fault(stage, ops[kind], method, trouble)
                    await _end_typing(stage, kind)
                    await service.rests()
                    assert service.violations() == [], method

        await side_by_side(
            {
                f"{kind} {where}": partial(kind_of, kind, where)
                for kind in KINDS
                for where in ("direct", "room")
            }
        )


async def _check_fault(stage: Stage, op: Op, method: str, trouble: Trouble) -> None:
    """Let one call of an op fail; check the error, and that nothing is shown twice unexpectedly."""
    service, before = stage.service, len(stage.service.seen(stage.place))
    creates = isinstance(op, Post | Ask | Upload)
    seconds = service.fail(method, trouble)
    since = stage.clock.now()
    error: PlatformError | None = None
    try:
        await stage.deliver(op)
    except PlatformError as met:
        error = met
    assert service.unmet() == [], f"{method} was not called"
    shown = len([each for each in service.seen(stage.place) if not each.passing]) - before
    if error is None:  # the adapter recovered, or the call did not matter
        assert not creates or shown == 1, method
        return await _close_op(stage, op)
    if trouble is Trouble.LIMITED:
        assert isinstance(error, Unavailable), method
        assert error.retry_after is not None
        assert seconds - 0.1 <= error.retry_after <= seconds + 0.1, method
        assert not creates or shown == 0
        return None
    assert isinstance(error, Unconfirmed | Unavailable), method
    if isinstance(error, Unavailable):
        assert not creates or shown == 0, f"{method}: {error}, but the message is shown"
    if isinstance(op, Draft | Typing):  # another op always follows
        await stage.deliver(Post("b.0", op.address, "Done"))
        return None
    if not creates:
        await stage.deliver(op)  # safe to repeat
        return None
    if isinstance(op, Post | Upload | Ask):
        op = msgspec.structs.replace(op, again=True, since=since)
    await stage.deliver(op)
    shown = len([each for each in service.seen(stage.place) if not each.passing]) - before
    most = 2 if stage.can.repeat is Repeat.MARK and trouble is Trouble.CUT_AFTER else 1
    assert shown == most, f"{method}: {service.seen(stage.place)}"
    return await _close_op(stage, op)


async def _end_typing(stage: Stage, kind: str) -> None:
    """End the typing indicator on platforms that require it."""
    if kind == "typing" and stage.can.typing_ends:
        await stage.deliver(Typing("a.t", stage.address, over=True))


async def _close_op(stage: Stage, op: Op) -> None:
    """Finish a streaming message or a draft."""
    if isinstance(op, Post) and op.streaming:
        ours = stage.service.seen(stage.place)[-1]
        await stage.deliver(Edit(f"{op.op}.e", stage.address, message=ours.id, text="Hello"))
