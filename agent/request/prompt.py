"""Sans-IO: how a conversation is shown to a model.

The history holds only what was really said. What a model needs besides, so that rows alternate and
every call has a result, is added here, for one request; nothing of it is stored.
"""

import enum
from collections.abc import Iterator, Sequence

import msgspec

from agent.request.file_lines import append_file_lines
from sessions.records import Message, ToolCall


class ContinuationReason(enum.StrEnum):
    """What a continuation has to explain."""

    CAP = "cap"  # the answer met the output limit
    NETWORK = "network"  # the connection broke
    LOST_CALLS = "calls"  # a tool call behind the text was lost


SYSTEM_PROMPT = """\
You are a helpful assistant that people reach through a chat. Answer in the language you are \
spoken to. Be brief unless asked for more. You may use Markdown. Use the tools you are given when \
they help; say honestly what you could not do or do not know."""

EARLIER_NOT_IN_VIEW = (
    "An earlier conversation with this person was stopped or interrupted. It is not in view; this "
    "is a fresh one. Do not act as if you remembered the earlier one."
)

LAST_STEP_MESSAGE = Message(
    "user",
    "[You have used all your steps. Without any more tools, say now what you found and did, and "
    "what is left to do.]",
)

NO_RESULT = (
    "No result: the call was interrupted. It may have had its effect; look before you repeat it."
)

EMPTY_ANSWER_MESSAGE = Message("user", "[Your last answer was empty. Please give your answer now.]")

ANNOUNCED_CALL_PROMPT = (
    "[Your answer above says what you will do, but no tool was called, so nothing has happened yet. "
    "Make the call now, without saying again that you will. If there is nothing to be done, say in "
    "one sentence how things stand.]"
)

REPETITION_PROMPT = (
    "[You had begun to repeat the same words over and over and were stopped. What you repeated was "
    "removed. Do not fall into it again.]"
)

_QUOTED_CHARACTERS = 200  # characters of a cut text that are shown again
_REPEATED_CHARACTERS = 40  # of these, what the model is to begin with
_MAX_LISTED_CALLS = 3  # lost calls that are listed
_MAX_REQUEST_LENGTH = 1000
_CONVERSATION_CONTINUES = "[The conversation goes on.]"


def describe_interrupted_request(request: str) -> str:
    """Tell of a request that was being worked on when the process went down."""
    shown = request[:_MAX_REQUEST_LENGTH]
    return f"Before this conversation an interruption ended the work on this request: «{shown}»"


class LostCall(msgspec.Struct, frozen=True):
    """A call that was cut off on its way."""

    tool: str
    received_bytes: int  # bytes of its arguments
    draft_note: str = ""  # what was kept of it, in words for the model


class LostCallReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the model is told about calls of its last answer."""

    lost_calls: tuple[LostCall, ...] = ()
    unsealed_tools: tuple[str, ...] = ()  # whole, but not run: nothing proves that they had ended
    done_calls: tuple[str, ...] = ()  # calls of that answer that ran
    limit_kilotokens: int = 8  # thousand tokens for each call
    withheld_tool: str = ""  # this tool cannot be used now
    draft_notes: tuple[
        str, ...
    ] = ()  # files begun earlier and not finished, in words for the model
    from_other_model: bool = False  # it was another model's answer


def continuation_messages(
    text: str, reason: ContinuationReason, extra_text: str = ""
) -> tuple[Message, ...]:
    """Ask for the rest of a text that broke off; the seam is found by what the model repeats."""
    why = {
        ContinuationReason.CAP: "was truncated by the output length limit",
        ContinuationReason.NETWORK: "was cut off by a network error while it was being sent",
        ContinuationReason.LOST_CALLS: "arrived up to a tool call that was lost",
    }[reason]
    start = text[-_REPEATED_CHARACTERS:]
    asked = (
        f"[Your answer above {why}. What arrived of it ends with:\n«{text[-_QUOTED_CHARACTERS:]}»\n"
        f"Go on exactly there: start by repeating its last words, «{start}», to the letter, and "
        "continue directly behind them with what is still missing of the answer. Do not begin "
        "anew, and do not speak of the interruption.]"
    )
    return Message("assistant", text), Message(
        "user", "\n\n".join(filter(None, (asked, extra_text)))
    )


def describe_lost_calls(report: LostCallReport) -> str:
    """Tell which calls did not arrive, and ask for them in a form that will."""
    parts: list[str] = []
    if report.from_other_model:
        parts.append("Another model was asked before you; its answer broke off.")
    if report.lost_calls:
        named = "; ".join(
            f"`{each.tool or 'a tool'}` (cut off after {each.received_bytes:,} bytes received)"
            for each in report.lost_calls[:_MAX_LISTED_CALLS]
        )
        parts.append(
            f"This call was too large, timed out on the way and has not run: {named}."
            if len(report.lost_calls) == 1
            else f"These calls were too large, timed out on the way and have not run: {named}."
        )
    if report.unsealed_tools:
        named = ", ".join(f"`{tool}`" for tool in report.unsealed_tools[:_MAX_LISTED_CALLS])
        parts.append(
            f"The connection broke right behind your call of {named}; it has not run. If you "
            "still want it, make the same call again."
        )
    if report.done_calls:
        parts.append(
            f"Done already, with the results above: {', '.join(report.done_calls)}. Do not repeat these."
        )
    parts.extend(each.draft_note for each in report.lost_calls if each.draft_note)
    parts.extend(report.draft_notes)
    if report.withheld_tool:
        parts.append(
            f"`{report.withheld_tool}` cannot be used for your next answer: say in plain words what "
            "you have done and what is missing."
        )
    elif report.lost_calls:
        again = (
            ""
            if all(each.draft_note for each in report.lost_calls)
            else ("Do not make the same call with the same content again. ")
        )
        parts.append(
            f"{again}Split the work into several smaller calls, each with less than about "
            f"{report.limit_kilotokens}K tokens of arguments."
        )
    return f"[{' '.join(parts)}]"


def describe_draft(draft_id: str, path: str, size: int, lines: int, tail: str) -> str:
    """Tell how a file goes on whose beginning was kept."""
    return (
        f"The beginning of {path} was kept as draft {draft_id} ({size:,} characters, {lines:,} "
        f"{'line' if lines == 1 else 'lines'}). Nothing of it stands in the file yet. It ends with:\n«{tail}»\nContinue with "
        f'`write_file_continue` (draft_id "{draft_id}"): give only what follows directly behind '
        "these characters, without repeating them, in several calls if need be, and set `final` "
        "with the last one."
    )


def normalize_history(history: Sequence[Message]) -> tuple[Message, ...]:
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
                seen.append(Message("user", cut_short or _CONVERSATION_CONTINUES))
            cut_short = ""
            if row.interrupted:
                cut_short = f"[Your answer above was cut short: {row.interrupted}.]"
            behind = at
            while at < len(history) and history[at].role == "tool":
                at += 1
            seen.append(row)
            if row.tool_calls:
                seen.extend(_complete_results(row.tool_calls, history[behind:at]))
    if cut_short:
        seen.append(Message("user", f"{cut_short} Go on exactly where it ends."))
    return tuple(seen)


def _add_user(seen: list[Message], row: Message, cut_short: str) -> None:
    plain = not row.sender and not cut_short and not row.files
    text = row.content if plain else "\n\n".join(filter(None, (cut_short, _with_sender(row))))
    if seen and seen[-1].role == "user":
        before = seen[-1]
        seen[-1] = Message("user", f"{before.content}\n\n{text}", files=(*before.files, *row.files))
    else:
        seen.append(row if plain else Message("user", text, files=row.files))


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
        yield results.get(call.id) or Message("tool", NO_RESULT, tool_call_id=call.id)
