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
from sessions.values.size import format_size


def result_text(result: CallToolResult) -> str:
    """Give the result's text; what is no text becomes a line that says what it is.

    Raises:
        ToolError: The server says that the call failed.
    """
    parts = [line for part in result.content for line in _content_lines(part)]
    if result.structured_content is not None and not _has_text(result):
        parts.append(msgspec.json.encode(result.structured_content).decode())
    text = "\n".join(parts)
    if result.is_error:
        raise ToolError(text or "It failed, and the server does not say why.")
    return text or "[The call succeeded and gave no result.]"


def _has_text(result: CallToolResult) -> bool:
    return any(isinstance(part, TextContent) and part.text for part in result.content)


def _content_lines(part: ContentBlock) -> Iterator[str]:
    match part:
        case TextContent():
            yield part.text
        case ImageContent():
            yield f"[image {part.mime_type}, {format_size(_decoded_size(part.data))}]"
        case AudioContent():
            yield f"[audio {part.mime_type}, {format_size(_decoded_size(part.data))}]"
        case ResourceLink():
            yield f"[resource {part.uri}{_type_suffix(part.mime_type)}]"
        case EmbeddedResource():
            yield from _resource_lines(part.resource)


def _resource_lines(resource: TextResourceContents | BlobResourceContents) -> Iterator[str]:
    what = f"resource {resource.uri}{_type_suffix(resource.mime_type)}"
    if isinstance(resource, BlobResourceContents):
        yield f"[{what}, {format_size(_decoded_size(resource.blob))}]"
    else:  # many servers give what they read in this form
        yield f"[{what}]"
        yield resource.text


def _type_suffix(mime_type: str | None) -> str:
    return f" {mime_type}" if mime_type else ""


def _decoded_size(base64: str) -> int:
    """Count the bytes that are encoded so."""
    return len(base64.rstrip("=")) * 3 // 4
