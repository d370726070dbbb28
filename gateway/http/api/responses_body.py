"""Sans-IO: reads the requests of `/v1/responses`."""

import msgspec

from gateway.http.api.asked import Asked, Picture, Said, clean, digest_of
from gateway.http.api.bodies import OWN_TOOLS, read_body
from gateway.http.api.failures import unfit
from gateway.http.api.pictures import picture
from gateway.http.api.responses_shapes import (
    TEXTS,
    Echo,
    InputItem,
    Parts,
    Reasoning,
    ResponseRequest,
    ToldReasoning,
)
from sessions.records import ToolCall

NO_CONVERSATION = (
    "There are no conversation objects here: name a conversation with the header X-Session-Id, or "
    "go on from an answer with `previous_response_id`."
)
NO_BACKGROUND = (
    "An answer is written while somebody waits for it; leave `background` out, and ask with "
    "`stream` and an Idempotency-Key if the connection may break."
)
NO_FORMAT = "The agent answers in plain words; `text.format` can only be of type `text`."
NO_PROMPT = "No prompts are stored here; write what you want into `instructions` and `input`."
NO_REFERENCES = (
    "Items are not looked up by their ids; send them whole, or go on with `previous_response_id`."
)
NOBODY_ASKS = "The last item must be a message of role `user`: that is the one that is answered."

_PROMPTS = {"system", "developer"}


_read = msgspec.json.Decoder(ResponseRequest).decode


def read_request(content: bytes) -> Asked:
    """Read a request; raises `Refused`. What is not known here is let pass, as others do."""
    body = read_body(_read, content)
    _check(body)
    prompts = [body.instructions or ""]
    *before, message = _said(body.input, prompts)
    store = body.store is not False
    return Asked(
        message=message,
        before=tuple(before),
        system="\n\n".join(prompt for prompt in prompts if prompt.strip()),
        model=(body.model or "").strip(),
        max_output_tokens=_whole(body.max_output_tokens),
        temperature=body.temperature,
        effort=body.reasoning.effort if body.reasoning else None,
        stream=bool(body.stream),
        previous=body.previous_response_id or "",
        keep=store,
        echo=_echo(body, store=store),
        digest=digest_of("responses", content),
    )


def _check(body: ResponseRequest) -> None:
    asked = {
        "conversation": (body.conversation is not None, NO_CONVERSATION),
        "background": (bool(body.background), NO_BACKGROUND),
        "prompt": (body.prompt is not None, NO_PROMPT),
        "tools": (bool(body.tools) and body.tool_choice != "none", OWN_TOOLS),
        "text.format": (
            bool(body.text and body.text.format and body.text.format.type != "text"),
            NO_FORMAT,
        ),
    }
    for param, (wanted, message) in asked.items():
        if wanted:
            raise unfit(message, param, "unsupported_parameter")


def _echo(body: ResponseRequest, *, store: bool) -> bytes:
    """What an answer repeats of its request."""
    reasoning = body.reasoning or Reasoning()
    echo = Echo(
        instructions=body.instructions,
        max_output_tokens=_whole(body.max_output_tokens),
        metadata=body.metadata or {},
        previous_response_id=body.previous_response_id or None,
        reasoning=ToldReasoning(reasoning.effort, reasoning.summary),
        store=store,
        temperature=body.temperature,
        top_p=body.top_p,
    )
    return msgspec.json.encode(echo)


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


# --- the items of a conversation ---------------------------------------------------------------


def _said(given: str | list[InputItem], prompts: list[str]) -> list[Said]:
    """Read what was said; what is said to the model as its maker goes to the `prompts`."""
    if isinstance(given, str):
        if not given.strip():
            msg = "There is nothing in the input."
            raise unfit(msg, "input")
        return [Said("user", clean(given))]
    said: list[Said] = []
    pictures: list[Picture] = []
    for number, item in enumerate(given):
        _add(said, item, f"input[{number}]", prompts, pictures)
    if not said or said[-1].role != "user":
        raise unfit(NOBODY_ASKS, "input")
    if not said[-1].text.strip() and not said[-1].pictures:
        msg = "There is nothing in the last message."
        raise unfit(msg, "input")
    return said


def _add(
    said: list[Said], item: InputItem, where: str, prompts: list[str], pictures: list[Picture]
) -> None:
    match item.type:
        case None | "message":
            if item.role is None:
                msg = "A message needs a role: user, assistant, system or developer."
                raise unfit(msg, f"{where}.role")
            first = len(pictures)
            text = _words(item.content, f"{where}.content", item.role, pictures)
            if item.role in _PROMPTS:
                prompts.append(text)
            else:
                said.append(Said(item.role, text, tuple(pictures[first:])))
        case "function_call":
            call = ToolCall(item.call_id or "", item.name or "", item.arguments or "{}")
            _add_call(said, call)
        case "function_call_output":
            text = _words(item.output, f"{where}.output", "tool", pictures)
            said.append(Said("tool", text, tool_call_id=item.call_id or ""))
        case "reasoning":
            pass  # only the model that thought it could read it
        case "item_reference":
            raise unfit(NO_REFERENCES, where)
        case _:
            msg = f"Items of type “{item.type[:40]}” are not taken here."
            raise unfit(msg, f"{where}.type")


def _add_call(said: list[Said], call: ToolCall) -> None:
    """Calls that stand together are one step of the model."""
    if said and said[-1].role == "assistant":
        last = said.pop()
        said.append(msgspec.structs.replace(last, tool_calls=(*last.tool_calls, call)))
    else:
        said.append(Said("assistant", tool_calls=(call,)))


def _words(parts: Parts, where: str, role: str, pictures: list[Picture]) -> str:
    """Give the words; pictures go to those of the request so far."""
    if not isinstance(parts, list):
        return clean(parts or "")
    texts = []
    for place, part in enumerate(parts):
        here = f"{where}[{place}]"
        if part.type in TEXTS:
            texts.append(clean(part.text or part.refusal))
        elif part.type == "input_image" and part.image_url and role == "user":
            pictures.append(picture(part.image_url, f"{here}.image_url", len(pictures) + 1))
        else:
            msg = f"Parts of type “{part.type[:40]}” are not taken here, only text and pictures."
            raise unfit(msg, here)
    return "\n".join(texts)
