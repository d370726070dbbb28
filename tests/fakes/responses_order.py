"""What a client of `/v1/responses` may rely on: the order of events, and that they agree."""

import json
from typing import Any

import msgspec

PROGRESS, NOTICE = "hermes.tool.progress", "holdfast.notice"
LIFE = {
    "response.completed": {"completed"},
    "response.incomplete": {"incomplete"},
    "response.failed": {"failed", "cancelled"},
}
CHANGING = {"completed_at", "status", "output", "error", "incomplete_details", "usage"}


class Answered(msgspec.Struct, frozen=True):
    """What a whole stream said."""

    response: dict[str, Any]
    text: str
    pieces: int
    ended_by: str
    tools: list[dict[str, Any]]
    notices: list[dict[str, Any]]

    @property
    def why(self) -> str:
        details = self.response["incomplete_details"]
        return details["reason"] if details else ""


class _Reader:
    def __init__(self) -> None:
        self.item: dict[str, Any] | None = None
        self.parts: list[dict[str, Any]] = []
        self.open: int | None = None  # the part that is written
        self.deltas: list[str] = []
        self.pieces = 0
        self.items: list[dict[str, Any]] = []
        self.spoken: list[str] = []

    def take(self, kind: str, data: dict[str, Any]) -> None:
        match kind.removeprefix("response."):
            case "output_item.added":
                assert self.item is None, "an item within an item"
                assert data["item"]["content"] == []
                assert data["item"]["status"] == "in_progress"
                assert data["output_index"] == len(self.items)
                self.item, self.parts = data["item"], []
            case "content_part.added":
                self._in_item(data)
                assert self.open is None, "a part within a part"
                assert data["content_index"] == len(self.parts)
                assert _words(data["part"]) == ""
                self.open, self.deltas = data["content_index"], []
                self.parts.append(data["part"])
            case "output_text.delta" | "refusal.delta":
                self._in_part(data)
                assert data["delta"], "a delta without a word"
                self.deltas.append(data["delta"])
                if "text" in kind:
                    self.pieces += 1
                    self.spoken.append(data["delta"])
            case "output_text.done":
                self._in_part(data)
                assert data["text"] == "".join(self.deltas)
            case "refusal.done":
                self._in_part(data)
                assert data["refusal"] == "".join(self.deltas)
            case "content_part.done":
                self._in_part(data)
                assert _words(data["part"]) == "".join(self.deltas)
                self.parts[-1] = data["part"]
                self.open = None
            case "output_item.done":
                assert self.item, "the end of an item that was not begun"
                assert self.open is None, "an item ends within a part"
                assert data["item"]["id"] == self.item["id"]
                assert data["item"]["content"] == self.parts
                assert data["output_index"] == len(self.items)
                self.items.append(data["item"])
                self.item = None
            case other:
                msg = f"nobody knows {other}"
                raise AssertionError(msg)

    def _in_item(self, data: dict[str, Any]) -> None:
        assert self.item, "a part without an item"
        assert data["item_id"] == self.item["id"]
        assert data["output_index"] == len(self.items)

    def _in_part(self, data: dict[str, Any]) -> None:
        self._in_item(data)
        assert data["content_index"] == self.open


def checked(events: list[dict[str, Any]]) -> Answered:
    """Read the events of one answer from the first to the last, and see that they agree."""
    assert [each["sequence_number"] for each in events] == list(range(len(events)))
    created, running, *between, last = events
    assert created["type"] == "response.created"
    assert running["type"] == "response.in_progress"
    assert created["response"] == running["response"]
    first, final = created["response"], last["response"]
    assert first["status"] == "in_progress"
    assert first["output"] == []
    assert final["status"] in LIFE[last["type"]]
    assert _lasting(first) == _lasting(final)
    reader, beside = _Reader(), list[dict[str, Any]]()
    for each in between:
        if each["type"].startswith("response."):
            reader.take(each["type"], each)
        else:
            beside.append(each)
    assert reader.item is None, "an item was not ended"
    assert final["output"] == reader.items
    status = final["status"]
    assert all(
        item["status"] == ("completed" if status == "completed" else "incomplete")
        for item in final["output"]
    )
    assert (final["error"] is not None) == (status in {"failed", "cancelled"})
    assert (final["incomplete_details"] is not None) == (status == "incomplete")
    assert final["usage"]["total_tokens"] >= 0
    tools = [each for each in beside if "toolCallId" in each]
    _check_tools(tools)
    return Answered(
        response=final,
        text="".join(reader.spoken),
        pieces=reader.pieces,
        ended_by=last["type"],
        tools=tools,
        notices=[each for each in beside if "toolCallId" not in each],
    )


def from_wire(content: bytes | str) -> Answered:
    """Read a stream as it stands on the wire; comments may stand anywhere."""
    text = content.decode() if isinstance(content, bytes) else content
    assert text.endswith("\n\n")
    blocks = [block for block in text[:-2].split("\n\n") if not block.startswith(":")]
    assert blocks.pop() == "data: [DONE]"
    events = []
    for block in blocks:
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert event["type"] in {name.removeprefix("event: "), "keepalive"}
        events.append(event)
    return checked(events)


def _check_tools(tools: list[dict[str, Any]]) -> None:
    """Exactly two for each call, the first before the second."""
    running: set[str] = set()
    over: set[str] = set()
    for each in tools:
        call = each["toolCallId"]
        if each["status"] == "running":
            assert call not in running
            running.add(call)
        else:
            assert each["status"] == "completed"
            assert call in running - over
            over.add(call)
    assert running == over


def _words(part: dict[str, Any]) -> str:
    return str(part["text"] if part["type"] == "output_text" else part["refusal"])


def _lasting(response: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in response.items() if key not in CHANGING}
