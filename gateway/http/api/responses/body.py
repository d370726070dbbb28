"""Sans-IO: decoder of `/v1/responses` requests."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from agent.model.contract import AnswerFormat, SamplingOptions
from gateway.http.api.answer_options import read_effort, read_format, refuse_unsupported
from gateway.http.api.asked import (
    ApiRequest,
    RequestMessage,
    RequestPicture,
    body_digest,
    move_pictures_of_results,
    replace_nul,
)
from gateway.http.api.bodies import decode_body, missing_field
from gateway.http.api.client_tools import FunctionDefinition, read_tools
from gateway.http.api.failures import invalid_request
from gateway.http.api.pictures import read_audio, read_file, read_picture
from gateway.http.api.plain.prefill import ask_to_continue
from gateway.http.api.plain.tasks import read_task
from gateway.http.api.responses.shapes import (
    TEXT_PART_TYPES,
    EchoedReasoning,
    EchoedText,
    InputContent,
    InputItem,
    Reasoning,
    RequestEcho,
    ResponseRequest,
    ResponseTool,
    TextFormat,
    TextOptions,
)
from sessions.records import MessageRole, ToolCall

_CONVERSATION_NOT_SUPPORTED = (
    "Conversation objects are not supported: name a conversation with the header "
    "X-Holdfast-Session, or continue an answer with `previous_response_id`."
)
_BACKGROUND_IS_STORED = (
    "An answer in the background is fetched by its id, so it has to be stored; leave `store` out."
)
_PROMPT_NOT_SUPPORTED = "Stored prompts are not supported; use `instructions` and `input`."
_REFERENCES_NOT_SUPPORTED = (
    "References to items are not supported; send whole items, or use `previous_response_id`."
)
_LAST_ITEM_NOT_FROM_USER = (
    "The last item must be a message of role `user`, or the output of a function call: it is the "
    "message to answer."
)

_PROMPT_ROLES = {"system", "developer"}


_decoder = msgspec.json.Decoder(ResponseRequest)


def read_request(content: bytes) -> ApiRequest:
    """Decode a request; raises `RequestRefused`. Unknown fields are ignored."""
    body = decode_body(_decoder, content)
    _check_supported(body)
    prompts = [body.instructions or ""]
    messages = _read_messages(body.input, prompts)
    tools = read_tools(
        _functions(body.tools or ()), body.tool_choice, parallel=body.parallel_tool_calls
    )
    store = body.store is not False
    return ApiRequest(
        messages=tuple(messages),
        system_prompt="\n\n".join(prompt for prompt in prompts if prompt.strip()),
        model=(body.model or "").strip(),
        max_output_tokens=_to_int(body.max_output_tokens),
        temperature=body.temperature,
        reasoning_effort=read_effort(body.reasoning.effort) if body.reasoning else None,
        stream=bool(body.stream),
        wants_reasoning=body.reasoning is not None and body.reasoning.summary is not None,
        previous_id=body.previous_response_id or "",
        retrievable=store,
        background=bool(body.background),
        options=replace(tools.options, sampling=_sampling(body), format=_format(body)),
        warnings=tools.warnings,
        task=read_task(body.metadata),
        echo=_encode_echo(body, store=store),
        digest=body_digest("responses", content),
        user=body.user or "",
    )


def _functions(tools: Iterable[ResponseTool]) -> Iterator[FunctionDefinition | str]:
    for number, tool in enumerate(tools):
        if tool.type != "function":
            yield tool.type
        elif tool.name is None:
            where = f"tools[{number}].name"
            raise missing_field(where)
        else:
            yield FunctionDefinition(tool.name, tool.description, tool.parameters, tool.strict)


def _check_supported(body: ResponseRequest) -> None:
    asked = {
        "conversation": (body.conversation is not None, _CONVERSATION_NOT_SUPPORTED),
        "background": (bool(body.background) and body.store is False, _BACKGROUND_IS_STORED),
        "prompt": (body.prompt is not None, _PROMPT_NOT_SUPPORTED),
    }
    for param, (wanted, message) in asked.items():
        if wanted:
            raise invalid_request(message, param, "unsupported_parameter")
    refuse_unsupported(n=body.n not in {None, 1}, top_logprobs=bool(body.top_logprobs))


def _sampling(body: ResponseRequest) -> SamplingOptions:
    return SamplingOptions(
        top_p=body.top_p,
        verbosity=body.text.verbosity if body.text else None,
        service_tier=body.service_tier,
        user=body.user,
    )


def _format(body: ResponseRequest) -> AnswerFormat | None:
    wanted = body.text.format if body.text else None
    return read_format(wanted.type, wanted, "text.format") if wanted else None


def _echoed_text(body: ResponseRequest) -> EchoedText:
    text = body.text or TextOptions()
    wanted = text.format or TextFormat()
    fields: dict[str, Any] = {"type": wanted.type}
    if wanted.type == "json_schema":
        fields |= {
            "name": wanted.name,
            "description": wanted.description,
            "schema": wanted.schema,
            "strict": bool(wanted.strict),
        }
    return EchoedText(format=fields, verbosity=text.verbosity or "medium")


def _encode_echo(body: ResponseRequest, *, store: bool) -> bytes:
    """Return the fields that an answer echoes from its request."""
    reasoning = body.reasoning or Reasoning()
    echo = RequestEcho(
        instructions=body.instructions,
        max_output_tokens=_to_int(body.max_output_tokens),
        metadata=body.metadata or {},
        previous_response_id=body.previous_response_id or None,
        reasoning=EchoedReasoning(reasoning.effort, reasoning.summary),
        store=store,
        background=bool(body.background),
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        text=_echoed_text(body),
        service_tier=body.service_tier or "default",
        max_tool_calls=_to_int(body.max_tool_calls),
        safety_identifier=body.safety_identifier,
        prompt_cache_key=body.prompt_cache_key,
        user=body.user,
        tools=[tool for tool in body.tools or () if tool.type == "function"],
        tool_choice=body.tool_choice or "auto",
        parallel_tool_calls=body.parallel_tool_calls is not False,
    )
    return msgspec.json.encode(echo)


def _to_int(number: float | None) -> int | None:
    return None if number is None else int(number)


# --- input items -------------------------------------------------------------------------------


def _read_messages(items: str | list[InputItem], prompts: list[str]) -> list[RequestMessage]:
    """Return the messages; texts of system and developer messages are appended to `prompts`."""
    if isinstance(items, str):
        if not items.strip():
            msg = "The input is empty."
            raise invalid_request(msg, "input")
        return [RequestMessage(role=MessageRole.USER, text=replace_nul(items))]
    said: list[RequestMessage] = []
    pictures: list[RequestPicture] = []
    for number, item in enumerate(items):
        _add_item(said, item, f"input[{number}]", prompts, pictures)
    said = ask_to_continue(list(move_pictures_of_results(said)))
    if not said or said[-1].role is MessageRole.ASSISTANT:
        raise invalid_request(_LAST_ITEM_NOT_FROM_USER, "input")
    is_result = said[-1].role is MessageRole.TOOL
    if not is_result and not said[-1].text.strip() and not said[-1].pictures:
        msg = "The last message is empty."
        raise invalid_request(msg, "input")
    return said


def _add_item(
    messages: list[RequestMessage],
    item: InputItem,
    param: str,
    prompts: list[str],
    pictures: list[RequestPicture],
) -> None:
    first = len(pictures)
    match item.type:
        case None | "message":
            if item.role is None:
                msg = "A message needs a role: user, assistant, system or developer."
                raise invalid_request(msg, f"{param}.role")
            text = _read_text(item.content, f"{param}.content", item.role, pictures)
            if item.role in _PROMPT_ROLES:
                prompts.append(text)
            else:
                messages.append(
                    RequestMessage(
                        role=MessageRole(item.role), text=text, pictures=tuple(pictures[first:])
                    )
                )
        case "function_call":
            call = ToolCall(item.call_id or "", item.name or "", item.arguments or "{}")
            _add_tool_call(messages, call)
        case "function_call_output":
            text = _read_text(item.output, f"{param}.output", "user", pictures)
            messages.append(
                RequestMessage(
                    role=MessageRole.TOOL,
                    text=text,
                    pictures=tuple(pictures[first:]),
                    tool_call_id=item.call_id or "",
                )
            )
        case "reasoning":
            pass  # readable only by the model that produced it
        case "item_reference":
            raise invalid_request(_REFERENCES_NOT_SUPPORTED, param)
        case _:
            msg = f"Items of type “{item.type[:40]}” are not supported."
            raise invalid_request(msg, f"{param}.type")


def _add_tool_call(messages: list[RequestMessage], call: ToolCall) -> None:
    """Append a tool call; consecutive calls belong to one assistant message."""
    if messages and messages[-1].role == MessageRole.ASSISTANT:
        last = messages.pop()
        messages.append(msgspec.structs.replace(last, tool_calls=(*last.tool_calls, call)))
    else:
        messages.append(RequestMessage(role=MessageRole.ASSISTANT, tool_calls=(call,)))


def _read_text(parts: InputContent, param: str, role: str, pictures: list[RequestPicture]) -> str:
    """Return the text of an item; its pictures are appended to `pictures`."""
    if not isinstance(parts, list):
        return replace_nul(parts or "")
    texts = []
    for place, part in enumerate(parts):
        here = f"{param}[{place}]"
        if part.type in TEXT_PART_TYPES:
            texts.append(replace_nul(part.text or part.refusal))
        elif part.type == "input_image" and part.image_url and role == "user":
            pictures.append(read_picture(part.image_url, f"{here}.image_url", len(pictures) + 1))
        elif part.type == "input_file" and part.file_data is not None and role == "user":
            where, name = f"{here}.file_data", part.filename or ""
            pictures.append(read_file(part.file_data, where, len(pictures) + 1, name=name))
        elif part.type == "input_audio" and part.input_audio and role == "user":
            where, audio = f"{here}.input_audio.data", part.input_audio
            pictures.append(read_audio(audio.data, audio.format, where, len(pictures) + 1))
        else:
            msg = f"Parts of type “{part.type[:40]}” are not supported, only text, pictures and files."
            raise invalid_request(msg, here)
    return "\n".join(texts)
