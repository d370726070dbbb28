"""Questions of running tools, stored and shown as approval requests."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from agent.tools.questions import PersonAnswer, PersonQuestion
from gateway.approvals import questions, wording
from gateway.approvals.broker import RequestingTurn
from gateway.approvals.rules import approval_code
from gateway.commands.contract import NoticeReply
from gateway.notices.catalogue import render_notice
from platforms.core.contract import Address
from sessions.records import Approval, ApprovalState, TurnState
from sessions.values.notices import NoticeFields, NoticeId
from tests.fakes.set_clock import SetClock
from tests.unit.gateway.test_approvals import (
    ANN,
    ANSWERED,
    BOB,
    CHIEF,
    HALF_AN_HOUR,
    LATE,
    NO,
    PATIENCE,
    YES,
    ApprovalKit,
    Screen,
    approval_kit,
    call_of,
)

pytestmark = pytest.mark.quick

QUESTION = PersonQuestion(asker="shop", text="Which ```size```?\u202e", options=("S", "L"))
OPEN = Approval(
    id="q_0123456789ABCDEF",
    key="memory:1",
    session_id="s",
    turn_id="t",
    call_id=questions.call_id_of("c1"),
    tool="shop",
    arguments=questions.write_question(QUESTION),
    person="memory:1",
    by_requester=True,
    address=Address("memory", "1"),
    asked_at=600_000,
    expires_at=2_459_999,
    state=ApprovalState.OPEN,
)


SIZE = PersonQuestion(asker="shop", text="Which size?", options=("S", "L"))
COLOUR = PersonQuestion(asker="shop", text="Which colour?", free_text=True)
SURE = PersonQuestion(asker="shop", text="Are you sure?")
SILENT = NoticeReply(NoticeId.ASK_SILENT)


def shown(approval: Approval) -> str:
    notice = wording.choose_notice(approval)
    return render_notice(notice, wording.notice_fields(approval, notice), "/{word}")


@pytest.mark.parametrize(
    ("state", "end"),
    [
        (
            ApprovalState.OPEN,
            "Possible answers: S · L\n/approve CDEF YOUR ANSWER or /deny CDEF, within 30 minutes",
        ),
        (ApprovalState.ALLOWED, "✅ Answered by memory:1: L"),
        (ApprovalState.USED, "✅ Answered by memory:1: L"),
        (ApprovalState.DENIED, "🚫 Declined by memory:1."),
        (ApprovalState.EXPIRED, "⌛ This question is closed."),
    ],
)
def test_a_question_is_shown_with_its_state(state: ApprovalState, end: str) -> None:
    text = shown(replace(OPEN, state=state, answered_by="memory:1", reason="L"))
    assert text.startswith("❓ The MCP server **shop** asks:\n```text\nWhich ")
    assert text.endswith(f"\n{end}")
    assert text.count("```") == 2
    assert "\u202e" not in text


def test_an_answer_is_read_from_the_closed_request() -> None:
    allowed = replace(OPEN, state=ApprovalState.ALLOWED, reason="L")
    assert questions.read_answer(allowed) == PersonAnswer(accepted=True, text="L")
    denied = replace(OPEN, state=ApprovalState.DENIED)
    assert questions.read_answer(denied) == PersonAnswer(accepted=False)
    assert questions.read_answer(replace(OPEN, state=ApprovalState.EXPIRED)) is None


@pytest.mark.parametrize(
    ("options", "free_text", "text", "chosen"),
    [
        (("S", "L"), False, "l", "L"),
        (("S", "L"), False, "XL", None),
        ((), True, " blue ", "blue"),
        ((), True, " ", None),
        ((), False, "", ""),
    ],
)
def test_a_typed_answer_must_fit_the_question(
    options: tuple[str, ...], free_text: bool, text: str, chosen: str | None
) -> None:
    question = PersonQuestion(asker="shop", text="?", options=options, free_text=free_text)
    assert questions.chosen_text(question, text) == chosen


# --- words of a question -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "state", "fields"),
    [
        pytest.param(
            SIZE,
            ApprovalState.OPEN,
            {
                "tool": "shop",
                "question": "Which size?",
                "choices": "\nPossible answers: S · L",
                "words": "YOUR ANSWER",
                "code": "CDEF",
                "min": 30,
            },
            id="options",
        ),
        pytest.param(
            COLOUR,
            ApprovalState.OPEN,
            {
                "tool": "shop",
                "question": "Which colour?",
                "choices": "",
                "words": "YOUR ANSWER",
                "code": "CDEF",
                "min": 30,
            },
            id="free text",
        ),
        pytest.param(
            SURE,
            ApprovalState.OPEN,
            {
                "tool": "shop",
                "question": "Are you sure?",
                "choices": "",
                "words": "",
                "code": "CDEF",
                "min": 30,
            },
            id="yes or no",
        ),
        pytest.param(
            COLOUR,
            ApprovalState.ALLOWED,
            {"tool": "shop", "question": "Which colour?", "by": ANN, "answer": "red\\u202e"},
            id="answered with a text",
        ),
        pytest.param(
            SIZE,
            ApprovalState.USED,
            {"tool": "shop", "question": "Which size?", "by": ANN, "answer": "red\\u202e"},
            id="answered with an option",
        ),
        pytest.param(
            SURE,
            ApprovalState.ALLOWED,
            {"tool": "shop", "question": "Are you sure?", "by": ANN, "answer": ""},
            id="accepted",
        ),
        pytest.param(
            SURE,
            ApprovalState.DENIED,
            {"tool": "shop", "question": "Are you sure?", "by": ANN},
            id="declined",
        ),
        pytest.param(
            SURE,
            ApprovalState.EXPIRED,
            {"tool": "shop", "question": "Are you sure?"},
            id="closed",
        ),
    ],
)
def test_fields_of_a_question(
    question: PersonQuestion, state: ApprovalState, fields: NoticeFields
) -> None:
    approval = replace(
        OPEN,
        arguments=questions.write_question(question),
        state=state,
        answered_by=ANN,
        reason="red\u202e",
    )
    assert wording.notice_fields(approval, wording.choose_notice(approval)) == fields


# --- asking --------------------------------------------------------------------------------------


def begin(kit: ApprovalKit, question: PersonQuestion) -> asyncio.Task[PersonAnswer | None]:
    """Start a task in which a call of Ann's turn asks a question."""
    turn = RequestingTurn(
        key="memory:1",
        session_id="s1",
        turn_id="t1",
        address=Address("memory", "1"),
        person=ANN,
    )
    return kit.tasks.create_task(kit.approvals.ask(turn, call_of(), question))


async def answer_of(task: asyncio.Task[PersonAnswer | None]) -> PersonAnswer | None:
    async with asyncio.timeout(PATIENCE):
        return await task


async def stored(kit: ApprovalKit, id_: str) -> Approval:
    found = await kit.store.approvals.get(id_)
    assert found
    return found


@pytest.mark.parametrize(
    ("question", "buttons"),
    [
        pytest.param(
            SIZE,
            [("S", "approve:{}=0"), ("L", "approve:{}=1"), ("Decline", "deny:{}")],
            id="options",
        ),
        pytest.param(COLOUR, [("Decline", "deny:{}")], id="free text"),
        pytest.param(SURE, [("Accept", "approve:{}"), ("Decline", "deny:{}")], id="yes or no"),
        pytest.param(
            PersonQuestion(asker="shop", text="?", options=("x" * 40, "y" * 41)),
            [
                ("x" * 40, "approve:{}=0"),
                ("y" * 39 + "…", "approve:{}=1"),
                ("Decline", "deny:{}"),
            ],
            id="long options",
        ),
    ],
)
async def test_a_question_is_stored_and_shown_to_its_requester_with_its_buttons(
    tmp_path: Path, question: PersonQuestion, buttons: list[tuple[str, str]]
) -> None:
    async with approval_kit(tmp_path) as kit:
        task = begin(kit, question)
        asked = await kit.asked()
        message = await kit.screen.one("1", "The MCP server **shop** asks:", question.text)
        assert [(each.label, each.action) for each in message.buttons] == [
            (label, action.format(asked.id)) for label, action in buttons
        ]
        assert [chat for chat in kit.screen._chats if kit.screen.messages(chat)] == ["1"]
        assert (asked.call_id, asked.tool) == (questions.call_id_of("c1"), "shop")
        assert questions.read_question(asked) == question
        assert (asked.person, asked.by_requester, asked.state) == (ANN, True, ApprovalState.OPEN)
        assert asked.expires_at - asked.asked_at == HALF_AN_HOUR
        assert not task.done()
    assert kit.screen.violations() == []


@pytest.mark.parametrize(
    ("question", "option", "word", "answer"),
    [
        pytest.param(SIZE, "=0", YES, PersonAnswer(accepted=True, text="S"), id="the first option"),
        pytest.param(SIZE, "=1", YES, PersonAnswer(accepted=True, text="L"), id="the last option"),
        pytest.param(SIZE, "", NO, PersonAnswer(accepted=False), id="no option"),
        pytest.param(COLOUR, "", NO, PersonAnswer(accepted=False), id="no text"),
        pytest.param(SURE, "", YES, PersonAnswer(accepted=True), id="yes"),
        pytest.param(SURE, "", NO, PersonAnswer(accepted=False), id="no"),
    ],
)
async def test_a_button_answers_a_question(
    tmp_path: Path, question: PersonQuestion, option: str, word: str, answer: PersonAnswer
) -> None:
    async with approval_kit(tmp_path) as kit:
        task = begin(kit, question)
        asked = await kit.asked()
        assert await kit.presses(f"{asked.id}{option}", word) == SILENT
        assert await answer_of(task) == answer
        settled = await stored(kit, asked.id)
        state = ApprovalState.ALLOWED if answer.accepted else ApprovalState.DENIED
        assert (settled.state, settled.answered_by, settled.reason) == (state, ANN, answer.text)
        end = "✅ Answered by memory:1" if answer.accepted else "🚫 Declined by memory:1."
        assert (await kit.screen.one("1", end, answer.text)).buttons == ()
        assert await kit.presses(f"{asked.id}{option}", word) == ANSWERED
        assert await stored(kit, asked.id) == settled
        assert kit.waiting == {}


@pytest.mark.parametrize(
    ("question", "word", "text", "answer"),
    [
        pytest.param(
            SIZE, YES, "{code} l", PersonAnswer(accepted=True, text="L"), id="code and option"
        ),
        pytest.param(SIZE, YES, "S", PersonAnswer(accepted=True, text="S"), id="only the option"),
        pytest.param(SIZE, NO, "{code}", PersonAnswer(accepted=False), id="decline"),
        pytest.param(
            COLOUR,
            YES,
            "{code} dark blue",
            PersonAnswer(accepted=True, text="dark blue"),
            id="code and text",
        ),
        pytest.param(
            COLOUR, YES, "red", PersonAnswer(accepted=True, text="red"), id="only the text"
        ),
        pytest.param(
            COLOUR, NO, "{code} not now", PersonAnswer(accepted=False), id="decline with a reason"
        ),
        pytest.param(SURE, YES, "", PersonAnswer(accepted=True), id="yes"),
        pytest.param(SURE, NO, "", PersonAnswer(accepted=False), id="no"),
    ],
)
async def test_a_command_answers_a_question(
    tmp_path: Path, question: PersonQuestion, word: str, text: str, answer: PersonAnswer
) -> None:
    async with approval_kit(tmp_path) as kit:
        task = begin(kit, question)
        asked = await kit.asked()
        assert await kit.says(word, text.format(code=approval_code(asked.id))) == SILENT
        assert await answer_of(task) == answer
        settled = await stored(kit, asked.id)
        state = ApprovalState.ALLOWED if answer.accepted else ApprovalState.DENIED
        assert (settled.state, settled.answered_by, settled.reason) == (state, ANN, answer.text)


@pytest.mark.parametrize(
    ("question", "option", "text"),
    [
        pytest.param(SIZE, "", "", id="no option"),
        pytest.param(SIZE, "=2", "XL", id="an unknown option"),
        pytest.param(SIZE, "=x", "0", id="no number"),
        pytest.param(COLOUR, "", "", id="no text"),
        pytest.param(COLOUR, "=0", " ", id="an option of a question without options"),
    ],
)
async def test_an_answer_that_does_not_fit_leaves_the_question_open(
    tmp_path: Path, question: PersonQuestion, option: str, text: str
) -> None:
    async with approval_kit(tmp_path) as kit:
        task = begin(kit, question)
        asked = await kit.asked()
        code = approval_code(asked.id)
        needs_words = NoticeReply(NoticeId.QUESTION_NEEDS_WORDS, {"code": code})
        assert await kit.presses(f"{asked.id}{option}", YES) == needs_words
        assert await kit.says(YES, f"{code} {text}") == needs_words
        assert await stored(kit, asked.id) == asked
        assert not task.done()


async def test_only_the_requester_and_admins_answer_a_question(tmp_path: Path) -> None:
    async with approval_kit(tmp_path) as kit:
        task = begin(kit, SIZE)
        asked = await kit.asked()
        not_yours = NoticeReply(NoticeId.NOT_YOURS)
        for word in (YES, NO):
            assert await kit.presses(f"{asked.id}=0", word, person=BOB) == not_yours
            text = f"{approval_code(asked.id)} S"
            assert await kit.says(word, text, person=BOB, chat="1") == not_yours
        assert await kit.state(asked.id) is ApprovalState.OPEN
        assert await kit.presses(f"{asked.id}=0", YES, person=CHIEF, admin=True) == SILENT
        assert await answer_of(task) == PersonAnswer(accepted=True, text="S")
        assert (await stored(kit, asked.id)).answered_by == CHIEF


async def test_words_after_the_approval_of_a_call_are_taken_for_a_code(tmp_path: Path) -> None:
    async with approval_kit(tmp_path) as kit:
        kit.begins()
        asked = await kit.asked()
        unknown = NoticeReply(NoticeId.ASK_UNKNOWN, {"code": "please"})
        assert await kit.says(YES, "please", person=CHIEF, admin=True) == unknown
        assert await kit.state(asked.id) is ApprovalState.OPEN


async def test_a_question_without_an_answer_in_time_is_closed(tmp_path: Path) -> None:
    async with approval_kit(tmp_path, wait=0.2) as kit:
        task = begin(kit, SIZE)
        asked = await kit.asked()
        assert await answer_of(task) is None
        settled = await stored(kit, asked.id)
        assert (settled.state, settled.answered_by) == (ApprovalState.EXPIRED, "")
        assert (await kit.screen.one("1", "⌛ This question is closed.")).buttons == ()
        assert await kit.presses(f"{asked.id}=0", YES) == LATE
        assert kit.waiting == {}


async def test_a_stop_closes_a_question(tmp_path: Path) -> None:
    async with approval_kit(tmp_path) as kit:
        task = begin(kit, SIZE)
        asked = await kit.asked()
        task.cancel()
        await kit.ends(TurnState.STOPPED)
        with pytest.raises(asyncio.CancelledError):
            await answer_of(task)
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait(kit.owned)
        assert await kit.state(asked.id) is ApprovalState.EXPIRED
        assert (await kit.screen.one("1", "⌛ This question is closed.")).buttons == ()
        assert kit.waiting == {}


@pytest.mark.parametrize("word", [YES, NO])
@pytest.mark.parametrize("by_button", [False, True], ids=["command", "button"])
async def test_an_answer_after_a_restart_closes_the_question_of_the_lost_call(
    tmp_path: Path, word: str, by_button: bool
) -> None:
    screen, clock = Screen(), SetClock()
    async with approval_kit(tmp_path, screen, clock=clock) as kit:
        task = begin(kit, SIZE)
        id_ = (await kit.asked()).id
    assert task.cancelled()
    async with approval_kit(tmp_path, screen, clock=clock) as kit:
        assert await kit.state(id_) is ApprovalState.OPEN
        pressed = kit.presses(f"{id_}=0", word) if by_button else kit.says(word, "S")
        assert await pressed == LATE
        settled = await stored(kit, id_)
        assert (settled.state, settled.answered_by, settled.reason) == (
            ApprovalState.EXPIRED,
            "",
            wording.TURN_ENDED,
        )
        assert (await screen.one("1", "⌛ This question is closed.")).buttons == ()
