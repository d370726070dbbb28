"""Handlers of `/v1/responses` and the endpoints below."""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from gateway.http.api.answers import StoredAnswer, response_id, response_not_found
from gateway.http.api.endings import outcome_of, redact_outcome
from gateway.http.api.endpoint import AnswerEndpoint
from gateway.http.api.failures import invalid_request
from gateway.http.api.requests import TurnSubscription
from gateway.http.api.responses import input_items
from gateway.http.api.responses.body import read_request
from gateway.http.api.responses.form import ResponsesEncoder, wants_summary
from gateway.http.api.responses.shapes import ResponseDeleted
from gateway.http.api.stream import SESSION_STATE_HEADER
from gateway.http.auth import requester_of
from gateway.turns.feeds import Feed
from sessions.records import InboxEntry, InboxState

_STREAM_NOT_SUPPORTED = (
    "A stored response can be streamed only if it was created with `background`; leave `stream` "
    "out, or repeat the request with its Idempotency-Key."
)
_ENDED_ALREADY = (
    "The events of this response are gone, because it has ended; get it without `stream`."
)
_CONTINUED_ELSEWHERE = "This response was interrupted by a restart and has no complete stream; get it without `stream`."
_BAD_POSITION = "`starting_after` must be the sequence number of an event."
_MAX_POSITION_DIGITS = 9
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
        asked, following = await self._endpoint.begin(request, read_request)
        encoder = self._following_encoder(request, following, asked.echo)
        if not asked.background:
            return self._endpoint.respond(asked, following, encoder)
        if asked.stream:
            return self._endpoint.stream_background(
                following, encoder, wants_reasoning=asked.wants_reasoning
            )
        with following:
            answer = await self._requests.stored_answers.get(
                response_id(following.entry), requester_of(request)
            )
            state = following.session_state
        return _json_response(self._encode(answer), {SESSION_STATE_HEADER: state} if state else {})

    async def dispatch(self, request: Request) -> ASGIApp:
        """Handle `/v1/responses/{id}`; one route, so that a 405 lists all allowed methods."""
        act = self.delete if request.method == "DELETE" else self.retrieve
        return await act(request)

    async def retrieve(self, request: Request) -> ASGIApp:
        """Handle `GET /v1/responses/{id}`."""
        kept = await self._get(request)
        if request.query_params.get("stream", "").lower() == "true":
            return await self._stream(request, kept)
        return _json_response(self._encode(kept))

    async def _stream(self, request: Request, answer: StoredAnswer) -> ASGIApp:
        """Stream an answer in the background, from its first event or after an event."""
        if not answer.options.background:
            raise invalid_request(_STREAM_NOT_SUPPORTED, "stream", "unsupported_parameter")
        after = _read_position(request.query_params.get("starting_after"))
        following = await self._requests.follow(answer)
        if following is None:
            if after is not None:
                raise invalid_request(_ENDED_ALREADY, "starting_after", "response_ended")
            following = await self._requests.replay(answer)
        elif answer.turn and answer.turn.resumed:
            following.unsubscribe()
            raise invalid_request(_CONTINUED_ELSEWHERE, "stream", "response_interrupted")
        echo = answer.options.echo
        encoder = self._following_encoder(request, following, echo, -1 if after is None else after)
        return self._endpoint.stream_background(
            following, encoder, wants_reasoning=wants_summary(echo)
        )

    def _following_encoder(
        self, request: Request, following: TurnSubscription, echo: bytes, after: int = -1
    ) -> ResponsesEncoder:
        return ResponsesEncoder(
            response_id(following.entry),
            following.model,
            following.created,
            echo,
            completed=partial(self._completed_at, following.entry, following.feed),
            javascript=request.headers.get("x-stainless-lang") == "js",
            starting_after=after,
        )

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

    def _completed_at(self, entry: InboxEntry, feed: Feed | None = None) -> int:
        """Return the stored time at which the answer to a request was complete, in seconds."""
        at_end = feed.end.at if feed and feed.end else 0
        return (entry.settled_at or at_end or self._clock.now()) // 1000

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
            queued = answer.options.background and answer.entry.state is InboxState.WAITING
            return form.encode_in_progress(queued=queued)
        clean = self._redactor.redact
        outcome = outcome_of(answer.end, answer.entry.decision)
        return form.encode_answer(clean(answer.text), redact_outcome(outcome, clean))


def _requested_id(request: Request) -> str:
    return str(request.path_params["id"])


def _read_position(given: str | None) -> int | None:
    if given is None:
        return None
    digits = given.isascii() and given.isdecimal()
    if not digits or len(given) > _MAX_POSITION_DIGITS:
        raise invalid_request(_BAD_POSITION, "starting_after")
    return int(given)


def _json_response(body: bytes, more: Mapping[str, str] = MappingProxyType({})) -> Response:
    headers = {"cache-control": "no-store", **more}
    return Response(body, media_type="application/json", headers=headers)
