"""Sans-IO: how a conversation is shown to a model.

The history holds only what was really said. What a model needs besides, so that rows alternate and
every call has a result, is added here, for one request; nothing of it is stored.
"""

from collections.abc import Iterator, Sequence

from agent.providers.contract import ModelRequest, ToolSchema
from agent.settings import TargetSettings
from sessions.records import Message, ToolCall

SYSTEM = """\
You are a helpful assistant that people reach through a chat. Answer in the language you are \
spoken to. Be brief unless asked for more. You may use Markdown. Use the tools you are given when \
they help; say honestly what you could not do or do not know."""

EARLIER_NOT_IN_VIEW = (
    "An earlier conversation with this person was stopped or interrupted. It is not in view; this "
    "is a fresh one. Do not act as if you remembered the earlier one."
)

LAST_STEP = Message(
    "user",
    "[You have used all your steps. Without any more tools, say now what you found and did, and "
    "what is left to do.]",
)

NO_RESULT = (
    "No result: the call was interrupted. It may have had its effect; look before you repeat it."
)

_LONGEST_REQUEST = 1000
_GOES_ON = "[The conversation goes on.]"


def interrupted_request(request: str) -> str:
    """Tell of a request that was being worked on when the process went down."""
    shown = request[:_LONGEST_REQUEST]
    return f"Before this conversation an interruption ended the work on this request: «{shown}»"


def build_request(
    history: Sequence[Message],
    *,
    model: str,
    settings: TargetSettings,
    system: str,
    notes: Sequence[str] = (),
    tools: tuple[ToolSchema, ...] = (),
) -> ModelRequest:
    """Write the request for one model answer."""
    return ModelRequest(
        model=model,
        system="\n\n".join([system, *(f"[{note}]" for note in notes)]).strip(),
        messages=as_seen(history),
        tools=tools,
        max_output_tokens=settings.max_output_tokens,
        temperature=settings.temperature,
        reasoning_effort=settings.reasoning_effort,
    )


def as_seen(history: Sequence[Message]) -> tuple[Message, ...]:
    """Make rows alternate, give every call exactly one result, and mark what was cut short."""
    seen: list[Message] = []
    cut_short = ""
    at = 0
    while at < len(history):
        row = history[at]
        at += 1
        if row.role == "user":
            _add_user(seen, row, cut_short)
            cut_short = ""
        elif row.role == "assistant" and (row.tool_calls or row.content.strip()):
            if seen and seen[-1].role == "assistant":
                seen.append(Message("user", cut_short or _GOES_ON))
            cut_short = f"[Your answer above was cut short: {row.interrupted}.]"
            cut_short = cut_short if row.interrupted else ""
            results: dict[str | None, Message] = {}
            while at < len(history) and history[at].role == "tool":
                results.setdefault(history[at].tool_call_id, history[at])
                at += 1
            seen.append(row)
            seen.extend(_results(row.tool_calls, results))
    if cut_short:
        seen.append(Message("user", f"{cut_short} Go on exactly where it ends."))
    return tuple(seen)


def _add_user(seen: list[Message], row: Message, cut_short: str) -> None:
    plain = not row.sender and not cut_short
    text = row.content if plain else "\n\n".join(filter(None, (cut_short, _spoken(row))))
    if seen and seen[-1].role == "user":
        seen[-1] = Message("user", f"{seen[-1].content}\n\n{text}")
    else:
        seen.append(row if plain else Message("user", text))


def _spoken(row: Message) -> str:
    if not row.sender:
        return row.content
    name = " ".join(row.sender.replace("[", "(").replace("]", ")").split())
    return f"[{name}] {row.content}"


def _results(calls: Sequence[ToolCall], results: dict[str | None, Message]) -> Iterator[Message]:
    for call in calls:
        yield results.get(call.id) or Message("tool", NO_RESULT, tool_call_id=call.id)
