import pytest

from agent import errors
from agent.providers.openai.classify import (
    Complaint,
    complaint_in,
    failed_inside,
    refused,
    retry_after,
)


@pytest.mark.parametrize(
    ("status", "complaint", "error"),
    [
        (400, Complaint("bad"), errors.BadRequest),
        (404, Complaint("no such model"), errors.BadRequest),
        (422, Complaint(), errors.BadRequest),
        (400, Complaint("x", code="context_length_exceeded"), errors.ContextTooLong),
        (413, Complaint("prompt is too long: 9 tokens"), errors.ContextTooLong),
        (500, Complaint("exceeds the available context size"), errors.ContextTooLong),
        (401, Complaint("bad key"), errors.Unauthorized),
        (403, Complaint(), errors.Unauthorized),
        (402, Complaint(), errors.OutOfCredit),
        (429, Complaint("slow"), errors.RateLimited),
        (429, Complaint("x", "insufficient_quota"), errors.OutOfCredit),
        (408, Complaint(), errors.Overloaded),
        (409, Complaint(), errors.Overloaded),
        (500, Complaint(), errors.Overloaded),
        (503, Complaint(), errors.Overloaded),
        (529, Complaint(), errors.Overloaded),
    ],
)
def test_sorts_a_status(
    status: int, complaint: Complaint, error: type[errors.ProviderError]
) -> None:
    sorted_ = refused(status, complaint, {})
    assert type(sorted_) is error
    assert str(sorted_) == (complaint.message or f"HTTP status {status}")


@pytest.mark.parametrize("status", [429, 503, 529])
def test_the_time_to_wait_is_kept(status: int) -> None:
    error = refused(status, Complaint(), {"retry-after": "7"})
    assert isinstance(error, errors.RateLimited | errors.Overloaded)
    assert error.retry_after == 7


@pytest.mark.parametrize(
    ("complaint", "error"),
    [
        (Complaint("Network connection lost."), errors.Cut),
        (Complaint("x", "server_error"), errors.Overloaded),
        (Complaint("x", "rate_limit_error"), errors.RateLimited),
        (Complaint("x", "invalid_request_error"), errors.BadRequest),
        (Complaint("x", code="insufficient_quota"), errors.OutOfCredit),
        (Complaint("x", code="invalid_api_key"), errors.Unauthorized),
        (Complaint("x", code="context_length_exceeded"), errors.ContextTooLong),
        (Complaint("x", code="401"), errors.Unauthorized),
        (Complaint("x", code="7"), errors.Cut),
    ],
)
def test_sorts_an_error_inside_a_stream(
    complaint: Complaint, error: type[errors.ProviderError]
) -> None:
    assert type(failed_inside(complaint)) is error


@pytest.mark.parametrize(
    ("error", "complaint"),
    [
        ("just text", Complaint("just text")),
        ({"message": "m", "type": "t", "code": 5}, Complaint("m", "t", "5")),
        ({"error": {"message": "m"}}, Complaint("m")),
        ({"error": "m"}, Complaint("m")),
        ({"detail": "m"}, Complaint("m")),
        ({}, Complaint()),
        ("a\n  b", Complaint("a b")),
        ("x" * 400, Complaint("x" * 300 + "…")),
    ],
)
def test_reads_the_service_s_words(error: object, complaint: Complaint) -> None:
    assert complaint_in(error) == complaint


DATE = "Wed, 18 Nov 2026 12:00:00 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Wed, 18 Nov 2026 12:00:30 GMT", "date": DATE}, 30.0),
        ({"retry-after": "Wed, 18 Nov 2026 11:00:00 GMT", "date": DATE}, 0.0),
        ({"retry-after": "Wed, 18 Nov 2026 12:00:30 GMT"}, None),
        ({"retry-after": "Wed, 18 Nov 2026 12:00:30", "date": DATE}, None),
        ({"retry-after": "soon", "date": DATE}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
    ],
)
def test_reads_how_long_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds
