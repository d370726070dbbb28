from hypothesis import given
from hypothesis import strategies as st

from gateway.turns.thinking import ReasoningView

HEAD = "💭 **Thinking**\n"


def view(*pieces: str) -> ReasoningView:
    shown = ReasoningView()
    for piece in pieces:
        shown.append(piece)
    return shown


def test_without_thoughts_there_is_nothing_to_show() -> None:
    assert view().text() == ""
    assert view(" ", "\n").text() == ""


def test_thoughts_are_quoted_line_by_line() -> None:
    assert view("First this.\n", "\nThen that.").text() == f"{HEAD}> First this.\n>\n> Then that."


def test_thoughts_of_several_steps_follow_each_other() -> None:
    shown = view("one")
    shown.step_done()
    shown.step_done()  # a step without any
    shown.append("two")
    assert shown.text() == f"{HEAD}> one\n>\n> two"


def test_a_step_that_begins_anew_takes_back_its_own_thoughts_only() -> None:
    shown = view("one")
    shown.step_done()
    shown.append("wrong")
    shown.replace_current("")
    assert shown.text() == f"{HEAD}> one"
    shown.append("more wrong")
    shown.replace_current("two, ")
    shown.append("three")
    assert shown.text() == f"{HEAD}> one\n>\n> two, three"


def test_very_long_thoughts_are_shown_up_to_a_limit() -> None:
    assert view("x" * 3000).text() == f"{HEAD}> {'x' * 3000}"
    assert view("x" * 2990, " " * 11, "y").text() == f"{HEAD}> {'x' * 2990} …"


def test_while_long_thoughts_grow_the_newest_are_shown() -> None:
    assert view("x" * 3000).latest_text() == view("x" * 3000).text()
    assert view("a" * 9, "\n", "x" * 3000).latest_text() == f"{HEAD}> … {'x' * 3000}"
    assert view().latest_text() == ""


@given(st.lists(st.text(max_size=8), max_size=6))
def test_however_thoughts_are_split_they_look_the_same(pieces: list[str]) -> None:
    shown = view(*pieces).text()
    assert shown == view("".join(pieces)).text()
    assert all(line.startswith(">") for line in shown.splitlines()[1:])
