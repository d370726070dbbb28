"""Sans-IO: prompts, and the conversion of stored history to request messages.

The stored history holds only real messages. Everything else a request needs, such as alternating
roles, a result for every call, and continuation prompts, is added here for one request and never
stored.
"""

import enum
from collections.abc import Iterator, Sequence

import msgspec

from agent.request.file_lines import append_file_lines
from sessions.records import Message, MessageRole, ToolCall
from sessions.values.frames import to_single_line

# Names of the module, because every row of a history is compared.
_USER, _ASSISTANT, _TOOL = MessageRole.USER, MessageRole.ASSISTANT, MessageRole.TOOL

SYSTEM_PROMPT = """\
You are a helpful assistant. People talk to you in a chat. Answer in the language of the user. Be \
brief unless asked for more. You may use Markdown. Use the available tools when they help, and say \
honestly when you could not do something or do not know."""

EARLIER_NOT_IN_VIEW = (
    "The previous session with this person was stopped or interrupted. This is a fresh "
    "conversation, and you cannot see the earlier one. Do not pretend to remember it."
)

LAST_STEP_MESSAGE = Message(
    MessageRole.USER,
    "[You have used all your steps and cannot call any more tools. Summarize what you found and "
    "did, and what is left to do.]",
)

NO_RESULT = (
    "No result: the call was interrupted. It may have taken effect; check before you repeat it."
)

EMPTY_ANSWER_MESSAGE = Message(
    MessageRole.USER, "[Your last answer was empty. Please give your answer now.]"
)

ANNOUNCED_CALL_PROMPT = (
    "[Your answer above announces an action, but no tool was called, so nothing has happened yet. "
    "Make the call now, without announcing it again. If there is nothing to do, describe the "
    "current state in one sentence.]"
)

REPETITION_PROMPT = (
    "[You were repeating the same words over and over, so your answer was stopped and the "
    "repetition removed. Do not start repeating again.]"
)

_QUOTED_CHARACTERS = 200  # characters of a cut text to quote
_REPEATED_CHARACTERS = 40  # characters of the quote that the model is asked to repeat
_MAX_LISTED_CALLS = 3
_MAX_REQUEST_LENGTH = 1000
_QUOTATION_MARKS = str.maketrans("«»", "''")
_CONVERSATION_CONTINUES = "[The conversation continues.]"


class ContinuationReason(enum.StrEnum):
    """Reason that a continuation prompt gives to the model."""

    CAP = "cap"  # the answer hit the output limit
    NETWORK = "network"  # the connection broke
    LOST_CALLS = "calls"  # a tool call after the text was lost
    DECLINED = "declined"  # another model declined to answer


def describe_interrupted_request(request: str) -> str:
    """Return a note for the model about the request that a crash interrupted."""
    shown = to_single_line(request[:_MAX_REQUEST_LENGTH].translate(_QUOTATION_MARKS))
    return f"Before this conversation, work on this request was interrupted: «{shown}»"


class LostCall(msgspec.Struct, frozen=True):
    """A call whose arguments were cut off."""

    tool: str
    received_bytes: int  # bytes of arguments
    draft_note: str = ""  # note for the model about the part that was kept


class LostCallReport(msgspec.Struct, frozen=True, kw_only=True):
    """Report to the model about the calls of its last answer."""

    lost_calls: tuple[LostCall, ...] = ()
    unsealed_tools: tuple[str, ...] = ()  # complete but not proven to have ended, so not run
    done_calls: tuple[str, ...] = ()  # calls of the same answer that ran
    limit_kilotokens: int = 8  # requested limit per call, in thousands of tokens
    withheld_tool: str = ""  # tool that is not offered in the next request
    draft_notes: tuple[str, ...] = ()  # notes for the model about earlier unfinished drafts
    from_other_model: bool = False  # the last answer came from another model


def continuation_messages(
    text: str, reason: ContinuationReason, extra_text: str = ""
) -> tuple[Message, ...]:
    """Return the messages that ask the model to continue a cut text, starting with an overlap."""
    start = text[-_REPEATED_CHARACTERS:]
    if reason is ContinuationReason.DECLINED:
        asked = (
            "[The text above came from another model, which then declined to answer. If the text "
            "only declines, answer the request yourself, without mentioning that. If it is a part "
            f"of an answer, continue exactly there: start by repeating its last words verbatim, "
            f"«{start}», and then go on with the rest.]"
        )
        return _continuation(text, asked, extra_text)
    reason_text = {
        ContinuationReason.CAP: "was truncated by the output length limit",
        ContinuationReason.NETWORK: "was cut off by a network error while it was being sent",
        ContinuationReason.LOST_CALLS: "arrived up to a tool call that was lost",
    }[reason]
    asked = (
        f"[Your answer above {reason_text}. The part that arrived ends with:\n"
        f"«{text[-_QUOTED_CHARACTERS:]}»\n"
        f"Continue exactly there: start by repeating these last words verbatim, «{start}», and "
        "then go on with the rest of the answer. Do not start over, and do not mention the "
        "interruption.]"
    )
    return _continuation(text, asked, extra_text)


def _continuation(text: str, asked: str, extra_text: str) -> tuple[Message, ...]:
    return Message(MessageRole.ASSISTANT, text), Message(
        MessageRole.USER, "\n\n".join(filter(None, (asked, extra_text)))
    )


def describe_lost_calls(report: LostCallReport) -> str:
    """Return the message that lists lost calls and asks for them in smaller parts."""
    parts: list[str] = []
    if report.from_other_model:
        parts.append("The answer so far came from another model and was cut off.")
    if report.lost_calls:
        named = "; ".join(
            f"`{call.tool or 'a tool'}` (cut off after {call.received_bytes:,} bytes received)"
            for call in report.lost_calls[:_MAX_LISTED_CALLS]
        )
        parts.append(
            f"This call was too large, timed out in transit and has not run: {named}."
            if len(report.lost_calls) == 1
            else f"These calls were too large, timed out in transit and have not run: {named}."
        )
    if report.unsealed_tools:
        named = ", ".join(f"`{tool}`" for tool in report.unsealed_tools[:_MAX_LISTED_CALLS])
        parts.append(
            f"The connection broke right after your call of {named}; it has not run. If you "
            "still want it, make the same call again."
        )
    if report.done_calls:
        parts.append(
            f"Already done, with the results above: {', '.join(report.done_calls)}. Do not repeat "
            "these."
        )
    parts.extend(call.draft_note for call in report.lost_calls if call.draft_note)
    parts.extend(report.draft_notes)
    if report.withheld_tool:
        parts.append(
            f"`{report.withheld_tool}` is not available for your next answer: say in plain words "
            "what you have done and what is missing."
        )
    elif report.lost_calls:
        again = (
            ""
            if all(call.draft_note for call in report.lost_calls)
            else ("Do not make the same call with the same content again. ")
        )
        parts.append(
            f"{again}Split the work into several smaller calls, each with less than about "
            f"{report.limit_kilotokens}K tokens of arguments."
        )
    return f"[{' '.join(parts)}]"


def describe_draft(draft_id: str, path: str, size: int, lines: int, tail: str) -> str:
    """Return the instructions for continuing a file whose beginning was kept as a draft."""
    return (
        f"The beginning of {path} was kept as draft {draft_id} ({size:,} characters, {lines:,} "
        f"{'line' if lines == 1 else 'lines'}). The file itself has not been written yet. "
        f"The draft ends with:\n«{tail}»\n"
        f'Continue with `write_file_continue` (draft_id "{draft_id}"): send only the text that '
        "follows these characters, without repeating them, in several calls if necessary, and set "
        "`final` in the last one."
    )


def normalize_history(history: Sequence[Message]) -> tuple[Message, ...]:
    """Return rows with alternating roles, one result per call, and notes on interrupted answers."""
    seen: list[Message] = []
    cut_short = ""
    at = 0
    while at < len(history):
        row = history[at]
        at += 1
        if row.role == _USER:
            _add_user(seen, row, cut_short)
            cut_short = ""
        elif row.role == _ASSISTANT and (row.tool_calls or row.content.strip()):
            if seen and seen[-1].role == _ASSISTANT:
                seen.append(Message(MessageRole.USER, cut_short or _CONVERSATION_CONTINUES))
            cut_short = ""
            if row.interrupted:
                cut_short = f"[Your answer above was cut short: {row.interrupted}.]"
            behind = at
            while at < len(history) and history[at].role == _TOOL:
                at += 1
            seen.append(row)
            if row.tool_calls:
                seen.extend(_complete_results(row.tool_calls, history[behind:at]))
    if cut_short:
        seen.append(Message(MessageRole.USER, f"{cut_short} Continue exactly where it ends."))
    return tuple(seen)


def _add_user(seen: list[Message], row: Message, cut_short: str) -> None:
    plain = not row.sender and not cut_short and not row.files
    text = row.content if plain else "\n\n".join(filter(None, (cut_short, _with_sender(row))))
    if seen and seen[-1].role == _USER:
        before = seen[-1]
        seen[-1] = Message(
            MessageRole.USER, f"{before.content}\n\n{text}", files=(*before.files, *row.files)
        )
    else:
        seen.append(row if plain else Message(MessageRole.USER, text, files=row.files))


def _with_sender(row: Message) -> str:
    said = append_file_lines(row.content, row.files)
    if not row.sender:
        return said
    name = " ".join(row.sender.replace("[", "(").replace("]", ")").split())
    return f"[{name}] {said}"


def _complete_results(calls: Sequence[ToolCall], rows: Sequence[Message]) -> Iterator[Message]:
    results: dict[str | None, Message] = {}
    for row in rows:
        results.setdefault(row.tool_call_id, row)
    for call in calls:
        yield results.get(call.id) or Message(MessageRole.TOOL, NO_RESULT, tool_call_id=call.id)
