"""Sans-IO: what a call came to, as text for the model."""

from collections.abc import Iterator

import msgspec
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from agent.errors import ToolError
from sessions.values.size import in_words


def text_of(result: CallToolResult) -> str:
    """Give the result's text; what is no text becomes a line that says what it is.

    Raises:
        ToolError: The server says that the call failed.
    """
    parts = [line for part in result.content for line in _lines(part)]
    if result.structured_content is not None and not _has_text(result):
        parts.append(msgspec.json.encode(result.structured_content).decode())
    text = "\n".join(parts)
    if result.is_error:
        raise ToolError(text or "It failed, and the server does not say why.")
    return text or "[The call succeeded and gave no result.]"


def _has_text(result: CallToolResult) -> bool:
    return any(isinstance(part, TextContent) and part.text for part in result.content)


def _lines(part: ContentBlock) -> Iterator[str]:
    match part:
        case TextContent():
            yield part.text
        case ImageContent():
            yield f"[image {part.mime_type}, {in_words(_decoded(part.data))}]"
        case AudioContent():
            yield f"[audio {part.mime_type}, {in_words(_decoded(part.data))}]"
        case ResourceLink():
            yield f"[resource {part.uri}{_kind(part.mime_type)}]"
        case EmbeddedResource():
            yield from _held(part.resource)


def _held(resource: TextResourceContents | BlobResourceContents) -> Iterator[str]:
    what = f"resource {resource.uri}{_kind(resource.mime_type)}"
    if isinstance(resource, BlobResourceContents):
        yield f"[{what}, {in_words(_decoded(resource.blob))}]"
    else:  # many servers give what they read in this form
        yield f"[{what}]"
        yield resource.text


def _kind(mime_type: str | None) -> str:
    return f" {mime_type}" if mime_type else ""


def _decoded(base64: str) -> int:
    """Count the bytes that are encoded so."""
    return len(base64.rstrip("=")) * 3 // 4
