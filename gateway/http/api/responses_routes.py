"""Handlers of `/v1/responses` and the endpoints below."""

from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from gateway.http.api import input_items
from gateway.http.api.answers import StoredAnswer, response_id, response_not_found
from gateway.http.api.endings import outcome_of, redact_outcome
from gateway.http.api.failures import invalid_request
from gateway.http.api.requests import ApiRequests, subscribe_to_answer
from gateway.http.api.responses_body import read_request
from gateway.http.api.responses_form import ResponsesEncoder
from gateway.http.api.responses_shapes import ResponseDeleted
from gateway.http.api.stream import AnswerResponse
from gateway.observe.redact import Redactor
from sessions.records import InboxEntry
from sessions.values.clock import Clock

_STREAM_NOT_SUPPORTED = (
    "A stored response cannot be streamed; leave `stream` out, or repeat the request with its "
    "Idempotency-Key."
)
_STILL_IN_PROGRESS = "This response is still in progress; cancel it first."


class ResponsesRoutes:
    """Route handlers of the Responses API."""

    def __init__(
        self,
        requests: ApiRequests,
        clock: Clock,
        keepalive_seconds: float,
        redactor: Redactor,
    ) -> None:
        self._requests = requests
        self._clock = clock
        self._keepalive_seconds = keepalive_seconds
        self._redactor = redactor

    async def create(self, request: Request) -> ASGIApp:
        """Handle `POST /v1/responses`."""
        asked, following = await subscribe_to_answer(request, self._requests, read_request)
        form = ResponsesEncoder(
            response_id(following.entry),
            following.model,
            following.created,
            asked.echo,
            completed=partial(self._completed_at, following.entry),
            javascript=request.headers.get("x-stainless-lang") == "js",
        )
        return AnswerResponse(
            subscription=following,
            encoder=form,
            clock=self._clock,
            keepalive_seconds=self._keepalive_seconds,
            stream=asked.stream,
            redactor=self._redactor,
            warnings=asked.warnings,
        )

    async def dispatch(self, request: Request) -> ASGIApp:
        """Handle `/v1/responses/{id}`; one route, so that a 405 lists all allowed methods."""
        act = self.delete if request.method == "DELETE" else self.retrieve
        return await act(request)

    async def retrieve(self, request: Request) -> ASGIApp:
        """Handle `GET /v1/responses/{id}`."""
        if request.query_params.get("stream", "").lower() == "true":
            raise invalid_request(_STREAM_NOT_SUPPORTED, "stream", "unsupported_parameter")
        return _json_response(
            self._encode(await self._requests.stored_answers.get(_requested_id(request)))
        )

    async def delete(self, request: Request) -> ASGIApp:
        """Handle `DELETE /v1/responses/{id}`."""
        kept = await self._requests.stored_answers.get(_requested_id(request))
        if kept.end is None:
            raise invalid_request(_STILL_IN_PROGRESS, code="response_in_progress")
        await self._requests.delete(kept)
        return _json_response(msgspec.json.encode(ResponseDeleted(kept.id)))

    async def cancel(self, request: Request) -> ASGIApp:
        """Handle `POST /v1/responses/{id}/cancel`, also for a running answer with store=false."""
        name = _requested_id(request)
        kept = await self._requests.stored_answers.find(name, include_running=True)
        if kept and kept.end is None:
            await self._requests.stop(kept)
            kept = await self._requests.stored_answers.refresh(kept)
        if kept is None:
            raise response_not_found(name)
        return _json_response(self._encode(kept))

    async def input_items(self, request: Request) -> ASGIApp:
        """Handle `GET /v1/responses/{id}/input_items`."""
        kept = await self._requests.stored_answers.get(_requested_id(request))
        return _json_response(
            input_items.encode_page(kept.message, kept.options, request.query_params)
        )

    def _completed_at(self, entry: InboxEntry) -> int:
        """Return the time at which the answer to a request was complete, in seconds."""
        return (entry.settled_at or self._clock.now()) // 1000

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
