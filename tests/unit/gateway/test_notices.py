import re

import pytest

from gateway.commands.registry import COMMANDS
from gateway.notices.catalogue import BUTTONS, CATALOGUE, render_notice
from sessions.values.notices import NoticeId


def test_a_command_is_named_in_the_form_that_works_where_it_is_shown() -> None:
    assert "/resume brings" in render_notice(NoticeId.FRESH_SESSION, {}, "/{word}")
    assert "/holdfast resume brings" in render_notice(
        NoticeId.FRESH_SESSION, {}, "/holdfast {word}"
    )


def test_optional_parts_appear_only_when_they_apply() -> None:
    assert render_notice(NoticeId.STOPPED, {"n": 0}, "/{word}").endswith("brings this one back.")
    assert render_notice(NoticeId.STOPPED, {"n": 1}, "/{word}").endswith(
        "1 waiting message is kept with it."
    )
    text = render_notice(NoticeId.STOPPED, {"n": 2, "tool": "pay"}, "/{word}")
    assert text.endswith(
        "pay was running and may have taken effect. 2 waiting messages are kept with it."
    )


EVERYTHING: dict[str, str | int] = {
    "model": "MODEL", "n": 4, "d": 9, "provider": "PROVIDER", "k": 2, "max": 3, "tool": "TOOL",
    "a": "ONE", "b": "OTHER", "cause": "CAUSE", "min": 7, "list": "LIST", "draft": "DRAFT",
    "operator_told": "yes", "text": "TEXT", "request": "REQUEST", "preview": "PREVIEW",
    "path": "PATH", "limit": 20,
}  # fmt: skip
AGREED = {
    "N1": "⏳ MODEL: no output for 4s, reconnecting at 9s",
    "N2": "↻ Connection to PROVIDER dropped, retrying (2/3)",
    "N3": "↻ Reply was cut off, continuing",
    "N4": "⚠️ TOOL was cut off on the way and has NOT run. Asking for it in smaller parts; nothing "
    "to do for you.",
    "N5": "⇄ ONE is not responding, continuing with OTHER",
    "N6": "⏱ PROVIDER rate limit, retrying in 4s",
    "N7": "❌ I could not finish: CAUSE (2 tries, 7 min). Done so far: LIST. Kept for a day as a "
    "draft: DRAFT. The operator has been told.",
    "N8": "⚠️ The model used its whole output budget on reasoning, twice. Try /reasoning low or "
    "/model.",
    "N9": "⚠️ The model declined: TEXT",
    "N10": "⏹ Stopped. Your next message starts a fresh conversation; /resume brings this one "
    "back. TOOL was running and may have taken effect. 4 waiting messages are kept with it.",
    "N10.idle": "No active task to stop.",
    "N11": "♻️ I was restarted while working on “REQUEST” (7 min, 2 steps done). TOOL(PREVIEW) was "
    "running: I do not know whether it finished and have not run it again. Your next message "
    "starts fresh; /resume picks this one up.",
    "N12": "🗜 Compacting the conversation",
    "N13": "💾 Kept 4 lines of PATH as a draft, continuing from there",
    "N14": "🆕 Fresh conversation: the previous session was stopped or interrupted. /resume brings "
    "it back.",
    "N15": "⏳ 4 waiting. Working on “REQUEST” for 7 min. /stop ends it.",
    "N16": "⛔ 20 messages are already waiting here. This one was NOT taken; please send it again "
    "later.",
    "N17": "🔄 Restarting. Your message is kept and will be answered right after.",
}


@pytest.mark.parametrize("notice", AGREED)
def test_a_numbered_notice_says_what_was_agreed_to_the_letter(notice: NoticeId) -> None:
    assert render_notice(notice, EVERYTHING, "/{word}") == AGREED[notice]


def test_every_numbered_notice_has_agreed_words() -> None:
    numbered = {name for name in CATALOGUE if re.fullmatch(r"N\d+(\.idle)?", name)}
    assert numbered == AGREED.keys()
    assert {f"N{number}" for number in range(1, 18)} <= numbered


def test_the_ways_on_are_offered_under_what_ended_in_the_middle() -> None:
    assert [label for label, _ in BUTTONS[NoticeId.TURN_FAILED]] == ["Go on", "Start over"]
    assert [label for label, _ in BUTTONS[NoticeId.TURN_INTERRUPTED]] == ["Continue", "Start over"]


FAILED: dict[str, str | int] = {"cause": "connection drops", "k": 3, "min": 1}
BEGINNING = "❌ I could not finish: connection drops (3 tries, 1 min)."


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        pytest.param({}, BEGINNING, id="nothing else"),
        pytest.param(
            {"k": 1}, "❌ I could not finish: connection drops (1 try, 1 min).", id="one try"
        ),
        pytest.param(
            {"list": "read a, pay 5"}, f"{BEGINNING} Done so far: read a, pay 5.", id="done"
        ),
        pytest.param(
            {"draft": "a.txt (5 characters, d1)"},
            f"{BEGINNING} Kept for a day as a draft: a.txt (5 characters, d1).",
            id="a draft",
        ),
        pytest.param(
            {"operator_told": "yes"}, f"{BEGINNING} The operator has been told.", id="told"
        ),
        pytest.param(
            {"too_long": "yes"},
            f"{BEGINNING} /new starts a fresh one.",
            id="too long a conversation",
        ),
        pytest.param({"operator_told": "", "list": "", "draft": ""}, BEGINNING, id="all empty"),
    ],
)
def test_a_turn_that_failed_says_why_and_what_is_left_of_it(
    fields: dict[str, str | int], text: str
) -> None:
    assert render_notice(NoticeId.TURN_FAILED, FAILED | fields, "/{word}") == text


@pytest.mark.parametrize(
    ("fields", "ends"),
    [({}, "answers here."), ({"running": 1}, "goes on as it was."), ({"running": 0}, "here.")],
)
def test_a_switch_tells_of_the_answer_that_is_being_written(
    fields: dict[str, str | int], ends: str
) -> None:
    text = render_notice(NoticeId.MODEL_SET, {"model": "m", "unchecked": 0, **fields}, "/{word}")
    assert "m answers here." in text
    assert text.endswith(ends)


def test_what_people_wrote_is_never_taken_for_a_placeholder() -> None:
    text = render_notice(
        NoticeId.QUEUED, {"n": 1, "request": "{c:stop} {n} [+ x]", "min": 0}, "/{word}"
    )
    assert "“{c:stop} {n} [+ x]”" in text
    assert text.endswith("/stop ends it.")


def test_a_long_request_is_quoted_in_one_short_line() -> None:
    text = render_notice(
        NoticeId.TURN_INTERRUPTED, {"request": "line\n" * 400, "min": 1, "k": 2}, "/{word}"
    )
    assert "\n" not in text
    assert len(text) < 250


def test_the_reason_chooses_the_words_of_an_expired_conversation() -> None:
    for notice in (NoticeId.EXPIRED_IDLE, NoticeId.EXPIRED_DAILY):
        assert render_notice(notice, {}, "/{word}") == CATALOGUE[notice]


@pytest.mark.parametrize("notice", sorted(CATALOGUE))
def test_every_notice_can_be_written_with_nothing_and_names_only_real_commands(
    notice: NoticeId,
) -> None:
    for word in re.findall(r"\{c:(\w+)\}", CATALOGUE[notice]):
        assert word in COMMANDS.words | {"model", "reasoning"}, word
    text = render_notice(notice, {}, "/{word}")
    assert "{" not in text
    assert "[+" not in text


def test_buttons_stand_under_notices_that_exist() -> None:
    assert set(BUTTONS) <= set(CATALOGUE)


def test_every_notice_has_a_sentence() -> None:
    assert set(CATALOGUE) == set(NoticeId)
