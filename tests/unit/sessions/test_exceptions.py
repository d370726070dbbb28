"""Exceptions in words, and the cause of an exception group."""

import pytest

from sessions.values.exceptions import docstring_summary, error_line, error_text, first_error


class Broken(Exception):
    """Something broke.

    More about it.
    """


class Undocumented(Exception): ...


_ONE, _TWO, _LOST = Broken("one\ntwo"), ValueError("two"), ConnectionError()


def test_errors_are_described_in_words() -> None:
    assert [docstring_summary(error) for error in (_ONE, Undocumented())] == [
        "Something broke.",
        "",
    ]
    assert [error_text(error) for error in (_TWO, _LOST)] == ["two", "ConnectionError"]
    assert [error_line(error) for error in (_ONE, _LOST)] == ["Broken: one", "ConnectionError: "]


@pytest.mark.parametrize(
    ("error", "first", "first_broken"),
    [
        (_TWO, _TWO, _TWO),
        (ExceptionGroup("", [_TWO, _ONE]), _TWO, _ONE),
        (ExceptionGroup("", [ExceptionGroup("", [_TWO, _LOST]), _ONE]), _TWO, _ONE),
        (ExceptionGroup("", [_TWO, ExceptionGroup("", [_LOST])]), _TWO, _TWO),
        (BaseExceptionGroup("", [_LOST, ExceptionGroup("", [_TWO, _ONE])]), _LOST, _ONE),
    ],
)
def test_the_first_error_of_a_group_is_found(
    error: BaseException, first: BaseException, first_broken: BaseException
) -> None:
    assert first_error(error) is first
    assert first_error(error, prefer=Broken) is first_broken
