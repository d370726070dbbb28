import pytest

from agent.tools.done_list import summarize_calls


@pytest.mark.parametrize(
    ("done", "forms"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([("pay", "")], ["pay"], id="without a label"),
        pytest.param([("pay", ""), ("pay", "")], ["pay *2"], id="twice"),
        pytest.param(
            [("pay", ""), ("write_file", "a.txt"), ("pay", "")],
            ["pay *2", "write_file a.txt"],
            id="in the order of their first calls",
        ),
        pytest.param(
            [("read", "a"), ("read", "b"), ("read", "a")],
            ["read a *2", "read b"],
            id="labels apart",
        ),
        pytest.param(
            [("read", "a"), ("read", "b"), ("read", "c")],
            ["read a", "read b", "read c"],
            id="three labels",
        ),
        pytest.param([("read", each) for each in "abcad"], ["read *5"], id="four labels"),
        pytest.param([("read", "x" * 50)], [f"read {'x' * 39}…"], id="a long label"),
    ],
)
def test_completed_calls_are_summarized(done: list[tuple[str, str]], forms: list[str]) -> None:
    assert summarize_calls(done) == [form.replace("*", "\N{MULTIPLICATION SIGN}") for form in forms]
