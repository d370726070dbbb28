from hypothesis import given
from hypothesis import strategies as st

from gateway.observe.redact import Redactor
from gateway.turns.thinking import ReasoningView

HEAD = "💭 **Thinking**\n"


def view(*pieces: str) -> ReasoningView:
    shown = ReasoningView()
    for piece in pieces:
        shown.append(piece)
    return shown


def test_the_text_is_empty_without_reasoning() -> None:
    assert view().text() == ""
    assert view(" ", "\n").text() == ""


def test_reasoning_is_quoted_line_by_line() -> None:
    assert view("First this.\n", "\nThen that.").text() == f"{HEAD}> First this.\n>\n> Then that."


def test_reasoning_of_several_steps_is_joined() -> None:
    shown = view("one")
    shown.step_done()
    shown.step_done()  # a step without reasoning
    shown.append("two")
    assert shown.text() == f"{HEAD}> one\n>\n> two"


def test_a_restarted_step_replaces_only_its_own_reasoning() -> None:
    shown = view("one")
    shown.step_done()
    shown.append("wrong")
    shown.replace_current("")
    assert shown.text() == f"{HEAD}> one"
    shown.append("more wrong")
    shown.replace_current("two, ")
    shown.append("three")
    assert shown.text() == f"{HEAD}> one\n>\n> two, three"


def test_long_reasoning_is_cut_at_a_limit() -> None:
    assert view("x" * 3000).text() == f"{HEAD}> {'x' * 3000}"
    assert view("x" * 2990, " " * 11, "y").text() == f"{HEAD}> {'x' * 2990} …"


def test_the_live_form_shows_the_end_of_long_reasoning() -> None:
    assert view("x" * 3000).latest_text() == view("x" * 3000).text()
    assert view("a" * 9, "\n", "x" * 3000).latest_text() == f"{HEAD}> … {'x' * 3000}"
    assert view().latest_text() == ""


@given(st.lists(st.text(max_size=8), max_size=6))
def test_the_split_of_deltas_does_not_change_the_text(pieces: list[str]) -> None:
    shown = view(*pieces).text()
    assert shown == view("".join(pieces)).text()
    assert all(line.startswith(">") for line in shown.splitlines()[1:])


def test_a_secret_at_the_cut_of_long_reasoning_is_masked() -> None:
    key = "sk-" + "a1b2c3d4" * 4
    for text in (f"{'x ' * 1495}{key} {'y' * 3000}", f"{'x' * 3000} {key}{' y' * 1495}"):
        shown = ReasoningView(Redactor().redact)
        shown.append(text)
        assert "a1b2" not in shown.text() + shown.latest_text()
