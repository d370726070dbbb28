"""Sans-IO: recovery of a turn that was running when the process died."""

from collections.abc import Callable, Iterable

from agent.client_calls import placeholder, turn_of_call
from agent.tools.repeats import UNKNOWN_PREFIX
from agent.tools.risk import Risk
from gateway.turns.answer import (
    HANDED_TO_CLIENT,
    answer_item,
    answer_texts,
    client_calls_in,
    join_step_texts,
    partial_row,
    rows_since_request,
)
from sessions.changes import AppendMessages, Change, PutItem
from sessions.conversation.events import Interruption, RunningTurn, TurnCrashed
from sessions.records import (
    AWAITING_CLIENT,
    Message,
    MessageRole,
    SessionReason,
    ToolCall,
    ToolRun,
    Turn,
)
from sessions.settings import MAX_RESUMES

PREVIEW_CHARS = 60

CRASHED_NOT_RUN = "Not run: the program was restarted before this call began."
CRASHED_READ = "Did not complete: the program was restarted."
CRASHED_UNKNOWN = (
    f"{UNKNOWN_PREFIX}: the program was restarted while this was running, and it may have taken effect. "
    "Look before you repeat it."
)


def salvage(
    turn: Turn,
    running: RunningTurn,
    history: tuple[Message, ...],
    tool_runs: Iterable[ToolRun],
    now: int,
    *,
    may_resume: bool,
) -> TurnCrashed:
    """Return the event that closes open calls, keeps the partial text, and resumes or ends the turn.

    A turn is resumed at most `MAX_RESUMES` times. A turn whose stored answer calls tools of its
    client has ended with this answer.
    """
    rows = rows_since_request(history)
    known = {run.call_id: run for run in tool_runs}
    client_calls = client_calls_in(rows)
    take_up = may_resume and turn.resumed < MAX_RESUMES and not client_calls
    added = list(_missing_results(rows, lambda call: _result_after_crash(known.get(call.id))))
    # Placeholders come last, so that the results of the client find them.
    added.sort(key=lambda row: row.interrupted == AWAITING_CLIENT)
    if turn.partial and not take_up:
        added.append(partial_row(turn.partial, SessionReason.CRASH))
    changes: list[Change] = []
    if added:
        changes.append(AppendMessages(turn.session_id, turn.id, tuple(added), now))
    shown = join_step_texts((*answer_texts(rows), turn.partial))
    if shown and not take_up:
        item = answer_item(running, shown, now, running.reply_to)
        changes.append(PutItem(item))
    unknown = [r for r in known.values() if r.finished_at is None and r.risk != Risk.READ]
    return TurnCrashed(
        turn=running,
        changes=tuple(changes),
        interruption=Interruption(
            request=turn.request,
            minutes=(now - turn.started_at) // 60_000,
            tool=unknown[-1].tool if unknown else "",
            preview=unknown[-1].arguments[:PREVIEW_CHARS] if unknown else "",
        ),
        resume=take_up,
        stuck=may_resume and not take_up,
        finished_cause=HANDED_TO_CLIENT if client_calls else "",
    )


def _missing_results(
    rows: Iterable[Message], result: Callable[[ToolCall], str]
) -> tuple[Message, ...]:
    rows = tuple(rows)
    known = {row.tool_call_id for row in rows if row.role == MessageRole.TOOL}
    return tuple(
        placeholder(call.id)
        if turn_of_call(call.id)
        else Message(MessageRole.TOOL, content=result(call), tool_call_id=call.id)
        for row in rows
        for call in row.tool_calls
        if call.id not in known
    )


def _result_after_crash(run: ToolRun | None) -> str:
    if run is None:
        return CRASHED_NOT_RUN
    if run.result is not None:
        return run.result
    return CRASHED_READ if run.risk == Risk.READ else CRASHED_UNKNOWN
