"""A failure as a response."""

from collections.abc import Mapping

from starlette.responses import Response

from gateway.http.errors import Failure


def refusal(failure: Failure, more: Mapping[str, str] | None = None) -> Response:
    """Answer with it, and with headers of the occasion."""
    return Response(failure.body(), failure.status, failure.headers() | dict(more or {}))
