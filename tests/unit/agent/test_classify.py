import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import errors
from agent.providers.classify import (
    ServiceErrorInfo,
    classify_http_error,
    classify_stream_error,
    parse_service_error,
    read_retry_after,
)


@pytest.mark.parametrize(
    ("status", "complaint", "error"),
    [
        (400, ServiceErrorInfo("bad"), errors.BadRequest),
        (404, ServiceErrorInfo("no such model"), errors.BadRequest),
        (422, ServiceErrorInfo(), errors.BadRequest),
        (400, ServiceErrorInfo("x", code="context_length_exceeded"), errors.ContextTooLong),
        (413, ServiceErrorInfo("prompt is too long: 9 tokens"), errors.ContextTooLong),
        (413, ServiceErrorInfo(), errors.ContextTooLong),
        (500, ServiceErrorInfo("exceeds the available context size"), errors.ContextTooLong),
        (400, ServiceErrorInfo("max_tokens: 999999 > 64000"), errors.OutputTooLong),
        (401, ServiceErrorInfo("bad key"), errors.ApiKeyRejected),
        (403, ServiceErrorInfo(), errors.ApiKeyRejected),
        (
            400,
            ServiceErrorInfo("API key not valid. Please pass a valid one."),
            errors.ApiKeyRejected,
        ),
        (402, ServiceErrorInfo(), errors.OutOfCredit),
        (400, ServiceErrorInfo("Your credit balance is too low"), errors.OutOfCredit),
        (403, ServiceErrorInfo("Your team has used all available credits"), errors.OutOfCredit),
        (429, ServiceErrorInfo("slow"), errors.RateLimited),
        (429, ServiceErrorInfo("Too many tokens, please wait."), errors.RateLimited),
        (429, ServiceErrorInfo("x", "insufficient_quota"), errors.OutOfCredit),
        (
            429,
            ServiceErrorInfo(
                "Provider returned error", upstream="You exceeded it: insufficient_quota"
            ),
            errors.RateLimited,
        ),
        (
            429,
            ServiceErrorInfo("Request too large on tokens per min (TPM): Limit 30000"),
            errors.ContextTooLong,
        ),
        (400, ServiceErrorInfo("x", code="content_filter"), errors.Declined),
        (400, ServiceErrorInfo("x", "image_content_policy_violation"), errors.Declined),
        (400, ServiceErrorInfo("x", "safety_error"), errors.Declined),
        (403, ServiceErrorInfo('Your input was flagged for "violence"'), errors.Declined),
        (400, ServiceErrorInfo("Content Exists Risk"), errors.Declined),
        (400, ServiceErrorInfo("Unsupported parameter: safety_identifier"), errors.BadRequest),
        (400, ServiceErrorInfo("Streaming is not supported for this model"), errors.CannotStream),
        (
            400,
            ServiceErrorInfo("Unsupported value: 'stream' does not support true"),
            errors.CannotStream,
        ),
        (
            400,
            ServiceErrorInfo("Organization must be verified to stream this"),
            errors.CannotStream,
        ),
        (422, ServiceErrorInfo("This model does not support streaming."), errors.CannotStream),
        (501, ServiceErrorInfo("stream: unsupported"), errors.CannotStream),
        (400, ServiceErrorInfo("Non-streaming is not supported"), errors.BadRequest),
        (400, ServiceErrorInfo("This model only supports the stream mode"), errors.BadRequest),
        (400, ServiceErrorInfo("stream_options is not supported"), errors.BadRequest),
        (408, ServiceErrorInfo(), errors.Overloaded),
        (409, ServiceErrorInfo(), errors.Overloaded),
        (500, ServiceErrorInfo(), errors.Overloaded),
        (503, ServiceErrorInfo("upstream billing"), errors.Overloaded),
        (529, ServiceErrorInfo(), errors.Overloaded),
    ],
)
def test_an_http_status_is_classified(
    status: int, complaint: ServiceErrorInfo, error: type[errors.ProviderError]
) -> None:
    sorted_ = classify_http_error(status, complaint, {})
    assert type(sorted_) is error
    assert str(sorted_) == (complaint.summary or f"HTTP status {status}")


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
def test_retry_after_is_kept(status: int, headers: dict[str, str]) -> None:
    error = classify_http_error(status, ServiceErrorInfo(), headers)
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
def test_the_time_to_wait_is_read_from_the_message(said: str, seconds: float | None) -> None:
    for error in (
        classify_http_error(429, ServiceErrorInfo(said), {}),
        classify_stream_error(ServiceErrorInfo(said, code="rate_limit_exceeded")),
    ):
        assert isinstance(error, errors.RateLimited)
        assert error.retry_after == seconds


def test_a_retry_after_header_overrides_the_message() -> None:
    error = classify_http_error(429, ServiceErrorInfo("try again in 9s"), {"retry-after": "0"})
    assert isinstance(error, errors.RateLimited)
    assert error.retry_after == 0


@pytest.mark.parametrize(
    ("complaint", "error"),
    [
        (ServiceErrorInfo("Network connection lost."), errors.ConnectionLost),
        (ServiceErrorInfo("connection reset by peer"), errors.ConnectionLost),
        (ServiceErrorInfo("Timeout while reading"), errors.ConnectionLost),
        (ServiceErrorInfo("The request timed out"), errors.ConnectionLost),
        (ServiceErrorInfo("unexpected EOF"), errors.ConnectionLost),
        (ServiceErrorInfo("x", "upstream_error"), errors.ConnectionLost),
        (ServiceErrorInfo("anything", is_plain_text=True), errors.ConnectionLost),
        (ServiceErrorInfo("anything"), errors.BadRequest),
        (ServiceErrorInfo("about geofences"), errors.BadRequest),
        (ServiceErrorInfo("timeout must be a number", "invalid_request_error"), errors.BadRequest),
        (ServiceErrorInfo("overloaded", is_plain_text=True), errors.Overloaded),
        (ServiceErrorInfo("x", "server_error"), errors.Overloaded),
        (ServiceErrorInfo("An error occurred while processing your request"), errors.Overloaded),
        (ServiceErrorInfo("x", "rate_limit_error"), errors.RateLimited),
        (ServiceErrorInfo("x", "invalid_request_error"), errors.BadRequest),
        (ServiceErrorInfo("x", code="insufficient_quota"), errors.OutOfCredit),
        (ServiceErrorInfo("x", code="invalid_api_key"), errors.ApiKeyRejected),
        (ServiceErrorInfo("x", code="context_length_exceeded"), errors.ContextTooLong),
        (ServiceErrorInfo("max_tokens: 9 > 5"), errors.OutputTooLong),
        (ServiceErrorInfo("x", code="content_filter"), errors.Declined),
        (ServiceErrorInfo("streaming is not supported"), errors.CannotStream),
        (ServiceErrorInfo("x", code="401"), errors.ApiKeyRejected),
        (ServiceErrorInfo("x", code="502"), errors.Overloaded),
        (ServiceErrorInfo("x", code="7"), errors.BadRequest),
    ],
)
def test_an_error_inside_a_stream_is_classified(
    complaint: ServiceErrorInfo, error: type[errors.ProviderError]
) -> None:
    assert type(classify_stream_error(complaint)) is error


def test_the_limit_in_the_message_is_kept() -> None:
    too_long = classify_http_error(
        400, ServiceErrorInfo("prompt is too long: 210000 tokens > 200000 maximum"), {}
    )
    assert isinstance(too_long, errors.ContextTooLong)
    assert too_long.limit == 200000
    too_much = classify_stream_error(ServiceErrorInfo("max_tokens: 999999 > 64000"))
    assert isinstance(too_much, errors.OutputTooLong)
    assert too_much.limit == 64000


def test_the_error_of_an_upstream_service_counts_and_is_shown() -> None:
    raw = '{"error":{"message":"prompt is too long: 9 tokens > 8 maximum","code":"x1"}}'
    metadata = {"raw": raw, "provider_name": "Acme"}
    complaint = parse_service_error({"message": "Provider returned error", "metadata": metadata})
    error = classify_http_error(400, complaint, {})
    assert isinstance(error, errors.ContextTooLong)
    assert error.limit == 8
    assert str(error) == (
        "Provider returned error (Acme: prompt is too long: 9 tokens > 8 maximum x1)"
    )


@pytest.mark.parametrize(
    ("error", "complaint"),
    [
        ("just text", ServiceErrorInfo("just text", is_plain_text=True)),
        (b"just bytes \xff", ServiceErrorInfo("just bytes \ufffd", is_plain_text=True)),
        (7, ServiceErrorInfo("7", is_plain_text=True)),
        ([], ServiceErrorInfo("[]", is_plain_text=True)),
        ({"message": "m", "type": "t", "code": 5}, ServiceErrorInfo("m", "t", "5")),
        ({"message": "m", "status": "S", "status_code": 5}, ServiceErrorInfo("m", "S", "5")),
        ({"error_message": "m", "error_type": "t"}, ServiceErrorInfo("m", "t")),
        ({"error": {"message": "m"}}, ServiceErrorInfo("m")),
        ([{"error": {"message": "m"}}], ServiceErrorInfo("m")),
        ({"error": "m"}, ServiceErrorInfo("m")),
        ({"error": [{"message": "m"}]}, ServiceErrorInfo("m")),
        ({"error": "", "message": "m"}, ServiceErrorInfo("m")),
        ({"detail": "m"}, ServiceErrorInfo("m")),
        ({"message": "m", "param": "p"}, ServiceErrorInfo("m (p)")),
        ({"message": "about p", "param": "p"}, ServiceErrorInfo("about p")),
        ({"message": "m", "n_ctx": 5}, ServiceErrorInfo("m (n_ctx=5)")),
        ({"message": "m", "metadata": {"raw": "r"}}, ServiceErrorInfo("m", upstream="r")),
        ({"message": "m", "metadata": {"raw": ""}}, ServiceErrorInfo("m")),
        ({}, ServiceErrorInfo()),
        ("a\n  b", ServiceErrorInfo("a b", is_plain_text=True)),
        ('data: {"error":{"message":"m","code":5}}\n\n', ServiceErrorInfo("m", code="5")),
        ('so {"x":1} it is', ServiceErrorInfo('so {"x":1} it is', is_plain_text=True)),
        ("so {it} is", ServiceErrorInfo("so {it} is", is_plain_text=True)),
        ("x" * 5000, ServiceErrorInfo("x" * 4000 + "…", is_plain_text=True)),
    ],
)
def test_errors_are_parsed_in_all_known_forms(error: object, complaint: ServiceErrorInfo) -> None:
    assert parse_service_error(error) == complaint


def test_the_summary_is_one_line_of_limited_length() -> None:
    assert str(classify_http_error(400, parse_service_error("x" * 400), {})) == "x" * 300 + "…"


@pytest.mark.process
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
def test_any_json_is_parsed_as_an_error(error: object) -> None:
    complaint = parse_service_error(error)
    assert isinstance(classify_stream_error(complaint), errors.ProviderError)
    assert isinstance(classify_http_error(400, complaint, {}), errors.ProviderError)


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
def test_retry_after_headers_are_parsed(headers: dict[str, str], seconds: float | None) -> None:
    assert read_retry_after(headers) == seconds
