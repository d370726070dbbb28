"""Sans-IO: the list of input items of a stored response (`/v1/responses/{id}/input_items`)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from gateway.http.api.failures import invalid_request
from gateway.http.api.responses.shapes import InputItemType, ItemList, ListedItem
from gateway.inbound.request_options import EarlierMessage, RequestOptions
from platforms.core.contract import File, InboundMessage
from sessions.records import MessageRole

_DEFAULT_LIMIT, _MAX_LIMIT = 20, 100

ItemFields = dict[str, object]


def encode_page(
    message: InboundMessage, options: RequestOptions, query: Mapping[str, str]
) -> bytes:
    """Encode one page of the list; raises `RequestRefused` for a bad `after` or `limit`."""
    items = list(_list_items(message, options))
    if query.get("order", "desc") != "asc":
        items.reverse()
    names = [item.id for item in items]
    after = query.get("after", "")
    if after and after not in names:
        msg = f"There is no item “{after[:80]}” in this list."
        raise invalid_request(msg, "after")
    first = names.index(after) + 1 if after else 0
    shown = items[first : first + _read_limit(query)]
    listed = ItemList(
        data=shown,
        first_id=shown[0].id if shown else None,
        last_id=shown[-1].id if shown else None,
        has_more=first + len(shown) < len(items),
    )
    return msgspec.json.encode(listed)


def _read_limit(query: Mapping[str, str]) -> int:
    given = query.get("limit", str(_DEFAULT_LIMIT))
    if not (given.isascii() and given.isdecimal() and 1 <= int(given[:9]) <= _MAX_LIMIT):
        msg = f"`limit` must be a number from 1 to {_MAX_LIMIT}."
        raise invalid_request(msg, "limit")
    return int(given)


def _list_items(message: InboundMessage, options: RequestOptions) -> Iterator[ListedItem]:
    number = 0
    files = tuple(part for part in message.parts if isinstance(part, File))
    newest = EarlierMessage(
        role=MessageRole.TOOL if options.tool_call_id else MessageRole.USER,
        text=message.text,
        files=files,
        tool_call_id=options.tool_call_id or None,
    )
    for row in (*options.before, newest):
        for name, item in _row_items(row):
            yield ListedItem(id=f"item_{message.id}_{number}", type=name, **item)
            number += 1


def _row_items(row: EarlierMessage) -> Iterator[tuple[InputItemType, dict[str, Any]]]:
    if row.role is MessageRole.TOOL:
        yield "function_call_output", {"call_id": row.tool_call_id or "", "output": row.text}
        return
    content = list(_content_parts(row.role, row.text, row.files))
    if content:
        yield "message", {"role": row.role, "content": content}
    for call in row.tool_calls:
        called = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
        yield "function_call", called


def _content_parts(role: MessageRole, text: str, files: Iterable[File]) -> Iterator[ItemFields]:
    if text:
        if role is MessageRole.ASSISTANT:
            yield {"type": "output_text", "text": text, "annotations": []}
        else:
            yield {"type": "input_text", "text": text}
    for file in files:  # listed without their content
        if not file.media_type.startswith("image/"):
            yield {"type": "input_file", "filename": file.name, "file_id": None}
            continue
        yield {"type": "input_image", "detail": "auto", "image_url": None, "file_id": None}
