"""Sans-IO: `/v1/responses`: writes its answers, as events or whole."""

from typing import Any, Literal

import msgspec

from agent.model.usage import Usage
from gateway.http.api.endings import Outcome
from gateway.http.api.failures import Failure
from gateway.http.api.pieces import More, Piece
from gateway.http.api.responses_shapes import (
    Echo,
    Incomplete,
    InputDetails,
    OutputMessage,
    OutputPart,
    OutputRefusal,
    OutputText,
    Response,
    ResponseError,
    ResponseEvent,
    ResponseUsage,
    Status,
)
from gateway.http.api.tool_events import told

_LIFE = {"completed": "completed", "incomplete": "incomplete"}  # events of an end; else: failed
_REASONS: dict[str, Literal["max_output_tokens", "content_filter"]] = {
    "length": "max_output_tokens",
    "content_filter": "content_filter",
}
_STOPPED = "stopped"
_TOO_MANY = 429
_IGNORED = "keepalive"
"""What OpenAI's library for JavaScript calls an event without meaning; it fails at what it does not
know."""

_read_echo = msgspec.json.Decoder(Echo).decode


class ResponsesForm:
    """Writes one answer."""

    def __init__(
        self, answer_id: str, model: str, created: int, echo: bytes, *, javascript: bool = False
    ) -> None:
        self._id = answer_id
        self._model = model
        self._created = created
        self._echo = _read_echo(echo) if echo else Echo()
        self._item_id = f"msg_{answer_id.partition('_')[2]}"
        self._javascript = javascript
        self._number = 0
        self._given: list[str] = []

    # --- events ---------------------------------------------------------------------------------

    def begin(self) -> bytes:
        """Write the first events of an answer."""
        running = self._response("in_progress", [])
        return self._event("response.created", response=running) + self._event(
            "response.in_progress", response=running
        )

    def piece(self, piece: Piece) -> bytes:
        """Write what is told of a turn."""
        if isinstance(piece, More):
            opened = b"" if self._given else self._open()
            self._given.append(piece.text)
            return opened + self._in_part(
                "response.output_text.delta", 0, delta=piece.text, logprobs=[]
            )
        name, said = told(piece)
        type_ = _IGNORED if self._javascript else name
        numbered = {"type": type_, "sequence_number": self._next()}
        return _written(name, numbered | msgspec.to_builtins(said))

    def end(self, outcome: Outcome) -> bytes:
        """Write how it ended."""
        text, status = "".join(self._given), _status(outcome)
        parts = _parts(text, outcome)
        events = []
        if parts and not self._given:
            events.append(self._item_added())
            if not outcome.declined:
                events.append(self._part_added(0, OutputText("")))
        if parts:
            events.extend(self._closing(parts))
            item = self._item(status, parts)
            events.append(self._event("response.output_item.done", output_index=0, item=item))
        name = f"response.{_LIFE.get(status, 'failed')}"
        events.append(self._event(name, response=self._over(parts, outcome)))
        events.append(b"data: [DONE]\n\n")
        return b"".join(events)

    def _open(self) -> bytes:
        return self._item_added() + self._part_added(0, OutputText(""))

    def _closing(self, parts: list[OutputPart]) -> list[bytes]:
        events = []
        for index, part in enumerate(parts):
            if isinstance(part, OutputRefusal):
                why = part.refusal
                events.append(self._part_added(index, OutputRefusal("")))
                events.append(self._in_part("response.refusal.delta", index, delta=why))
                events.append(self._in_part("response.refusal.done", index, refusal=why))
            else:
                done = "response.output_text.done"
                events.append(self._in_part(done, index, text=part.text, logprobs=[]))
            events.append(self._in_part("response.content_part.done", index, part=part))
        return events

    def _item_added(self) -> bytes:
        item = self._item("in_progress", [])
        return self._event("response.output_item.added", output_index=0, item=item)

    def _part_added(self, index: int, part: OutputPart) -> bytes:
        return self._in_part("response.content_part.added", index, part=part)

    def _in_part(self, name: str, index: int, **more: Any) -> bytes:  # noqa: ANN401 - fields of an event
        return self._event(name, item_id=self._item_id, output_index=0, content_index=index, **more)

    def _event(self, name: str, **data: Any) -> bytes:  # noqa: ANN401 - fields of an event
        event = ResponseEvent(type=name, sequence_number=self._next(), **data)
        return _written(name, event)

    def _next(self) -> int:
        self._number += 1
        return self._number - 1

    # --- whole ----------------------------------------------------------------------------------

    def whole(self, text: str, outcome: Outcome) -> bytes:
        """Write the answer in one piece."""
        return msgspec.json.encode(self._over(_parts(text, outcome), outcome))

    def running(self) -> bytes:
        """Write an answer that is not over."""
        return msgspec.json.encode(self._response("in_progress", []))

    def _over(self, parts: list[OutputPart], outcome: Outcome) -> Response:
        status = _status(outcome)
        output = [self._item(status, parts)] if parts else []
        cut = outcome.finish if outcome.finish in _REASONS else ""
        return self._response(
            status,
            output,
            error=_error(outcome.failure) if outcome.failure else None,
            incomplete_details=Incomplete(_REASONS[cut]) if cut else None,
            usage=_usage(outcome.usage),
        )

    def _response(self, status: Status, output: list[OutputMessage], **more: Any) -> Response:  # noqa: ANN401
        return Response(
            id=self._id,
            created_at=self._created,
            model=self._model,
            status=status,
            output=output,
            **more,
            **msgspec.structs.asdict(self._echo),
        )

    def _item(self, status: Status, content: list[OutputPart]) -> OutputMessage:
        known = status if status in {"in_progress", "completed"} else "incomplete"
        return OutputMessage(id=self._item_id, status=known, content=content)


def _written(name: str, data: object) -> bytes:
    return f"event: {name}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"


def _status(outcome: Outcome) -> Status:
    if outcome.finish == "stop":
        return "completed"
    if outcome.finish in _REASONS:
        return "incomplete"
    stopped = outcome.failure is not None and outcome.failure.code == _STOPPED
    return "cancelled" if stopped else "failed"


def _parts(text: str, outcome: Outcome) -> list[OutputPart]:
    """What a message holds; a whole answer without a word is a message without words."""
    parts: list[OutputPart] = [OutputText(text)] if text or outcome.finish == "stop" else []
    if outcome.declined:
        parts.append(OutputRefusal(outcome.declined))
    return parts


def _error(failure: Failure) -> ResponseError:
    """OpenAI's clients know few codes; the sentence says the rest."""
    if failure.status == _TOO_MANY:
        return ResponseError("rate_limit_exceeded", failure.message)
    return ResponseError("server_error", failure.message)


def _usage(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=usage.input_tokens,
        input_tokens_details=InputDetails(usage.cached_tokens),
        output_tokens=usage.output_tokens,
        total_tokens=usage.tokens,
    )
