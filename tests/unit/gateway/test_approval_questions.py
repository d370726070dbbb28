"""Questions of running tools, stored and shown as approval requests."""

import pytest
from msgspec.structs import replace

from agent.tools.questions import PersonAnswer, PersonQuestion
from gateway.approvals import questions, wording
from gateway.notices.catalogue import render_notice
from platforms.core.contract import Address
from sessions.records import Approval, ApprovalState

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
    asked_at=0,
    expires_at=1_800_000,
    state=ApprovalState.OPEN,
)


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
