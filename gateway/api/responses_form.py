"""Sans-IO: `/v1/responses`: writes its answers, as events or whole."""

from collections.abc import Mapping
from typing import Any

import msgspec

from agent.spend import Usage
from gateway.api.beside import told
from gateway.api.failures import Failure
from gateway.api.outcome import Outcome
from gateway.api.story import More, Piece

_LIFE = {"completed": "completed", "incomplete": "incomplete"}  # events of an end; else: failed
_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
_STOPPED = "stopped"
_TOO_MANY = 429
_IGNORED = "keepalive"
"""What OpenAI's library for JavaScript calls an event without meaning; it fails at what it does not
know."""

_FIXED: dict[str, object] = {
    "background": False,
    "parallel_tool_calls": True,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "truncation": "disabled",
}


class ResponsesForm:
    """Writes one answer."""

    def __init__(
        self, answer_id: str, model: str, created: int, echo: bytes, *, javascript: bool = False
    ) -> None:
        self._head: dict[str, object] = {
            "id": answer_id,
            "object": "response",
            "created_at": created,
            "model": model,
            **_FIXED,
            **(msgspec.json.decode(echo) if echo else {}),
        }
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
        return self._named(name, type_, msgspec.to_builtins(said))

    def end(self, outcome: Outcome) -> bytes:
        """Write how it ended."""
        text, status = "".join(self._given), _status(outcome)
        parts = _parts(text, outcome)
        events = []
        if parts and not self._given:
            events.append(self._item_added())
            if not outcome.declined:
                events.append(self._part_added(0, _text("")))
        if parts:
            events.extend(self._closing(parts))
            item = self._item(status, parts)
            events.append(self._event("response.output_item.done", output_index=0, item=item))
        name = f"response.{_LIFE.get(status, 'failed')}"
        events.append(self._event(name, response=self._over(parts, outcome)))
        events.append(b"data: [DONE]\n\n")
        return b"".join(events)

    def _open(self) -> bytes:
        return self._item_added() + self._part_added(0, _text(""))

    def _closing(self, parts: list[dict[str, object]]) -> list[bytes]:
        events = []
        for index, part in enumerate(parts):
            if part["type"] == "refusal":
                why = part["refusal"]
                events.append(self._part_added(index, _refusal("")))
                events.append(self._in_part("response.refusal.delta", index, delta=why))
                events.append(self._in_part("response.refusal.done", index, refusal=why))
            else:
                done = "response.output_text.done"
                events.append(self._in_part(done, index, text=part["text"], logprobs=[]))
            events.append(self._in_part("response.content_part.done", index, part=part))
        return events

    def _item_added(self) -> bytes:
        item = self._item("in_progress", [])
        return self._event("response.output_item.added", output_index=0, item=item)

    def _part_added(self, index: int, part: dict[str, object]) -> bytes:
        return self._in_part("response.content_part.added", index, part=part)

    def _in_part(self, name: str, index: int, **more: object) -> bytes:
        return self._event(name, item_id=self._item_id, output_index=0, content_index=index, **more)

    def _event(self, name: str, **data: object) -> bytes:
        return self._named(name, name, data)

    def _named(self, name: str, type_: str, data: Mapping[str, object]) -> bytes:
        numbered = {"type": type_, "sequence_number": self._number, **data}
        self._number += 1
        return f"event: {name}\ndata: ".encode() + msgspec.json.encode(numbered) + b"\n\n"

    # --- whole ----------------------------------------------------------------------------------

    def whole(self, text: str, outcome: Outcome) -> bytes:
        """Write the answer in one piece."""
        return msgspec.json.encode(self._over(_parts(text, outcome), outcome))

    def running(self) -> bytes:
        """Write an answer that is not over."""
        return msgspec.json.encode(self._response("in_progress", []))

    def _over(self, parts: list[dict[str, object]], outcome: Outcome) -> dict[str, object]:
        status = _status(outcome)
        output = [self._item(status, parts)] if parts else []
        reason = _REASONS.get(outcome.finish)
        return self._response(
            status,
            output,
            error=_error(outcome.failure) if outcome.failure else None,
            incomplete={"reason": reason} if reason else None,
            usage=_usage(outcome.usage),
        )

    def _response(
        self,
        status: str,
        output: list[dict[str, object]],
        *,
        error: dict[str, str] | None = None,
        incomplete: dict[str, str] | None = None,
        usage: dict[str, object] | None = None,
    ) -> dict[str, object]:
        return {
            **self._head,
            "status": status,
            "error": error,
            "incomplete_details": incomplete,
            "output": output,
            "usage": usage,
        }

    def _item(self, status: str, content: list[dict[str, object]]) -> dict[str, Any]:
        return {
            "id": self._item_id,
            "type": "message",
            "role": "assistant",
            "status": status if status in {"in_progress", "completed"} else "incomplete",
            "content": content,
        }


def _status(outcome: Outcome) -> str:
    if outcome.finish == "stop":
        return "completed"
    if outcome.finish in _REASONS:
        return "incomplete"
    stopped = outcome.failure is not None and outcome.failure.code == _STOPPED
    return "cancelled" if stopped else "failed"


def _parts(text: str, outcome: Outcome) -> list[dict[str, object]]:
    """What a message holds; a whole answer without a word is a message without words."""
    parts = [_text(text)] if text or outcome.finish == "stop" else []
    if outcome.declined:
        parts.append(_refusal(outcome.declined))
    return parts


def _text(text: str) -> dict[str, object]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _refusal(why: str) -> dict[str, object]:
    return {"type": "refusal", "refusal": why}


def _error(failure: Failure) -> dict[str, str]:
    """OpenAI's clients know few codes; the sentence says the rest."""
    code = "rate_limit_exceeded" if failure.status == _TOO_MANY else "server_error"
    return {"code": code, "message": failure.message}


def _usage(usage: Usage) -> dict[str, object]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.tokens,
    }
