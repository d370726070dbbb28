"""Conversion of an `HttpFailure` into a Starlette response."""

from collections.abc import Mapping

from starlette.responses import Response

from gateway.http.errors import HttpFailure


def failure_response(
    failure: HttpFailure, extra_headers: Mapping[str, str] | None = None
) -> Response:
    """Return the response for a failure, with extra headers if given."""
    return Response(
        failure.encode_body(),
        failure.status,
        failure.response_headers() | dict(extra_headers or {}),
    )
