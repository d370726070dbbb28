"""A failure as a response."""

from collections.abc import Mapping

from starlette.responses import Response

from gateway.http.errors import HttpFailure


def failure_response(
    failure: HttpFailure, extra_headers: Mapping[str, str] | None = None
) -> Response:
    """Answer with it, and with headers of the occasion."""
    return Response(
        failure.encode_body(),
        failure.status,
        failure.response_headers() | dict(extra_headers or {}),
    )
