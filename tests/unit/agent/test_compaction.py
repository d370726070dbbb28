"""Compaction of a conversation with a fake author for the summaries."""

import pytest

from agent.answer.accumulate import StepResult
from agent.attempt import AttemptResult
from agent.compaction import Compacted, compact_history
from agent.model.contract import ModelRequest
from agent.request.history_plan import make_summary_row
from agent.request.tokens import estimate_message, estimate_tokens
from agent.verdict import Capped, Complete, Cut, CutPhase, SoftComplete, Verdict
from sessions.records import Message, ToolCall
from tests.fakes.agent_kit import openai_target

pytestmark = pytest.mark.quick

TARGET = openai_target("http://127.0.0.1:1/v1")
STORY = "many words of an old story, told slowly. " * 50
U, A = Message("user", f"Tell me. {STORY}"), Message("assistant", STORY)
GO = Message("user", "go")
ROWS = (U, A, U, A, GO)


class Author:
    """Fake model that returns a fixed summary and records its requests."""

    def __init__(self, said: str = "A story.", verdict: Verdict | None = None) -> None:
        self.requests: list[ModelRequest] = []
        self._result = AttemptResult(verdict=verdict or Complete(), step=StepResult(text=said))

    async def __call__(self, request: ModelRequest) -> AttemptResult:
        self.requests.append(request)
        return self._result


async def shortened(
    author: Author, *rows: Message, room: int = 200, earlier: str = "", record: int | None = None
) -> Compacted | None:
    return await compact_history(
        rows, earlier, room_tokens=room, target=TARGET, send_request=author, record_tokens=record
    )


async def test_the_oldest_rows_are_replaced_by_a_summary() -> None:
    author = Author()
    done = await shortened(author, *ROWS, record=10_000)
    assert done is not None
    assert (done.summary, done.kept_rows, done.rows) == ("A story.", 1, (GO,))
    assert done.tokens_before == sum(map(estimate_message, ROWS))
    assert done.tokens_after == estimate_message(GO) + estimate_message(
        make_summary_row("A story.")
    )
    (request,) = author.requests
    assert (request.model, request.tools) == ("scripted", ())
    assert request.messages[0].content.count(STORY.strip()) == 4


async def test_no_more_rows_than_necessary_are_summarized() -> None:
    room = sum(map(estimate_message, ROWS[2:])) + 10
    done = await shortened(Author(), *ROWS, room=room)
    assert done is not None
    assert (done.kept_rows, done.rows) == (3, ROWS[2:])


async def test_an_earlier_summary_is_part_of_the_record() -> None:
    author = Author()
    done = await shortened(author, *ROWS, earlier="They like tea.", record=10_000)
    assert done is not None
    assert (done.kept_rows, done.rows) == (1, (GO,))
    assert "They like tea." in author.requests[0].messages[0].content
    assert done.tokens_before == sum(
        map(estimate_message, (make_summary_row("They like tea."), *ROWS))
    )


async def test_the_record_is_limited_to_the_available_room() -> None:
    author = Author()
    await shortened(author, *ROWS, room=200)
    shown = author.requests[0].messages[0].content
    assert STORY.strip() not in shown
    assert estimate_tokens(shown) < 400


async def test_the_current_request_stays_visible_when_its_calls_are_summarized() -> None:
    call = ToolCall("c1", "read", "{}")
    calls = (Message("assistant", "", (call,)), Message("tool", STORY * 3, tool_call_id="c1"))
    done = await shortened(Author(), GO, *calls, A)
    assert done is not None
    assert (done.kept_rows, done.rows) == (1, (GO, A))


@pytest.mark.parametrize(
    "author",
    [
        pytest.param(Author("", Complete()), id="empty summary"),
        pytest.param(Author(" \n", SoftComplete()), id="blank summary"),
        pytest.param(Author("A st", Cut(CutPhase.TEXT)), id="cut summary"),
        pytest.param(Author("A st", Capped()), id="capped summary"),
    ],
)
async def test_requests_are_listed_when_the_model_gives_no_complete_summary(author: Author) -> None:
    done = await shortened(author, *ROWS)
    assert done is not None
    assert done.summary.startswith("Earlier messages are no longer visible")
    assert "Tell me." in done.summary
    assert done.kept_rows == 1


async def test_a_soft_complete_summary_is_accepted() -> None:
    done = await shortened(Author("A story.", SoftComplete()), *ROWS)
    assert done is not None
    assert done.summary == "A story."


@pytest.mark.parametrize(
    ("rows", "room"),
    [
        pytest.param((), 10, id="empty conversation"),
        pytest.param((GO,), 10, id="only a request"),
        pytest.param((Message("user", STORY * 9),), 10, id="one long request"),
    ],
)
async def test_no_summary_is_requested_when_nothing_can_be_removed(
    rows: tuple[Message, ...], room: int
) -> None:
    author = Author()
    assert await shortened(author, *rows, room=room) is None
    assert author.requests == []


async def test_a_summary_that_saves_nothing_is_rejected() -> None:
    assert await shortened(Author(STORY * 9), *ROWS) is None
