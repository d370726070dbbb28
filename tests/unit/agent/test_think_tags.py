import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.answer.think_tags import ThinkSplitter


def split(*pieces: str) -> tuple[str, str]:
    splitter = ThinkSplitter()
    parts = [splitter.feed(piece) for piece in pieces] + [splitter.close()]
    return "".join(thought for thought, _ in parts), "".join(answer for _, answer in parts)


@pytest.mark.parametrize(
    ("text", "thought", "answer"),
    [
        ("<think>hm</think>\n\nyes", "hm", "yes"),
        ("  <THINKING mode='x'>hm</Thinking>yes", "hm", "yes"),
        ("<REASONING_SCRATCHPAD>hm</REASONING_SCRATCHPAD>", "hm", ""),
        ("<think>cut off", "cut off", ""),
        ("<think>ends in </thi", "ends in </thi", ""),
        ("yes <think> is a tag", "", "yes <think> is a tag"),
        ("<thinker> is none", "", "<thinker> is none"),
        ("<b>bold</b>", "", "<b>bold</b>"),
        ("<", "", "<"),
        ("  \n", "", "  \n"),
        ("<think " + "x" * 300, "", "<think " + "x" * 300),
        ("<think>a</think><think>b</think>", "a", "<think>b</think>"),
        ("", "", ""),
    ],
)
def test_reasoning_is_separated_from_the_answer(text: str, thought: str, answer: str) -> None:
    assert split(text) == (thought, answer)
    assert split(*text) == (thought, answer)


@given(st.text(alphabet="<think>/ \nab", max_size=60), st.lists(st.integers(0, 60), max_size=8))
def test_the_result_does_not_depend_on_how_the_text_is_split(text: str, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(edges)]
    assert split(*pieces) == split(text)


def test_ordinary_text_passes_through_at_once() -> None:
    splitter = ThinkSplitter()
    assert splitter.feed("Hel") == ("", "Hel")
    assert splitter.passthrough
