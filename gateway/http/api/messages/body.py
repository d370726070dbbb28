"""Sans-IO: decoder of `/v1/messages` requests."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from agent.model.contract import AnswerFormat, SamplingOptions
from gateway.http.api.answer_options import JsonSchemaFormat, read_effort, read_format
from gateway.http.api.asked import (
    ApiRequest,
    RequestMessage,
    RequestPicture,
    body_digest,
    replace_nul,
)
from gateway.http.api.bodies import decode_body, missing_field
from gateway.http.api.client_tools import ClientTools, FunctionDefinition, read_tools
from gateway.http.api.failures import RequestRefused, invalid_request
from gateway.http.api.messages.shapes import (
    BlockContent,
    BlockSource,
    InputMessage,
    MessageBlock,
    MessagesFormat,
    MessagesRequest,
    MessagesTool,
    MessagesToolChoice,
    SystemBlock,
)
from gateway.http.api.pictures import read_file, read_picture
from gateway.http.api.plain.prefill import ask_to_continue
from sessions.records import MessageRole, ToolCall

_CUSTOM_TOOL_TYPES = {None, "custom"}
_MODES = {"auto": "auto", "any": "required", "none": "none"}
_FORMAT_NAME = "answer"
_ERROR_PREFIX = "Error: "

_decoder = msgspec.json.Decoder(MessagesRequest)


def read_request(content: bytes) -> ApiRequest:
    """Decode a request; raises `RequestRefused`. Unknown fields are ignored."""
    request = read_conversation(content)
    said = ask_to_continue(request.messages)
    if not said or said[-1].role is MessageRole.ASSISTANT:
        msg = "The last message must have the role `user`: it is the message to answer."
        raise invalid_request(msg, "messages")
    is_result = said[-1].role is MessageRole.TOOL
    if not is_result and not said[-1].text.strip() and not said[-1].pictures:
        msg = "The last message is empty."
        raise invalid_request(msg, "messages")
    return replace(request, messages=tuple(said))


def read_conversation(content: bytes) -> ApiRequest:
    """Decode a request whose last message may be of any role; raises `RequestRefused`."""
    body = decode_body(_decoder, content)
    reader = _MessageReader()
    for number, message in enumerate(body.messages):
        reader.add(message, f"messages[{number}]")
    tools = _read_tools(body.tools or (), body.tool_choice)
    output = body.output_config
    sampling = SamplingOptions(
        top_p=body.top_p, stop=tuple(text for text in body.stop_sequences or () if text)
    )
    return ApiRequest(
        messages=tuple(reader.messages),
        system_prompt="\n\n".join(_system_prompts(body.system, reader.prompts)),
        model=(body.model or "").strip(),
        max_output_tokens=int(body.max_tokens) if body.max_tokens else None,
        temperature=body.temperature,
        reasoning_effort=read_effort(output.effort if output else None),
        stream=bool(body.stream),
        wants_reasoning=body.thinking is not None and body.thinking.type != "disabled",
        options=replace(
            tools.options,
            sampling=sampling,
            format=_read_format(output.format if output else None),
        ),
        warnings=tools.warnings,
        digest=body_digest("messages", content),
    )


def _system_prompts(system: str | list[SystemBlock] | None, more: Sequence[str]) -> Iterator[str]:
    texts = [system] if isinstance(system, str) else [block.text for block in system or ()]
    yield from (replace_nul(text) for text in (*texts, *more) if text.strip())


def _read_format(wanted: MessagesFormat | None) -> AnswerFormat | None:
    if wanted is None:
        return None
    schema = JsonSchemaFormat(name=_FORMAT_NAME, schema=wanted.schema, strict=True)
    return read_format(wanted.type, schema, "output_config.format")


def _read_tools(tools: Iterable[MessagesTool], choice: MessagesToolChoice | None) -> ClientTools:
    functions = [
        FunctionDefinition(tool.name, tool.description, tool.input_schema, tool.strict)
        if tool.type in _CUSTOM_TOOL_TYPES
        else tool.type or ""
        for tool in tools
    ]
    if choice is None:
        return read_tools(functions, None, parallel=None)
    parallel = None if choice.disable_parallel_tool_use is None else True
    if choice.disable_parallel_tool_use:
        parallel = False
    if choice.type == "tool":
        if choice.name is None:
            where = "tool_choice.name"
            raise missing_field(where)
        named = {"type": "function", "name": choice.name}
        return read_tools(functions, named, parallel=parallel)
    return read_tools(functions, _MODES[choice.type], parallel=parallel)


class _MessageReader:
    """Collects the messages of a request: results of tools become messages of their own."""

    def __init__(self) -> None:
        self.messages: list[RequestMessage] = []
        self.prompts: list[str] = []
        self._picture_count = 0

    def add(self, message: InputMessage, param: str) -> None:
        """Add a message; raises `RequestRefused`."""
        content = message.content
        blocks = [MessageBlock(type="text", text=content)] if isinstance(content, str) else content
        match message.role:
            case "assistant":
                self._add_answer(blocks, param)
            case "user":
                self._add_user(blocks, f"{param}.content")
            case "system":
                text, _ = self._read_blocks(enumerate(blocks), f"{param}.content")
                self.prompts.append(text)

    def _add_answer(self, blocks: Iterable[MessageBlock], param: str) -> None:
        texts: list[str] = []
        calls: list[ToolCall] = []
        for number, block in enumerate(blocks):
            if block.type == "text":
                texts.append(_read_text(block, f"{param}.content[{number}]"))
            elif block.type == "tool_use":
                if block.id is None or block.name is None:
                    where = f"{param}.content[{number}].{'name' if block.id else 'id'}"
                    raise missing_field(where)
                arguments = msgspec.json.encode(block.input or {}).decode()
                calls.append(ToolCall(block.id, block.name, replace_nul(arguments)))
        if calls or any(texts):
            self.messages.append(
                RequestMessage(
                    role=MessageRole.ASSISTANT, text="".join(texts), tool_calls=tuple(calls)
                )
            )

    def _add_user(self, blocks: Sequence[MessageBlock], param: str) -> None:
        pictures: list[RequestPicture] = []
        others: list[tuple[int, MessageBlock]] = []
        has_results = False
        for number, block in enumerate(blocks):
            if block.type != "tool_result":
                others.append((number, block))
                continue
            has_results = True
            if block.tool_use_id is None:
                where = f"{param}[{number}].tool_use_id"
                raise missing_field(where)
            text, own = self._read_content(block.content, f"{param}[{number}].content")
            pictures += own  # a result holds only text: its pictures go with the message after it
            if block.is_error and not text.lower().startswith("error"):
                text = f"{_ERROR_PREFIX}{text}"
            self.messages.append(
                RequestMessage(role=MessageRole.TOOL, text=text, tool_call_id=block.tool_use_id)
            )
        said, own = self._read_blocks(others, param)
        pictures += own
        if not has_results or said.strip() or pictures:
            self.messages.append(
                RequestMessage(role=MessageRole.USER, text=said, pictures=tuple(pictures))
            )

    def _read_content(self, content: BlockContent, param: str) -> tuple[str, list[RequestPicture]]:
        if not isinstance(content, list):
            return replace_nul(content or ""), []
        return self._read_blocks(enumerate(content), param)

    def _read_blocks(
        self, blocks: Iterable[tuple[int, MessageBlock]], param: str
    ) -> tuple[str, list[RequestPicture]]:
        texts: list[str] = []
        pictures: list[RequestPicture] = []
        for number, block in blocks:
            text, own = self._read_block(block, f"{param}[{number}]")
            texts += [text] if text is not None else []
            pictures += own
        return "\n".join(texts), pictures

    def _read_block(
        self, block: MessageBlock, param: str
    ) -> tuple[str | None, list[RequestPicture]]:
        """Return the text of a block, or its picture."""
        match block.type, block.source:
            case "text", _:
                return _read_text(block, param), []
            case "image", BlockSource() as source:
                return None, [self._read_picture(source, f"{param}.source")]
            case "document", BlockSource(type="base64", data=str(data)) as source:
                return None, [self._read_file(source, data, block.title or "", param)]
            case "document", BlockSource(type="text", data=str(data)):
                return replace_nul(data), []
            case _:
                raise _unsupported_block(block, param)

    def _read_file(self, source: BlockSource, data: str, name: str, param: str) -> RequestPicture:
        self._picture_count += 1
        return read_file(
            data,
            f"{param}.source.data",
            self._picture_count,
            name=name,
            media_type=source.media_type or "",
        )

    def _read_picture(self, source: BlockSource, param: str) -> RequestPicture:
        self._picture_count += 1
        if source.type == "base64":
            url = f"data:{source.media_type or ''};base64,{source.data or ''}"
            return read_picture(url, f"{param}.data", self._picture_count)
        if source.type == "url":
            return read_picture(source.url or "", f"{param}.url", self._picture_count)
        msg = f"A picture of the source type “{source.type[:40]}” is not supported."
        raise invalid_request(msg, f"{param}.type")


def _read_text(block: MessageBlock, param: str) -> str:
    if block.text is None:
        where = f"{param}.text"
        raise missing_field(where)
    return replace_nul(block.text)


def _unsupported_block(block: MessageBlock, param: str) -> RequestRefused:
    msg = (
        f"Blocks of type “{block.type[:40]}” are not supported here, only text, pictures and files."
    )
    return invalid_request(msg, param)
