"""The lookup in a table of errors."""

import re

import pytest

from platforms.core.error_table import ErrorRow, FailedCall, translate
from platforms.core.errors import ChatGone, Rejected, Unavailable, Unconfirmed

_TABLE = (
    ErrorRow(Unavailable, "wait {retry_after:g} s", status={429}, keeps_wait=True),
    ErrorRow(Unavailable, "busy", status={503}),
    ErrorRow(ChatGone, "{code}: {text}", code={7}, text=re.compile("gone")),
    ErrorRow(Rejected, "{text} ({code_or_status})", status=range(400, 500)),
    ErrorRow(Unconfirmed, "{kind}: {reason}", OSError, when=lambda failure: not failure.status),
)


def test_the_first_row_whose_conditions_all_hold_counts() -> None:
    assert str(translate(_TABLE, FailedCall(status=400, code=7, text="gone"))) == "7: gone"
    assert str(translate(_TABLE, FailedCall(status=400, code=7, text="here"))) == "here (7)"
    assert str(translate(_TABLE, FailedCall(status=404, text="{gone}"))) == "{gone} (404)"
    assert str(translate(_TABLE, FailedCall(error=TimeoutError()))) == "TimeoutError: TimeoutError"


def test_the_error_keeps_the_code_and_a_wait_that_the_row_names() -> None:
    limited = translate(_TABLE, FailedCall(status=429, retry_after=2.5))
    busy = translate(_TABLE, FailedCall(status=503, retry_after=2.5))
    assert isinstance(limited, Unavailable)
    assert isinstance(busy, Unavailable)
    assert (limited.retry_after, busy.retry_after) == (2.5, None)
    gone = translate(_TABLE, FailedCall(code=7, text="gone"))
    assert isinstance(gone, ChatGone)
    assert gone.code == 7


def test_a_failure_outside_the_table_is_raised() -> None:
    error = OSError("x")
    with pytest.raises(OSError, match="x") as raised:
        translate(_TABLE, FailedCall(error=error, status=200))
    assert raised.value is error
    with pytest.raises(LookupError):
        translate(_TABLE, FailedCall(status=200))
