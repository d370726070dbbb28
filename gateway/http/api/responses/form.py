"""Sans-IO: encoder of `/v1/responses` answers, as events or whole."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from agent.model.usage import Usage
from gateway.http.api.endings import AnswerOutcome
from gateway.http.api.failures import HttpFailure
from gateway.http.api.pieces import AnswerPiece, AnswerTextPiece, ReasoningPiece
from gateway.http.api.responses.shapes import (
    FunctionCallItem,
    IncompleteDetails,
    InputTokenDetails,
    OutputItem,
    OutputMessage,
    OutputPart,
    OutputRefusal,
    OutputText,
    OutputTokenDetails,
    ReasoningItem,
    RequestEcho,
    Response,
    ResponseError,
    ResponseEvent,
    ResponseStatus,
    ResponseUsage,
    SummaryText,
)
from gateway.http.api.tool_events import stream_event
from sessions.records import ToolCall
from sessions.values.ids import unique_part

# Any other status ends with the event "failed".
_END_EVENTS = {"completed": "completed", "incomplete": "incomplete"}
_INCOMPLETE_REASONS: dict[str, Literal["max_output_tokens", "content_filter"]] = {
    "length": "max_output_tokens",
    "content_filter": "content_filter",
}
_STOPPED_CODE = "stopped"
_TOO_MANY_REQUESTS = 429
_IGNORED_EVENT = "keepalive"
"""Event type that OpenAI's JavaScript library ignores; the library fails on unknown types."""

_decode_echo = msgspec.json.Decoder(RequestEcho).decode


class ResponsesEncoder:
    """Encoder of one answer."""

    failures_are_errors = False  # a failed response is an object with its output

    def __init__(
        self,
        answer_id: str,
        model: str,
        created: int,
        echo: bytes,
        *,
        completed: Callable[[], int] | None = None,
        javascript: bool = False,
        starting_after: int = -1,
    ) -> None:
        self._id = answer_id
        self._model = model
        self._created = created
        self._completed = completed  # returns the time in seconds
        stored = _decode_echo(echo) if echo else RequestEcho()
        self._echo = replace(
            stored,
            temperature=1.0 if stored.temperature is None else stored.temperature,
            top_p=1.0 if stored.top_p is None else stored.top_p,
        )
        self._item_id = f"msg_{unique_part(answer_id)}"
        self._javascript = javascript
        self._sequence_number = 0
        self._starting_after = starting_after  # events up to this number are left out
        self._sent_texts: list[str] = []
        self._message_index = 0  # in the output, once texts are sent
        self._output: list[ReasoningItem | None] = []  # items opened so far; None: the message
        self._open_reasoning: list[str] = []  # texts of the reasoning item at the end of the output

    # --- events ---------------------------------------------------------------------------------

    def encode_start(self) -> bytes:
        """Encode the first events of an answer."""
        running = self._response("in_progress", [])
        return self._event("response.created", response=running) + self._event(
            "response.in_progress", response=running
        )

    def encode_piece(self, piece: AnswerPiece) -> bytes:
        """Encode a piece of the answer."""
        if isinstance(piece, AnswerTextPiece):
            opened = self._close_reasoning()
            if not self._sent_texts:
                opened += self._item_added_event() + self._part_added_event(0, OutputText(""))
            self._sent_texts.append(piece.text)
            return opened + self._content_event(
                "response.output_text.delta", 0, delta=piece.text, logprobs=[]
            )
        if isinstance(piece, ReasoningPiece):
            return self._add_reasoning(piece.text)
        name, payload = stream_event(piece)
        type_ = _IGNORED_EVENT if self._javascript else name
        number = self._next_sequence_number()
        numbered = {"type": type_, "sequence_number": number}
        return self._encode_event(name, number, numbered | msgspec.to_builtins(payload))

    def encode_end(self, outcome: AnswerOutcome) -> bytes:
        """Encode the last events: open parts closed, the final response, `[DONE]`."""
        text, status = "".join(self._sent_texts), _status(outcome)
        parts = _output_parts(text, outcome)
        events = [self._close_reasoning()]
        if parts and not self._sent_texts:
            events.append(self._item_added_event())
            if not outcome.refusal:  # a refusal announces its own part
                events.append(self._part_added_event(0, OutputText("")))
        if parts:
            events.extend(self._close_parts(parts))
            item = self._output_message(status, parts)
            index = self._message_index
            events.append(self._event("response.output_item.done", output_index=index, item=item))
        for index, call in enumerate(outcome.client_calls, start=len(self._output)):
            events.extend(self._call_events(index, call))
        name = f"response.{_END_EVENTS.get(status, 'failed')}"
        finished = self._finished_response(parts, outcome, self._output)
        events.append(self._event(name, response=finished))
        events.append(b"data: [DONE]\n\n")
        return b"".join(events)

    def _call_events(self, index: int, call: ToolCall) -> Iterator[bytes]:
        """Encode the events of a call, which is only known as a whole."""
        item = _call_item(call)
        opened = replace(item, status="in_progress", arguments="")
        place: dict[str, Any] = {"output_index": index, "item_id": item.id}
        arguments = "response.function_call_arguments"
        yield self._event("response.output_item.added", output_index=index, item=opened)
        yield self._event(f"{arguments}.delta", delta=call.arguments, **place)
        yield self._event(f"{arguments}.done", name=call.name, arguments=call.arguments, **place)
        yield self._event("response.output_item.done", output_index=index, item=item)

    # --- reasoning ------------------------------------------------------------------------------

    def _add_reasoning(self, text: str) -> bytes:
        """Encode more reasoning; reasoning after text is a new item, because items do not grow."""
        opened = b""
        if not self._open_reasoning:
            text = text.lstrip("\n")  # which separate it from earlier reasoning
            item = ReasoningItem(id=self._reasoning_id(len(self._output)), summary=[])
            self._output.append(item)
            index = len(self._output) - 1
            opened = self._event("response.output_item.added", output_index=index, item=item)
            opened += self._summary_event("_part.added", part=SummaryText(""))
        self._open_reasoning.append(text)
        return opened + self._summary_event("_text.delta", delta=text)

    def _close_reasoning(self) -> bytes:
        if not self._open_reasoning:
            return b""
        text = "".join(self._open_reasoning)
        self._open_reasoning = []
        index = len(self._output) - 1
        item = _reasoning_item(self._reasoning_id(index), text)
        closed = self._summary_event("_text.done", text=text)
        closed += self._summary_event("_part.done", part=SummaryText(text))
        self._output[index] = item
        return closed + self._event("response.output_item.done", output_index=index, item=item)

    def _summary_event(self, name: str, **more: Any) -> bytes:  # noqa: ANN401 - fields of an event
        index = len(self._output) - 1
        return self._event(
            f"response.reasoning_summary{name}",
            item_id=self._reasoning_id(index),
            output_index=index,
            summary_index=0,
            **more,
        )

    def _reasoning_id(self, index: int) -> str:
        return f"rs_{unique_part(self._id)}_{index}"

    # --- the message ----------------------------------------------------------------------------

    def _close_parts(self, parts: list[OutputPart]) -> list[bytes]:
        events = []
        for index, part in enumerate(parts):
            if isinstance(part, OutputRefusal):
                why = part.refusal
                events.append(self._part_added_event(index, OutputRefusal("")))
                events.append(self._content_event("response.refusal.delta", index, delta=why))
                events.append(self._content_event("response.refusal.done", index, refusal=why))
            else:
                done = "response.output_text.done"
                events.append(self._content_event(done, index, text=part.text, logprobs=[]))
            events.append(self._content_event("response.content_part.done", index, part=part))
        return events

    def _item_added_event(self) -> bytes:
        item = self._output_message("in_progress", [])
        self._message_index = len(self._output)
        self._output.append(None)
        index = self._message_index
        return self._event("response.output_item.added", output_index=index, item=item)

    def _part_added_event(self, index: int, part: OutputPart) -> bytes:
        return self._content_event("response.content_part.added", index, part=part)

    def _content_event(self, name: str, index: int, **more: Any) -> bytes:  # noqa: ANN401 - fields of an event
        return self._event(
            name,
            item_id=self._item_id,
            output_index=self._message_index,
            content_index=index,
            **more,
        )

    def _event(self, type_: str, /, **data: Any) -> bytes:  # noqa: ANN401 - fields of an event
        number = self._next_sequence_number()
        event = ResponseEvent(type=type_, sequence_number=number, **data)
        return self._encode_event(type_, number, event)

    def _encode_event(self, name: str, number: int, data: object) -> bytes:
        if number <= self._starting_after:
            return b""
        return f"event: {name}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"

    def _next_sequence_number(self) -> int:
        self._sequence_number += 1
        return self._sequence_number - 1

    # --- whole ----------------------------------------------------------------------------------

    def encode_answer(self, text: str, outcome: AnswerOutcome) -> bytes:
        """Encode the whole answer."""
        parts = _output_parts(text, outcome)
        before: list[ReasoningItem | None] = []
        if outcome.reasoning:
            before.append(_reasoning_item(self._reasoning_id(0), outcome.reasoning))
        if parts:
            before.append(None)
        return msgspec.json.encode(self._finished_response(parts, outcome, before))

    def encode_in_progress(self, *, queued: bool = False) -> bytes:
        """Encode a response whose turn is still running, or has not begun."""
        return msgspec.json.encode(self._response("queued" if queued else "in_progress", []))

    def _finished_response(
        self,
        parts: list[OutputPart],
        outcome: AnswerOutcome,
        items: Iterable[ReasoningItem | None],
    ) -> Response:
        """Return the response with these items and the calls; None stands for the message."""
        status = _status(outcome)
        output: list[OutputItem] = [each or self._output_message(status, parts) for each in items]
        output += map(_call_item, outcome.client_calls)
        cut = outcome.finish_reason if outcome.finish_reason in _INCOMPLETE_REASONS else ""
        return self._response(
            status,
            output,
            error=_error(outcome.failure) if outcome.failure else None,
            incomplete_details=IncompleteDetails(_INCOMPLETE_REASONS[cut]) if cut else None,
            usage=_usage(outcome.usage),
            completed_at=self._completed_at() if status == "completed" else None,
        )

    def _completed_at(self) -> int:
        return max(self._created, self._completed()) if self._completed else self._created

    def _response(
        self,
        status: ResponseStatus,
        output: list[OutputItem],
        **more: Any,  # noqa: ANN401 - fields of the response
    ) -> Response:
        return Response(
            id=self._id,
            created_at=self._created,
            model=self._model,
            status=status,
            output=output,
            **more,
            **msgspec.structs.asdict(self._echo),
        )

    def _output_message(self, status: ResponseStatus, content: list[OutputPart]) -> OutputMessage:
        known = status if status in {"in_progress", "completed"} else "incomplete"
        return OutputMessage(id=self._item_id, status=known, content=content)


def wants_summary(echo: bytes) -> bool:
    """Return True if a stored request asked for a summary of the reasoning."""
    return bool(echo) and _decode_echo(echo).reasoning.summary is not None


def _status(outcome: AnswerOutcome) -> ResponseStatus:
    if outcome.finish_reason in {"stop", "tool_calls"}:
        return "completed"
    if outcome.finish_reason in _INCOMPLETE_REASONS:
        return "incomplete"
    stopped = outcome.failure is not None and outcome.failure.code == _STOPPED_CODE
    return "cancelled" if stopped else "failed"


def _output_parts(text: str, outcome: AnswerOutcome) -> list[OutputPart]:
    """Return the parts of the message; a complete answer has a text part even if it is empty."""
    parts: list[OutputPart] = [OutputText(text)] if text or outcome.finish_reason == "stop" else []
    if refusal := outcome.refusal_beside(text):
        parts.append(OutputRefusal(refusal))
    return parts


def _reasoning_item(id_: str, text: str) -> ReasoningItem:
    return ReasoningItem(id=id_, summary=[SummaryText(text)])


def _call_item(call: ToolCall) -> FunctionCallItem:
    return FunctionCallItem(
        id=f"fc_{unique_part(call.id)}",
        call_id=call.id,
        name=call.name,
        arguments=call.arguments,
    )


def _error(failure: HttpFailure) -> ResponseError:
    """Map a failure to one of the two codes that OpenAI's clients know."""
    if failure.status == _TOO_MANY_REQUESTS:
        return ResponseError("rate_limit_exceeded", failure.message)
    return ResponseError("server_error", failure.message)


def _usage(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=usage.input_tokens,
        input_tokens_details=InputTokenDetails(usage.cached_tokens),
        output_tokens=usage.output_tokens,
        output_tokens_details=OutputTokenDetails(usage.reasoning_tokens),
        total_tokens=usage.total_tokens,
    )
