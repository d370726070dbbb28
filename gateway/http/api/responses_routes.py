"""What is served below `/v1/responses`."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from gateway.http.api import input_items
from gateway.http.api.answers import Kept, answer_id, unknown
from gateway.http.api.asking import begun
from gateway.http.api.endings import cleaned, outcome_of
from gateway.http.api.failures import unfit
from gateway.http.api.requests import Requests
from gateway.http.api.responses_body import read_request
from gateway.http.api.responses_form import ResponsesForm
from gateway.http.api.responses_shapes import ResponseDeleted
from gateway.http.api.stream import AnswerResponse
from gateway.observe.redact import Redactor
from sessions.values.clock import Clock

_NO_REPLAY = (
    "An answer that was begun is not streamed again; ask for it without `stream`, or repeat the "
    "request with its Idempotency-Key."
)
_STILL_RUNS = "This response is still being written; cancel it first."


class ResponsesRoutes:
    """Answers requests in the form of `/v1/responses`."""

    def __init__(self, clock: Clock, keepalive: float, redactor: Redactor) -> None:
        self._clock = clock
        self._keepalive = keepalive
        self._redactor = redactor

    async def create(self, request: Request, requests: Requests) -> ASGIApp:
        """`POST /v1/responses`."""
        asked, following = await begun(request, requests, read_request)
        form = ResponsesForm(
            answer_id(following.entry),
            following.model,
            following.created,
            asked.echo,
            javascript=request.headers.get("x-stainless-lang") == "js",
        )
        return AnswerResponse(
            following,
            form,
            self._clock,
            self._keepalive,
            stream=asked.stream,
            redactor=self._redactor,
        )

    async def one(self, request: Request, requests: Requests) -> ASGIApp:
        """`/v1/responses/{id}`: one route, for a refused method is told all that there are."""
        act = self.delete if request.method == "DELETE" else self.retrieve
        return await act(request, requests)

    async def retrieve(self, request: Request, requests: Requests) -> ASGIApp:
        """`GET /v1/responses/{id}`."""
        if request.query_params.get("stream", "").lower() == "true":
            raise unfit(_NO_REPLAY, "stream", "unsupported_parameter")
        return _json(self._written(await requests.kept.get(_id_in(request))))

    async def delete(self, request: Request, requests: Requests) -> ASGIApp:
        """`DELETE /v1/responses/{id}`."""
        kept = await requests.kept.get(_id_in(request))
        if kept.end is None:
            raise unfit(_STILL_RUNS, code="response_in_progress")
        await requests.forget(kept)
        return _json(msgspec.json.encode(ResponseDeleted(kept.id)))

    async def cancel(self, request: Request, requests: Requests) -> ASGIApp:
        """`POST /v1/responses/{id}/cancel`: also of one that is not kept, as long as it runs."""
        name = _id_in(request)
        kept = await requests.kept.find(name, running=True)
        if kept and kept.end is None:
            await requests.stop(kept)
            kept = await requests.kept.again(kept)
        if kept is None:
            raise unknown(name)
        return _json(self._written(kept))

    async def input_items(self, request: Request, requests: Requests) -> ASGIApp:
        """`GET /v1/responses/{id}/input_items`: what was sent with that request."""
        kept = await requests.kept.get(_id_in(request))
        return _json(input_items.page(kept.asked, kept.wishes, request.query_params))

    def _written(self, kept: Kept) -> bytes:
        form = ResponsesForm(
            kept.id, kept.wishes.called, kept.entry.received_at // 1000, kept.wishes.echo
        )
        if kept.end is None:
            return form.running()
        clean = self._redactor.clean
        return form.whole(clean(kept.text), cleaned(outcome_of(kept.end), clean))


def _id_in(request: Request) -> str:
    return str(request.path_params["id"])


def _json(body: bytes) -> Response:
    headers = {"cache-control": "no-store"}
    return Response(body, media_type="application/json", headers=headers)
