"""Sans-IO: what was sent with a request of `/v1/responses`, as it is listed afterwards."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from gateway.http.api.failures import unfit
from gateway.http.api.responses_shapes import ItemList, Kind, ListedItem
from gateway.inbound.request_options import Row, Wishes
from platforms.core.contract import File, InboundMessage

_USUAL, _MOST = 20, 100

Item = dict[str, object]


def page(asked: InboundMessage, wishes: Wishes, query: Mapping[str, str]) -> bytes:
    """Write a part of the list; raises `Refused` for one that there cannot be."""
    items = list(_items(asked, wishes))
    if query.get("order", "desc") != "asc":
        items.reverse()
    names = [item.id for item in items]
    after = query.get("after", "")
    if after and after not in names:
        msg = f"There is no item “{after[:80]}” in this list."
        raise unfit(msg, "after")
    first = names.index(after) + 1 if after else 0
    shown = items[first : first + _limit(query)]
    listed = ItemList(
        data=shown,
        first_id=shown[0].id if shown else None,
        last_id=shown[-1].id if shown else None,
        has_more=first + len(shown) < len(items),
    )
    return msgspec.json.encode(listed)


def _limit(query: Mapping[str, str]) -> int:
    given = query.get("limit", str(_USUAL))
    if not (given.isascii() and given.isdecimal() and 1 <= int(given[:9]) <= _MOST):
        msg = f"`limit` is a number from 1 to {_MOST}."
        raise unfit(msg, "limit")
    return int(given)


def _items(asked: InboundMessage, wishes: Wishes) -> Iterator[ListedItem]:
    number = 0
    files = tuple(part for part in asked.parts if isinstance(part, File))
    for row in (*wishes.before, Row("user", asked.text, files)):
        for name, item in _of_row(row):
            yield ListedItem(id=f"item_{asked.id}_{number}", type=name, **item)
            number += 1


def _of_row(row: Row) -> Iterator[tuple[Kind, dict[str, Any]]]:
    if row.role == "tool":
        yield "function_call_output", {"call_id": row.tool_call_id or "", "output": row.text}
        return
    content = list(_content(row.role, row.text, row.files))
    if content:
        yield "message", {"role": row.role, "content": content}
    for call in row.tool_calls:
        called = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
        yield "function_call", called


def _content(role: str, text: str, files: Iterable[File]) -> Iterator[Item]:
    if text:
        if role == "assistant":
            yield {"type": "output_text", "text": text, "annotations": []}
        else:
            yield {"type": "input_text", "text": text}
    for _ in files:  # a picture is told of, not given back
        yield {"type": "input_image", "detail": "auto", "image_url": None, "file_id": None}
