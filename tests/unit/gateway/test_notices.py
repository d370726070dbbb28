import re
from collections.abc import Iterator

import pytest

from gateway.commands.registry import COMMANDS
from gateway.notices.catalogue import BUTTONS, CATALOGUE, NOTICE_FIELDS, render_notice
from platforms.core.document import Paragraph, PlainText, parse
from sessions.values.notices import NoticeFields, NoticeId


def test_commands_have_the_form_of_the_platform() -> None:
    assert "/resume returns" in render_notice(NoticeId.FRESH_SESSION, {}, "/{word}")
    assert "/holdfast resume returns" in render_notice(
        NoticeId.FRESH_SESSION, {}, "/holdfast {word}"
    )


def test_optional_parts_appear_only_when_they_apply() -> None:
    assert render_notice(NoticeId.STOPPED, {"n": 0}, "/{word}").endswith("returns to this one.")
    assert render_notice(NoticeId.STOPPED, {"n": 1}, "/{word}").endswith(
        "1 queued message is kept with it."
    )
    text = render_notice(NoticeId.STOPPED, {"n": 2, "tool": "pay"}, "/{word}")
    assert text.endswith(
        "pay was running and may have taken effect. 2 queued messages are kept with it."
    )


VALUES: dict[str, str | int] = {
    "model": "MODEL", "n": 4, "d": 9, "provider": "PROVIDER", "tool": "TOOL", "a": "ONE",
    "b": "OTHER", "cause": "CAUSE", "min": 7, "list": "LIST", "draft": "DRAFT",
    "operator_told": "yes", "text": "TEXT", "request": "REQUEST", "preview": "PREVIEW",
    "path": "PATH", "limit": 20, "too_long": "", "shown": "",
}  # fmt: skip
AGREED = {
    "N1": "⏳ MODEL: no output for 4s, reconnecting at 9s",
    "N2": "↻ Connection to PROVIDER dropped, reconnecting",
    "N3": "↻ Reply was cut off, continuing",
    "N4": "⚠️ TOOL was cut off and has NOT run. I'm asking for it in smaller parts; you don't need "
    "to do anything.",
    "N5": "⇄ ONE is not responding, continuing with OTHER",
    "N6": "⏱ PROVIDER rate limit, retrying in 4s",
    "N7": "❌ Sorry, I couldn't finish this: CAUSE. Done so far: LIST. Kept for a day as a draft: "
    "DRAFT. The administrator has been notified.",
    "N8": "⚠️ The model spent its whole output on reasoning, twice. Try /reasoning low, or another "
    "model with /model.",
    "N9": "⚠️ The model declined: TEXT",
    "N10": "⏹ Stopped. Your next message starts a new conversation; /resume returns to this one. "
    "TOOL was running and may have taken effect. 4 queued messages are kept with it.",
    "N10.idle": "No active task to stop.",
    "N11": "♻️ I was restarted while working on “REQUEST” (for 7 min). TOOL(PREVIEW) was running: I "
    "don't know whether it finished, and I have not run it again. Your next message starts a new "
    "conversation; /resume continues this one.",
    "N12": "🗜 Compacting the conversation",
    "N13": "💾 Kept 4 lines of PATH as a draft, continuing from there",
    "N14": "🆕 New conversation: the previous one was stopped or interrupted. /resume returns to it.",
    "N15": "⏳ Working on “REQUEST” for 7 min. 4 messages are queued. /stop stops the task.",
    "N16": "⛔ 20 messages are already queued here, so I did NOT take this one. Please send it again "
    "later.",
    "N17": "🔄 I'm restarting. Your message is saved, and I'll answer it right after.",
}


@pytest.mark.parametrize("notice", AGREED)
def test_numbered_notices_have_the_agreed_text(notice: NoticeId) -> None:
    required, optional = NOTICE_FIELDS[notice]
    fields = {name: VALUES[name] for name in required | optional}
    assert render_notice(notice, fields, "/{word}") == AGREED[notice]


def test_every_numbered_notice_has_an_agreed_text() -> None:
    numbered = {name for name in CATALOGUE if re.fullmatch(r"N\d+(\.idle)?", name)}
    assert numbered == AGREED.keys()
    assert {f"N{number}" for number in range(1, 18)} <= numbered


def test_interrupted_and_failed_turns_offer_buttons_to_continue() -> None:
    assert [label for label, _ in BUTTONS[NoticeId.TURN_FAILED]] == ["Go on", "Start over"]
    assert [label for label, _ in BUTTONS[NoticeId.TURN_INTERRUPTED]] == ["Continue", "Start over"]


FAILED: dict[str, str | int] = {"cause": "connection drops"}
BEGINNING = "❌ Sorry, I couldn't finish this: connection drops."


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        pytest.param({}, BEGINNING, id="nothing else"),
        pytest.param(
            {"list": "read a, pay 5"},
            f"{BEGINNING} Done so far: read a, pay 5.",
            id="tools that ran",
        ),
        pytest.param(
            {"draft": "a.txt (5 characters, d1)"},
            f"{BEGINNING} Kept for a day as a draft: a.txt (5 characters, d1).",
            id="a draft",
        ),
        pytest.param(
            {"operator_told": "yes"},
            f"{BEGINNING} The administrator has been notified.",
            id="administrator notified",
        ),
        pytest.param(
            {"too_long": "yes"},
            f"{BEGINNING} /new starts a new conversation.",
            id="conversation too long",
        ),
        pytest.param({"operator_told": "", "list": "", "draft": ""}, BEGINNING, id="all empty"),
    ],
)
def test_the_failure_notice_names_the_cause_and_the_kept_work(
    fields: dict[str, str | int], text: str
) -> None:
    assert render_notice(NoticeId.TURN_FAILED, FAILED | fields, "/{word}") == text


@pytest.mark.parametrize(
    ("fields", "ends"),
    [({"running": 1}, "is not affected."), ({"running": 0}, "here.")],
)
def test_a_model_switch_mentions_the_current_answer(fields: dict[str, int], ends: str) -> None:
    text = render_notice(NoticeId.MODEL_SET, {"model": "m", "unchecked": 0, **fields}, "/{word}")
    assert "m answers here." in text
    assert text.endswith(ends)


def test_user_text_is_never_treated_as_a_placeholder() -> None:
    text = render_notice(
        NoticeId.QUEUED, {"n": 1, "request": "{c:stop} {n} [+ x]", "min": 0}, "/{word}"
    )
    assert "“{c:stop} {n} [+ x]”" in text
    assert text.endswith("/stop stops the task.")


def test_a_long_request_is_quoted_in_one_short_line() -> None:
    text = render_notice(
        NoticeId.TURN_INTERRUPTED, {"request": "line\n" * 400, "min": 1}, "/{word}"
    )
    assert "\n" not in text
    assert len(text) < 250


def test_expired_conversations_have_their_own_texts() -> None:
    for notice in (NoticeId.EXPIRED_IDLE, NoticeId.EXPIRED_DAILY):
        assert render_notice(notice, {}, "/{word}") == CATALOGUE[notice]


GAP = re.compile(r"[{}]|\[\+|  | [.,:)]|[“(] |\(\)|“”|\*\*\*\*|^[ \t]|[ \t]$", re.MULTILINE)
"""Traces of a field without a value, such as two spaces or an empty pair of brackets."""
WITHOUT_TEXT = {NoticeId.QUEUE_DONE, NoticeId.ASK_SILENT}


def field_choices(notice: NoticeId) -> Iterator[NoticeFields]:
    """Yield the required fields of a notice with none, each one and all of the optional fields."""
    required, optional = NOTICE_FIELDS[notice]
    for more in ((), *((name,) for name in optional), optional):
        yield dict.fromkeys((*required, *more), "VALUE")
        yield (
            dict.fromkeys(required, "VALUE") | dict.fromkeys(optional, "") | dict.fromkeys(more, 2)
        )


@pytest.mark.parametrize("notice", sorted(CATALOGUE))
def test_no_notice_has_a_gap(notice: NoticeId) -> None:
    for fields in field_choices(notice):
        text = render_notice(notice, fields, "/{word}")
        assert not GAP.search(text), text
        assert bool(text) is (notice not in WITHOUT_TEXT)


@pytest.mark.parametrize("notice", sorted(CATALOGUE))
def test_a_missing_or_misspelt_field_is_an_error(notice: NoticeId) -> None:
    required, _ = NOTICE_FIELDS[notice]
    fields = dict.fromkeys(required, "VALUE")
    with pytest.raises(TypeError, match="misspelt"):
        render_notice(notice, {**fields, "misspelt": "VALUE"}, "/{word}")
    for name in required:
        with pytest.raises(TypeError, match=f"missing fields .'{name}'"):
            render_notice(notice, {key: "" for key in required if key != name}, "/{word}")


@pytest.mark.parametrize("notice", sorted(CATALOGUE))
def test_notices_name_only_existing_commands(notice: NoticeId) -> None:
    for word in re.findall(r"\{c:(\w+)\}", CATALOGUE[notice]):
        assert word in COMMANDS.words, word


def test_buttons_belong_to_existing_notices() -> None:
    assert set(BUTTONS) <= set(CATALOGUE)


def test_every_notice_has_a_sentence() -> None:
    assert set(CATALOGUE) == set(NoticeId)


_HOSTILE_NAME = "[Ann](https://evil.example) **admin**\n✅ \x1b[2JAllowed"


@pytest.mark.parametrize(
    ("notice", "fields"),
    [
        (NoticeId.PAIR_REQUEST, {"name": _HOSTILE_NAME, "principal": "telegram:1", "code": "C"}),
        (NoticeId.PAIR_APPROVED, {"name": _HOSTILE_NAME, "principal": "telegram:1"}),
        (NoticeId.REFUSED_MENTION, {"name": _HOSTILE_NAME, "principal": "x:1", "chat": "c"}),
        (NoticeId.REFUSED_MENTION, {"name": "Eve", "principal": "x:1", "chat": _HOSTILE_NAME}),
        (NoticeId.UNDONE, {"request": _HOSTILE_NAME}),
        (NoticeId.RESUMED, {"title": _HOSTILE_NAME, "n": 0}),
    ],
)
def test_names_and_requests_are_drawn_as_they_are(notice: NoticeId, fields: NoticeFields) -> None:
    (block,) = parse(render_notice(notice, fields, "/{word}"))
    assert isinstance(block, Paragraph)
    (text,) = block.children
    assert isinstance(text, PlainText)
    assert "[Ann](https://evil.example) **admin** ✅ ␛[2JAllowed" in text.text
