"""The terminal as a platform: frames, messages and repeats."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from gateway.operate.cli.terminal import Printer
from platforms.console import (
    CHAT,
    SPEC,
    AnswerFrame,
    ConsoleAdapter,
    ConsoleConfig,
    NoteFrame,
    StatusFrame,
    TerminalFrame,
    TerminalScreen,
    UserFrame,
)
from platforms.core.contract import (
    Accepted,
    Address,
    Ask,
    ChatSummary,
    Delete,
    Draft,
    Edit,
    File,
    Inbound,
    InboundMessage,
    Post,
    RowAuthor,
    Surroundings,
    TranscriptRow,
    Typing,
)
from platforms.core.errors import Rejected, Unavailable
from sessions.values.clock import SystemClock
from sessions.values.ids import Ids
from tests.fakes.archive import MemoryShelf

HERE = Address("console", CHAT)


class Archive:
    """An archive with rows in order of the store."""

    def __init__(self) -> None:
        self.rows: list[TranscriptRow] = []

    def add(self, id_: str, author: str, text: str, state: str = "") -> None:
        self.rows.append(
            TranscriptRow(
                len(self.rows) + 1, id_, at=0, author=RowAuthor(author), text=text, state=state
            )
        )

    def settle(self, id_: str, state: str = "done") -> None:
        self.rows = [
            TranscriptRow(row.seq, row.id, at=0, author=row.author, text=row.text, state=state)
            if row.id == id_
            else row
            for row in self.rows
        ]

    async def transcript(self, address: Address, after: int, limit: int) -> Sequence[TranscriptRow]:
        return self.rows[-limit:] if address.chat == CHAT else []

    async def chats(self, platform: str, limit: int) -> Sequence[ChatSummary]:
        return []


class ConsoleStage:
    """A console adapter with fake surroundings and an inbox."""

    def __init__(self, shelf: MemoryShelf | None = None, archive: Archive | None = None) -> None:
        clock = SystemClock()
        self.shelf = shelf or MemoryShelf()
        self.archive = archive or Archive()
        around = Surroundings(clock, Ids(clock), shelf=self.shelf, archive=self.archive)
        built = SPEC.build(ConsoleConfig(), around)
        assert isinstance(built, ConsoleAdapter)
        self.console = built
        self.heard: list[InboundMessage] = []

    async def inbox(self, event: Inbound) -> Accepted:
        assert isinstance(event, InboundMessage)
        self.heard.append(event)
        self.archive.add(event.id, "user", event.text, "waiting")
        return Accepted.STORED

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ConsoleAdapter]:
        connected = asyncio.Event()
        async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self.console.run(self.inbox, connected.set))
            await connected.wait()
            yield self.console
            task.cancel()


async def _frames(screen: TerminalScreen) -> list[TerminalFrame]:
    """Return all frames shown so far."""
    screen.end()
    return [frame async for frame in screen.frames()]


def _post(op: str, text: str, *, streaming: bool = False, notice: bool = False) -> Post:
    return Post(op, HERE, text, streaming=streaming, notice=notice)


def _edit(message: str, text: str, *, streaming: bool = False) -> Edit:
    return Edit(f"{message}+", HERE, message=message, text=text, streaming=streaming)


async def test_a_line_is_received_as_a_message_of_the_owner() -> None:
    desk = ConsoleStage()
    async with desk.running() as console, console.attach() as screen:
        await screen.send("hello\r\nthere\0", "c_1")
    (said,) = desk.heard
    assert (said.id, said.address, said.sender.id) == ("c_1", HERE, "owner")
    assert said.text == "hello\nthere\N{REPLACEMENT CHARACTER}"
    assert said.direct
    assert said.addressed


async def test_messages_without_an_id_get_one_each() -> None:
    desk = ConsoleStage()
    async with desk.running() as console, console.attach() as screen:
        await screen.send("one")
        await screen.send("two")
    assert len({message.id for message in desk.heard}) == 2


async def test_messages_are_refused_unless_the_gateway_runs() -> None:
    desk = ConsoleStage()
    async with desk.console.attach() as screen:
        with pytest.raises(Unavailable):
            await screen.send("too early")
        async with desk.running():
            await screen.send("now")
        with pytest.raises(Unavailable):
            await screen.send("too late")
    assert [message.text for message in desk.heard] == ["now"]


async def test_a_growing_answer_is_printed_incrementally() -> None:
    desk = ConsoleStage()
    async with desk.console.attach() as screen:
        receipt = await desk.console.deliver(_post("a.0", "Hel", streaming=True))
        await desk.console.deliver(_edit(receipt.message, "Hello", streaming=True))
        await desk.console.deliver(_edit(receipt.message, "Hello.", streaming=False))
        assert await _frames(screen) == [
            AnswerFrame(item="a", text="Hel", done=False, replaces=True),
            AnswerFrame(item="a", text="lo", done=False),
            AnswerFrame(item="a", text=".", done=True),
        ]


async def test_a_rewritten_answer_is_printed_again_as_a_whole() -> None:
    desk = ConsoleStage()
    async with desk.console.attach() as screen:
        await desk.console.deliver(_post("a.0", "Hallo", streaming=True))
        await desk.console.deliver(_edit("a.0", "Hello"))
        assert (await _frames(screen))[1] == AnswerFrame(
            item="a", text="Hello", done=True, replaces=True
        )


async def test_a_restarted_gateway_sends_the_whole_answer_so_far() -> None:
    """A terminal attached before the restart may already show a part of the answer."""
    desk = ConsoleStage()
    async with desk.console.attach() as screen:
        await desk.console.deliver(_post("a.0", "Hel", streaming=True))
        (frame,) = await _frames(screen)
    after_restart = ConsoleStage(desk.shelf, desk.archive)
    async with after_restart.console.attach() as screen:
        await after_restart.console.deliver(_post("a.0", "Hello"))
        (again,) = await _frames(screen)
    printer = Printer(dim=False)
    assert isinstance(frame, AnswerFrame)
    assert isinstance(again, AnswerFrame)
    assert printer.render_frame(frame) + printer.render_frame(again) == "Hello\n"


async def test_a_repeated_post_is_not_printed_twice() -> None:
    desk = ConsoleStage()
    async with desk.console.attach() as screen:
        for _ in range(2):
            await desk.console.deliver(_post("a.0", "Hello"))
            await desk.console.deliver(_post("n.0", "Stopped.", notice=True))
        assert await _frames(screen) == [
            AnswerFrame(item="a", text="Hello", replaces=True),
            NoteFrame("Stopped."),
        ]


async def test_questions_and_notices_are_notes_and_typing_shows_nothing() -> None:
    desk = ConsoleStage()
    async with desk.console.attach() as screen:
        await desk.console.deliver(Ask("q.0", HERE, text="May I?", buttons=()))
        await desk.console.deliver(Typing("t", HERE))
        await desk.console.deliver(Draft("d", HERE, draft="d", text="Hel"))
        await desk.console.deliver(Edit("n+", HERE, message="n.0", text="Slow.", notice=True))
        assert await _frames(screen) == [NoteFrame("May I?"), NoteFrame("Slow.")]


async def test_the_status_is_shown_on_change_and_to_new_terminals() -> None:
    console, other = ConsoleStage().console, Address("console", "other")
    async with console.attach() as screen, console.attach("other") as elsewhere:
        await console.deliver(Typing("t", HERE))
        for words in ("slow", "slow", "slower"):
            await console.deliver(Typing("t", HERE, words))
        await console.deliver(Typing("u", other, "busy"))
        async with console.attach() as late:
            await console.deliver(Typing("t", HERE, ""))
            assert await _frames(late) == [StatusFrame("slower"), StatusFrame("")]
        async with console.attach() as latest:
            assert await _frames(latest) == []
        assert await _frames(screen) == [
            StatusFrame("slow"),
            StatusFrame("slower"),
            StatusFrame(""),
        ]
        assert await _frames(elsewhere) == [StatusFrame("busy")]


async def test_an_answered_question_stays_a_note() -> None:
    desk = ConsoleStage()
    async with desk.running() as console, console.attach() as screen:
        await console.deliver(Ask("p_1.0", HERE, text="May I?", buttons=()))
        await console.deliver(_edit("p_1.0", "Allowed."))
        assert await _frames(screen) == [NoteFrame("May I?"), NoteFrame("Allowed.")]


async def test_unsupported_ops_are_refused() -> None:
    console = ConsoleStage().console
    with pytest.raises(Rejected):
        await console.deliver(Delete("d", HERE, "a.0"))
    with pytest.raises(Rejected):
        console.fetch(File("a.txt", "text/plain", "ref"))


async def test_all_terminals_of_a_chat_show_the_same() -> None:
    desk = ConsoleStage()
    async with desk.running() as console, console.attach() as one, console.attach() as two:
        async with console.attach("elsewhere") as other:
            await one.send("hello")
            await console.deliver(_post("a.0", "Hi."))
            assert await _frames(other) == []
        assert await _frames(one) == [AnswerFrame(item="a", text="Hi.", replaces=True)]
        assert await _frames(two) == [
            UserFrame("hello"),
            AnswerFrame(item="a", text="Hi.", replaces=True),
        ]


async def test_a_new_terminal_sees_a_growing_answer_from_its_start() -> None:
    desk = ConsoleStage()
    await desk.console.deliver(_post("a.0", "Hello", streaming=True))
    async with desk.console.attach() as screen:
        await desk.console.deliver(_edit("a.0", "Hello there"))
        assert await _frames(screen) == [
            AnswerFrame(item="a", text="Hello", done=False, replaces=True),
            AnswerFrame(item="a", text=" there", done=True),
        ]


async def test_unseen_rows_are_shown_once_to_the_next_terminal() -> None:
    desk = ConsoleStage()
    desk.archive.add("c_1", "user", "question", "done")
    desk.archive.add("a", "answer", "Answer.", "sent")
    desk.archive.add("n", "notice", "By the way.", "sent")
    await desk.console.deliver(_post("a.0", "Answer."))
    shown = [
        AnswerFrame(item="a", text="Answer.", replaces=True, asked="question"),
        NoteFrame("By the way."),
    ]
    async with desk.console.attach() as screen:
        assert await _frames(screen) == shown
    async with desk.console.attach() as screen:
        assert await _frames(screen) == []
    after_restart = ConsoleStage(desk.shelf, desk.archive)
    async with after_restart.console.attach() as screen:
        await after_restart.console.deliver(_post("a.0", "Answer."))
        assert await _frames(screen) == []


async def test_only_the_unseen_answer_is_shown_without_earlier_questions() -> None:
    desk = ConsoleStage()
    desk.archive.add("c_1", "user", "seen question", "done")
    desk.archive.add("a", "answer", "Seen.", "sent")
    async with desk.console.attach():
        await desk.console.deliver(_post("a.0", "Seen."))
    desk.archive.add("n", "notice", "Unseen.", "sent")
    async with desk.console.attach() as screen:
        assert await _frames(screen) == [NoteFrame("Unseen.")]


async def test_finishing_waits_for_answers_and_for_their_delivery() -> None:
    desk = ConsoleStage()
    async with desk.running() as console, console.attach() as screen:
        await screen.send("hello", "c_1")
        async with asyncio.TaskGroup() as tasks:
            finishing = tasks.create_task(screen.finish())
            await console.deliver(_post("a.0", "Hel", streaming=True))
            assert not finishing.done()
            desk.archive.settle("c_1")
            desk.archive.add("a", "answer", "Hello.", "pending")
            await console.deliver(_edit("a.0", "Hello", streaming=True))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not finishing.done()
            await console.deliver(_edit("a.0", "Hello."))
            await finishing
        shown = [frame async for frame in screen.frames()]
    assert "".join(frame.text for frame in shown) == "Hello."


async def test_finishing_does_not_wait_for_answers_that_cannot_come() -> None:
    desk = ConsoleStage()
    async with desk.running() as console:
        async with console.attach() as silent:
            await silent.finish()
            assert [frame async for frame in silent.frames()] == []
        async with console.attach() as screen:
            await screen.send("hello", "c_1")
            desk.archive.settle("c_1", "held")
            desk.archive.add("n", "notice", "Kept.", "dead")
            await screen.finish()


async def test_finishing_notices_an_end_without_output() -> None:
    desk = ConsoleStage()
    async with desk.running() as console, console.attach() as screen:
        await screen.send("/quiet", "c_1")
        async with asyncio.TaskGroup() as tasks:
            finishing = tasks.create_task(screen.finish())
            await asyncio.sleep(0)
            assert not finishing.done()
            desk.archive.settle("c_1")


async def test_the_end_of_the_gateway_ends_every_screen() -> None:
    desk = ConsoleStage()
    async with desk.console.attach() as screen:
        async with desk.running():
            pass
        async with asyncio.timeout(5):
            assert [frame async for frame in screen.frames()] == []


async def test_a_terminal_that_does_not_read_is_disconnected() -> None:
    desk = ConsoleStage()
    async with desk.console.attach() as screen:
        for number in range(10_010):
            screen.show(NoteFrame(str(number)))
        screen.end()
        async with asyncio.timeout(5):
            shown = [frame async for frame in screen.frames()]
    assert shown[-1] == NoteFrame("9998")


async def test_memory_of_printed_messages_is_bounded() -> None:
    desk = ConsoleStage()
    async with desk.console.attach():
        for number in range(300):
            await desk.console.deliver(_post(f"a{number}.0", "Hello"))
    assert len(desk.console._printed) == 256
    assert len(desk.shelf.values[f"seen:{CHAT}"]) < 2_000
