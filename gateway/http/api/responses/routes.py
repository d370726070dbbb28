"""Handlers of `/v1/responses` and the endpoints below."""

from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from gateway.http.api.answers import StoredAnswer, response_id, response_not_found
from gateway.http.api.asked import ApiRequest
from gateway.http.api.endings import outcome_of, redact_outcome
from gateway.http.api.endpoint import AnswerEndpoint
from gateway.http.api.failures import invalid_request
from gateway.http.api.requests import TurnSubscription
from gateway.http.api.responses import input_items
from gateway.http.api.responses.body import read_request
from gateway.http.api.responses.form import ResponsesEncoder
from gateway.http.api.responses.shapes import ResponseDeleted
from gateway.http.auth import requester_of
from sessions.records import InboxEntry

_STREAM_NOT_SUPPORTED = (
    "A stored response cannot be streamed; leave `stream` out, or repeat the request with its "
    "Idempotency-Key."
)
_STILL_IN_PROGRESS = "This response is still in progress; cancel it first."


class ResponsesRoutes:
    """Route handlers of the Responses API."""

    def __init__(self, endpoint: AnswerEndpoint) -> None:
        self._endpoint = endpoint
        self._requests = endpoint.requests
        self._clock = endpoint.clock
        self._redactor = endpoint.redactor

    async def create(self, request: Request) -> ASGIApp:
        """Handle `POST /v1/responses`."""
        javascript = request.headers.get("x-stainless-lang") == "js"

        def encoder(asked: ApiRequest, following: TurnSubscription) -> ResponsesEncoder:
            return ResponsesEncoder(
                response_id(following.entry),
                following.model,
                following.created,
                asked.echo,
                completed=partial(self._completed_at, following.entry),
                javascript=javascript,
            )

        return await self._endpoint.answer(request, read_request, encoder)

    async def dispatch(self, request: Request) -> ASGIApp:
        """Handle `/v1/responses/{id}`; one route, so that a 405 lists all allowed methods."""
        act = self.delete if request.method == "DELETE" else self.retrieve
        return await act(request)

    async def retrieve(self, request: Request) -> ASGIApp:
        """Handle `GET /v1/responses/{id}`."""
        if request.query_params.get("stream", "").lower() == "true":
            raise invalid_request(_STREAM_NOT_SUPPORTED, "stream", "unsupported_parameter")
        return _json_response(self._encode(await self._get(request)))

    async def delete(self, request: Request) -> ASGIApp:
        """Handle `DELETE /v1/responses/{id}`."""
        kept = await self._get(request)
        if kept.end is None:
            raise invalid_request(_STILL_IN_PROGRESS, code="response_in_progress")
        await self._requests.delete(kept)
        return _json_response(msgspec.json.encode(ResponseDeleted(kept.id)))

    async def cancel(self, request: Request) -> ASGIApp:
        """Handle `POST /v1/responses/{id}/cancel`, also for a running answer with store=false."""
        name = _requested_id(request)
        kept = await self._requests.stored_answers.find(
            name, requester_of(request), include_running=True
        )
        if kept and kept.end is None:
            await self._requests.stop(kept)
            kept = await self._requests.stored_answers.refresh(kept)
        if kept is None:
            raise response_not_found(name)
        return _json_response(self._encode(kept))

    async def input_items(self, request: Request) -> ASGIApp:
        """Handle `GET /v1/responses/{id}/input_items`."""
        kept = await self._get(request)
        return _json_response(
            input_items.encode_page(kept.message, kept.options, request.query_params)
        )

    def _completed_at(self, entry: InboxEntry) -> int:
        """Return the time at which the answer to a request was complete, in seconds."""
        return (entry.settled_at or self._clock.now()) // 1000

    async def _get(self, request: Request) -> StoredAnswer:
        """Return the answer that a request names; raises `RequestRefused`."""
        return await self._requests.stored_answers.get(
            _requested_id(request), requester_of(request)
        )

    def _encode(self, answer: StoredAnswer) -> bytes:
        form = ResponsesEncoder(
            answer.id,
            answer.options.called,
            answer.entry.received_at // 1000,
            answer.options.echo,
            completed=partial(self._completed_at, answer.entry),
        )
        if answer.end is None:
            return form.encode_in_progress()
        clean = self._redactor.redact
        return form.encode_answer(clean(answer.text), redact_outcome(outcome_of(answer.end), clean))


def _requested_id(request: Request) -> str:
    return str(request.path_params["id"])


def _json_response(body: bytes) -> Response:
    headers = {"cache-control": "no-store"}
    return Response(body, media_type="application/json", headers=headers)
