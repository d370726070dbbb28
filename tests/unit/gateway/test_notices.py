import re

import pytest

from gateway.commands.registry import COMMANDS
from gateway.notices import BUTTONS, CATALOGUE, render


def test_a_command_is_named_in_the_form_that_works_where_it_is_shown() -> None:
    assert "/resume brings" in render("N14", {}, "/{word}")
    assert "/holdfast resume brings" in render("N14", {}, "/holdfast {word}")


def test_optional_parts_appear_only_when_they_apply() -> None:
    assert render("N10", {"n": 0}, "/{word}").endswith("brings this one back.")
    assert render("N10", {"n": 1}, "/{word}").endswith("1 waiting message is kept with it.")
    text = render("N10", {"n": 2, "tool": "pay"}, "/{word}")
    assert text.endswith(
        "pay was running and may have taken effect. 2 waiting messages are kept with it."
    )


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
    assert render("N7", FAILED | fields, "/{word}") == text


@pytest.mark.parametrize(
    ("fields", "ends"),
    [({}, "answers here."), ({"running": 1}, "goes on as it was."), ({"running": 0}, "here.")],
)
def test_a_switch_tells_of_the_answer_that_is_being_written(
    fields: dict[str, str | int], ends: str
) -> None:
    text = render("model_set", {"model": "m", "unchecked": 0, **fields}, "/{word}")
    assert "m answers here." in text
    assert text.endswith(ends)


def test_what_people_wrote_is_never_taken_for_a_placeholder() -> None:
    text = render("N15", {"n": 1, "request": "{c:stop} {n} [+ x]", "min": 0}, "/{word}")
    assert "“{c:stop} {n} [+ x]”" in text
    assert text.endswith("/stop ends it.")


def test_a_long_request_is_quoted_in_one_short_line() -> None:
    text = render("N11", {"request": "line\n" * 400, "min": 1, "k": 2}, "/{word}")
    assert "\n" not in text
    assert len(text) < 250


def test_the_reason_chooses_the_words_of_an_expired_conversation() -> None:
    assert render("expired", {"reason": "idle"}, "/{word}") == CATALOGUE["expired.idle"]
    assert render("expired", {"reason": "daily"}, "/{word}") == CATALOGUE["expired.daily"]


@pytest.mark.parametrize("notice", sorted(CATALOGUE))
def test_every_notice_can_be_written_with_nothing_and_names_only_real_commands(notice: str) -> None:
    for word in re.findall(r"\{c:(\w+)\}", CATALOGUE[notice]):
        assert word in COMMANDS.words | {"model", "reasoning"}, word
    if notice.startswith("expired"):
        return
    text = render(notice, {}, "/{word}")
    assert "{" not in text
    assert "[+" not in text


def test_buttons_stand_under_notices_that_exist() -> None:
    assert set(BUTTONS) <= set(CATALOGUE)
