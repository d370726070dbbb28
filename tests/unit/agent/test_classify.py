import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import errors
from agent.providers.classify import (
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
        (413, Complaint(), errors.ContextTooLong),
        (500, Complaint("exceeds the available context size"), errors.ContextTooLong),
        (400, Complaint("max_tokens: 999999 > 64000"), errors.OutputTooLong),
        (401, Complaint("bad key"), errors.Unauthorized),
        (403, Complaint(), errors.Unauthorized),
        (400, Complaint("API key not valid. Please pass a valid one."), errors.Unauthorized),
        (402, Complaint(), errors.OutOfCredit),
        (400, Complaint("Your credit balance is too low"), errors.OutOfCredit),
        (403, Complaint("Your team has used all available credits"), errors.OutOfCredit),
        (429, Complaint("slow"), errors.RateLimited),
        (429, Complaint("Too many tokens, please wait."), errors.RateLimited),
        (429, Complaint("x", "insufficient_quota"), errors.OutOfCredit),
        (
            429,
            Complaint("Provider returned error", upstream="You exceeded it: insufficient_quota"),
            errors.RateLimited,
        ),
        (
            429,
            Complaint("Request too large on tokens per min (TPM): Limit 30000"),
            errors.ContextTooLong,
        ),
        (400, Complaint("x", code="content_filter"), errors.Declined),
        (400, Complaint("x", "image_content_policy_violation"), errors.Declined),
        (400, Complaint("x", "safety_error"), errors.Declined),
        (403, Complaint('Your input was flagged for "violence"'), errors.Declined),
        (400, Complaint("Content Exists Risk"), errors.Declined),
        (400, Complaint("Unsupported parameter: safety_identifier"), errors.BadRequest),
        (400, Complaint("Streaming is not supported for this model"), errors.CannotStream),
        (
            400,
            Complaint("Unsupported value: 'stream' does not support true"),
            errors.CannotStream,
        ),
        (400, Complaint("Organization must be verified to stream this"), errors.CannotStream),
        (422, Complaint("This model does not support streaming."), errors.CannotStream),
        (501, Complaint("stream: unsupported"), errors.CannotStream),
        (400, Complaint("Non-streaming is not supported"), errors.BadRequest),
        (400, Complaint("This model only supports the stream mode"), errors.BadRequest),
        (400, Complaint("stream_options is not supported"), errors.BadRequest),
        (408, Complaint(), errors.Overloaded),
        (409, Complaint(), errors.Overloaded),
        (500, Complaint(), errors.Overloaded),
        (503, Complaint("upstream billing"), errors.Overloaded),
        (529, Complaint(), errors.Overloaded),
    ],
)
def test_sorts_a_status(
    status: int, complaint: Complaint, error: type[errors.ProviderError]
) -> None:
    sorted_ = refused(status, complaint, {})
    assert type(sorted_) is error
    assert str(sorted_) == (complaint.said or f"HTTP status {status}")


@pytest.mark.parametrize("status", [408, 429, 503, 529])
@pytest.mark.parametrize(
    "headers",
    [
        {"retry-after": "7"},
        {"retry-after-ms": "7000"},
        {
            "retry-after": "Wed, 18 Nov 2026 12:00:07 GMT",
            "date": "Wed, 18 Nov 2026 12:00:00 GMT",
        },
    ],
    ids=["seconds", "milliseconds", "a date"],
)
def test_the_time_to_wait_is_kept(status: int, headers: dict[str, str]) -> None:
    error = refused(status, Complaint(), headers)
    assert isinstance(error, errors.RateLimited | errors.Overloaded)
    assert error.retry_after == 7


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("Please try again in 1.5s.", 1.5),
        ("Please try again in 250ms.", 0.25),
        ("Please try again in 6m30.5s.", 390.5),
        ("Please try again in 6m.", 360),
        ("Please try again in a moment.", None),
        ("Slow down.", None),
    ],
)
def test_the_time_to_wait_may_stand_in_the_words(said: str, seconds: float | None) -> None:
    for error in (
        refused(429, Complaint(said), {}),
        failed_inside(Complaint(said, code="rate_limit_exceeded")),
    ):
        assert isinstance(error, errors.RateLimited)
        assert error.retry_after == seconds


def test_a_header_is_surer_than_words() -> None:
    error = refused(429, Complaint("try again in 9s"), {"retry-after": "0"})
    assert isinstance(error, errors.RateLimited)
    assert error.retry_after == 0


@pytest.mark.parametrize(
    ("complaint", "error"),
    [
        (Complaint("Network connection lost."), errors.Cut),
        (Complaint("connection reset by peer"), errors.Cut),
        (Complaint("Timeout while reading"), errors.Cut),
        (Complaint("The request timed out"), errors.Cut),
        (Complaint("unexpected EOF"), errors.Cut),
        (Complaint("x", "upstream_error"), errors.Cut),
        (Complaint("anything", plain=True), errors.Cut),
        (Complaint("anything"), errors.BadRequest),
        (Complaint("about geofences"), errors.BadRequest),
        (Complaint("timeout must be a number", "invalid_request_error"), errors.BadRequest),
        (Complaint("overloaded", plain=True), errors.Overloaded),
        (Complaint("x", "server_error"), errors.Overloaded),
        (Complaint("An error occurred while processing your request"), errors.Overloaded),
        (Complaint("x", "rate_limit_error"), errors.RateLimited),
        (Complaint("x", "invalid_request_error"), errors.BadRequest),
        (Complaint("x", code="insufficient_quota"), errors.OutOfCredit),
        (Complaint("x", code="invalid_api_key"), errors.Unauthorized),
        (Complaint("x", code="context_length_exceeded"), errors.ContextTooLong),
        (Complaint("max_tokens: 9 > 5"), errors.OutputTooLong),
        (Complaint("x", code="content_filter"), errors.Declined),
        (Complaint("streaming is not supported"), errors.CannotStream),
        (Complaint("x", code="401"), errors.Unauthorized),
        (Complaint("x", code="502"), errors.Overloaded),
        (Complaint("x", code="7"), errors.BadRequest),
    ],
)
def test_sorts_an_error_inside_a_stream(
    complaint: Complaint, error: type[errors.ProviderError]
) -> None:
    assert type(failed_inside(complaint)) is error


def test_the_limit_that_a_service_names_is_kept() -> None:
    too_long = refused(400, Complaint("prompt is too long: 210000 tokens > 200000 maximum"), {})
    assert isinstance(too_long, errors.ContextTooLong)
    assert too_long.limit == 200000
    too_much = failed_inside(Complaint("max_tokens: 999999 > 64000"))
    assert isinstance(too_much, errors.OutputTooLong)
    assert too_much.limit == 64000


def test_the_words_of_a_service_behind_another_count_and_are_shown() -> None:
    raw = '{"error":{"message":"prompt is too long: 9 tokens > 8 maximum","code":"x1"}}'
    metadata = {"raw": raw, "provider_name": "Acme"}
    complaint = complaint_in({"message": "Provider returned error", "metadata": metadata})
    error = refused(400, complaint, {})
    assert isinstance(error, errors.ContextTooLong)
    assert error.limit == 8
    assert str(error) == (
        "Provider returned error (Acme: prompt is too long: 9 tokens > 8 maximum x1)"
    )


@pytest.mark.parametrize(
    ("error", "complaint"),
    [
        ("just text", Complaint("just text", plain=True)),
        (b"just bytes \xff", Complaint("just bytes \ufffd", plain=True)),
        (7, Complaint("7", plain=True)),
        ([], Complaint("[]", plain=True)),
        ({"message": "m", "type": "t", "code": 5}, Complaint("m", "t", "5")),
        ({"message": "m", "status": "S", "status_code": 5}, Complaint("m", "S", "5")),
        ({"error_message": "m", "error_type": "t"}, Complaint("m", "t")),
        ({"error": {"message": "m"}}, Complaint("m")),
        ([{"error": {"message": "m"}}], Complaint("m")),
        ({"error": "m"}, Complaint("m")),
        ({"error": [{"message": "m"}]}, Complaint("m")),
        ({"error": "", "message": "m"}, Complaint("m")),
        ({"detail": "m"}, Complaint("m")),
        ({"message": "m", "param": "p"}, Complaint("m (p)")),
        ({"message": "about p", "param": "p"}, Complaint("about p")),
        ({"message": "m", "n_ctx": 5}, Complaint("m (n_ctx=5)")),
        ({"message": "m", "metadata": {"raw": "r"}}, Complaint("m", upstream="r")),
        ({"message": "m", "metadata": {"raw": ""}}, Complaint("m")),
        ({}, Complaint()),
        ("a\n  b", Complaint("a b", plain=True)),
        ('data: {"error":{"message":"m","code":5}}\n\n', Complaint("m", code="5")),
        ('so {"x":1} it is', Complaint('so {"x":1} it is', plain=True)),
        ("so {it} is", Complaint("so {it} is", plain=True)),
        ("x" * 5000, Complaint("x" * 4000 + "…", plain=True)),
    ],
)
def test_reads_the_service_s_words(error: object, complaint: Complaint) -> None:
    assert complaint_in(error) == complaint


def test_people_are_shown_one_line_of_bearable_length() -> None:
    assert str(refused(400, complaint_in("x" * 400), {})) == "x" * 300 + "…"


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda t: (
            st.lists(t)
            | st.dictionaries(
                st.sampled_from(["error", "message", "code", "type", "metadata", "raw", "param"]), t
            )
        ),
    )
)
def test_no_form_of_an_error_breaks_it(error: object) -> None:
    complaint = complaint_in(error)
    assert isinstance(failed_inside(complaint), errors.ProviderError)
    assert isinstance(refused(400, complaint, {}), errors.ProviderError)


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
