"""Sans-IO: results of calls and contents of resources, as text for the model and as files."""

from collections.abc import Iterable, Iterator
from urllib.parse import unquote, urlsplit

import msgspec
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    ReadResourceResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from agent.errors import ToolError
from agent.tools.mcp.contract import ServerOutput
from agent.tools.output import EncodedFile
from sessions.values.file_names import clean_media_type, extension_for
from sessions.values.frames import neutralize_output, to_single_line
from sessions.values.size import format_size
from sessions.values.text import shorten

_MAX_DESCRIPTION = 200  # characters of the description of a linked resource


def result_output(result: CallToolResult) -> ServerOutput:
    """Return a result as texts and files.

    No line of the server's text looks like a frame, a remark or a message of another role.

    Raises:
        ToolError: The server reported a failure.
    """
    parts: list[str | EncodedFile] = [
        part for block in result.content for part in _block_parts(block)
    ]
    if result.structured_content is not None and not _has_text(result):
        parts.append(neutralize_output(msgspec.json.encode(result.structured_content).decode()))
    if result.is_error:
        text = "\n".join(part for part in parts if isinstance(part, str))
        raise ToolError(text or "The call failed without a reason from the server.")
    return ServerOutput(tuple(parts) or ("[The call succeeded without a result.]",))


def resource_output(result: ReadResourceResult) -> ServerOutput:
    """Return the contents of a resource as texts and files."""
    parts = tuple(part for item in result.contents for part in _resource_parts(item))
    return ServerOutput(parts or ("[The resource is empty.]",))


def prompt_text(result: GetPromptResult) -> str:
    """Return a prompt as one text; of files only their types are named."""
    lines = []
    for message in result.messages:
        texts = [
            part if isinstance(part, str) else f"({part.name or 'a file'}, which cannot be shown)"
            for part in _block_parts(message.content)
        ]
        text = "\n".join(texts)
        lines.append(f"(an answer as an example)\n{text}" if message.role == "assistant" else text)
    return "\n\n".join(filter(None, lines)).strip()


def describe_resources(lines: Iterable[tuple[str, str, str | None]]) -> str:
    """Return a list of resources, one line each: address, name and description."""
    return "\n".join(
        f"{to_single_line(uri)} {_describe(name, description)}" for uri, name, description in lines
    )


def _describe(name: str, description: str | None) -> str:
    about = f": {to_single_line(description)}" if description else ""
    return shorten(f"“{to_single_line(name)}”{about}", _MAX_DESCRIPTION)


def _has_text(result: CallToolResult) -> bool:
    return any(isinstance(part, TextContent) and part.text for part in result.content)


def _block_parts(block: ContentBlock) -> Iterator[str | EncodedFile]:
    match block:
        case TextContent():
            yield neutralize_output(block.text)
        case ImageContent():
            yield _named_file("picture", block.mime_type, block.data)
        case AudioContent():
            yield _named_file("audio", block.mime_type, block.data)
        case ResourceLink():
            size = f", {format_size(block.size)}" if block.size is not None else ""
            yield (
                f"[resource {to_single_line(str(block.uri))}{_type_suffix(block.mime_type)}{size} "
                f"{_describe(block.name, block.description)}; read_resource reads it]"
            )
        case EmbeddedResource():
            yield from _resource_parts(block.resource)


def _resource_parts(
    resource: TextResourceContents | BlobResourceContents,
) -> Iterator[str | EncodedFile]:
    if isinstance(resource, BlobResourceContents):
        yield _resource_file(str(resource.uri), resource.mime_type or "", resource.blob)
    else:  # many servers return the files they read in this form
        yield f"[resource {to_single_line(str(resource.uri))}{_type_suffix(resource.mime_type)}]"
        yield neutralize_output(resource.text)


def _resource_file(uri: str, media_type: str, data: str) -> EncodedFile:
    try:
        name = unquote(urlsplit(uri).path).rpartition("/")[2]
    except ValueError:  # not an address
        name = ""
    return (
        EncodedFile(name=name, media_type=media_type, data=data)
        if name
        else (_named_file("resource", media_type, data))
    )


def _named_file(name: str, media_type: str, data: str) -> EncodedFile:
    extension = extension_for(clean_media_type(media_type))
    return EncodedFile(name=f"{name}{extension}", media_type=media_type, data=data)


def _type_suffix(mime_type: str | None) -> str:
    return f" {to_single_line(mime_type)}" if mime_type else ""
