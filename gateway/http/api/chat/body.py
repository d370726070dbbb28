"""Sans-IO: decoder of `/v1/chat/completions` requests."""

from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace

from agent.model.contract import AnswerFormat, SamplingOptions
from gateway.http.api.answer_options import read_effort, read_format, read_stop, refuse_unsupported
from gateway.http.api.asked import (
    ApiRequest,
    RequestMessage,
    RequestPicture,
    body_digest,
    move_pictures_of_results,
    replace_nul,
)
from gateway.http.api.bodies import decode_body, missing_field
from gateway.http.api.chat.shapes import (
    AssistantMessage,
    AudioPart,
    ChatMessage,
    ChatRequest,
    ChatTool,
    DeveloperMessage,
    FilePart,
    PicturePart,
    RefusalPart,
    SystemMessage,
    TextPart,
    ToolMessage,
    UserMessage,
)
from gateway.http.api.client_tools import FunctionDefinition, read_tools
from gateway.http.api.failures import invalid_request
from gateway.http.api.pictures import read_audio, read_file, read_picture
from gateway.http.api.plain.prefill import ask_to_continue
from gateway.http.api.plain.tasks import read_task
from sessions.records import MessageRole, ToolCall

_FUNCTIONS_NOT_SUPPORTED = (
    "`functions` is the older form of `tools` and is not supported; use `tools`."
)

_NO_WEB_SEARCH = "`web_search_options` has no effect here."

_decoder = msgspec.json.Decoder(ChatRequest)


def read_request(content: bytes) -> ApiRequest:
    """Decode a request; raises `RequestRefused`. Unknown fields are ignored."""
    body = decode_body(_decoder, content)
    if body.functions:
        raise invalid_request(_FUNCTIONS_NOT_SUPPORTED, "functions", "unsupported_parameter")
    refuse_unsupported(
        n=body.n not in {None, 1},
        logprobs=bool(body.logprobs),
        modalities=bool(set(body.modalities or ()) - {"text"}),
    )
    tools = read_tools(
        _functions(body.tools or ()), body.tool_choice, parallel=body.parallel_tool_calls
    )
    options = body.stream_options
    limit = body.max_completion_tokens or body.max_tokens
    return ApiRequest(
        messages=tuple(_read_messages(body.messages)),
        system_prompt="\n\n".join(_system_prompts(body.messages)),
        model=(body.model or "").strip(),
        max_output_tokens=int(limit) if limit else None,
        temperature=body.temperature,
        reasoning_effort=read_effort(body.reasoning_effort),
        stream=bool(body.stream),
        wants_reasoning=body.include_reasoning is not False and body.reasoning_effort != "none",
        include_usage=bool(options and options.include_usage),
        options=replace(tools.options, sampling=_sampling(body), format=_format(body)),
        warnings=(*tools.warnings, *([] if body.web_search_options is None else [_NO_WEB_SEARCH])),
        task=read_task(body.metadata),
        digest=body_digest("chat", content),
        user=body.user or "",
    )


def _sampling(body: ChatRequest) -> SamplingOptions:
    return SamplingOptions(
        top_p=body.top_p,
        stop=read_stop(body.stop),
        seed=None if body.seed is None else int(body.seed),
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        logit_bias=body.logit_bias or {},
        verbosity=body.verbosity,
        service_tier=body.service_tier,
        user=body.user,
    )


def _format(body: ChatRequest) -> AnswerFormat | None:
    wanted = body.response_format
    if wanted is None:
        return None
    return read_format(wanted.type, wanted.json_schema, "response_format.json_schema")


def _functions(tools: Iterable[ChatTool]) -> Iterator[FunctionDefinition | str]:
    for number, tool in enumerate(tools):
        if tool.type != "function":
            yield tool.type
        elif tool.function is None:
            where = f"tools[{number}].function"
            raise missing_field(where)
        else:
            yield tool.function


def _system_prompts(messages: list[ChatMessage]) -> Iterator[str]:
    for number, message in enumerate(messages):
        if isinstance(message, SystemMessage | DeveloperMessage):
            text, _ = _read_content(message, number, [])
            if text.strip():
                yield text


def _read_messages(messages: list[ChatMessage]) -> list[RequestMessage]:
    pictures: list[RequestPicture] = []
    said = []
    for number, message in enumerate(messages):
        if isinstance(message, SystemMessage | DeveloperMessage):
            continue
        text, own = _read_content(message, number, pictures)
        match message:
            case AssistantMessage():
                said.append(
                    RequestMessage(
                        role=MessageRole.ASSISTANT,
                        text=text,
                        pictures=own,
                        tool_calls=_read_tool_calls(message),
                    )
                )
            case ToolMessage():
                said.append(
                    RequestMessage(
                        role=MessageRole.TOOL,
                        text=text,
                        pictures=own,
                        tool_calls=(),
                        tool_call_id=message.tool_call_id,
                    )
                )
            case UserMessage():
                said.append(RequestMessage(role=MessageRole.USER, text=text, pictures=own))
    said = ask_to_continue(list(move_pictures_of_results(said)))
    if not said or said[-1].role is MessageRole.ASSISTANT:
        msg = "The last message must have the role `user` or `tool`: it is the message to answer."
        raise invalid_request(msg, "messages")
    is_result = said[-1].role is MessageRole.TOOL
    if not is_result and not said[-1].text.strip() and not said[-1].pictures:
        msg = "The last message is empty."
        raise invalid_request(msg, f"messages[{len(messages) - 1}].content")
    return said


def _read_tool_calls(message: AssistantMessage) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(call.id, call.function.name, call.function.arguments)
        for call in message.tool_calls or ()
    )


def _read_content(
    message: ChatMessage, number: int, pictures: list[RequestPicture]
) -> tuple[str, tuple[RequestPicture, ...]]:
    """Return text and pictures of a message; also appends to `pictures`, all of the request."""
    if not isinstance(message.content, list):
        return replace_nul(message.content or ""), ()
    texts, first = [], len(pictures)
    for place, part in enumerate(message.content):
        match part:
            case TextPart():
                texts.append(replace_nul(part.text))
            case RefusalPart():
                texts.append(replace_nul(part.refusal))
            case PicturePart():
                where = f"messages[{number}].content[{place}].image_url.url"
                pictures.append(read_picture(part.image_url.url, where, len(pictures) + 1))
            case FilePart(file=file):
                where = f"messages[{number}].content[{place}].file.file_data"
                name = file.filename or ""
                pictures.append(read_file(file.file_data, where, len(pictures) + 1, name=name))
            case AudioPart(input_audio=audio):
                where = f"messages[{number}].content[{place}].input_audio.data"
                pictures.append(read_audio(audio.data, audio.format, where, len(pictures) + 1))
    return "\n".join(texts), tuple(pictures[first:])
