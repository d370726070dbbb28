"""Sans-IO: the timeline of a message."""

from collections.abc import Iterator

from agent.client_calls import turn_of_call
from gateway.access.api_keys import Requester
from gateway.inbound import decisions
from gateway.inbound.decisions import InboxDecision
from gateway.inbound.reader import read_event
from gateway.operate.why.facts import MessageReport, api_options, continues_turn
from gateway.turns.answer import HANDED_TO_CLIENT
from platforms.core.contract import InboundDelete, InboundEdit
from sessions.records import InboxEntry, ItemState, OutboxItem
from sessions.values.text import shorten

_MAX_NAME = 60


def headline(report: MessageReport) -> str:
    """Return the kind, id and conversation of a message."""
    entry = report.entry
    return f"{_kind(entry)} {entry.event} in {entry.key}"


def _kind(entry: InboxEntry) -> str:
    decision = decisions.read_decision(entry.decision)
    match decision:
        case InboxDecision.EDIT:
            return "edit"
        case InboxDecision.DELETE:
            return "deletion"
        case InboxDecision.BUTTON:
            return "button"
        case InboxDecision.UNKNOWN_COMMAND:
            return "unknown command"
        case InboxDecision.NOT_ADDRESSED | InboxDecision.BOT | InboxDecision.NOT_ALLOWED:
            return "message"
        case InboxDecision.STALE | InboxDecision.TOO_MANY | InboxDecision.BEFORE_RESTORE:
            return "message"
        case None:
            return f"command /{entry.decision}" if is_command(entry) else "message"


def is_command(entry: InboxEntry) -> bool:
    """Return True for a command, whose decision is neither a role nor an `InboxDecision`."""
    return bool(entry.decision) and entry.decision not in {*decisions.ROLE_NAMES, *InboxDecision}


def timeline(report: MessageReport) -> list[tuple[int, str]]:
    """Return the events of a message with their times, in order."""
    return sorted(_timeline(report), key=lambda step: step[0])


def _timeline(report: MessageReport) -> Iterator[tuple[int, str]]:
    entry, turn, around = report.entry, report.trace.turn, report.around
    decision = f" (decision: {entry.decision})" if entry.decision else ""
    yield entry.received_at, f"received and stored as {entry.id}{decision}"
    if options := api_options(entry):
        yield entry.received_at, _describe_requester(options.requester or Requester())
        if source := turn_of_call(options.tool_call_id):
            yield entry.received_at, f"brought results of the tool calls of turn {source}"
    yield from _corrections(report)
    if turn:
        if continues_turn(entry):
            yield entry.received_at, f"turn {turn.id} went on"
        elif turn.started_at < entry.received_at:
            yield entry.received_at, f"added to the running turn {turn.id} to steer it"
        else:
            others = sum(
                each.id != entry.id and not continues_turn(each) for each in around.turn_entries
            )
            with_others = f", with {others} more waiting" if others else ""
            yield turn.started_at, f"turn {turn.id} started{with_others}"
        if turn.resumed:
            times = "once" if turn.resumed == 1 else f"{turn.resumed} times"
            yield turn.started_at, f"resumed {times} after a restart"
        if following := report.continued_by:
            yield (
                entry.settled_at or following.received_at,
                f"tool calls handed to the client; message {following.id} brought their results",
            )
        elif turn.finished_at is not None:
            handed = turn.cause == HANDED_TO_CLIENT
            cause = "tool calls handed to the client" if handed else turn.cause
            tries = f"{turn.attempts} model request{'' if turn.attempts == 1 else 's'}"
            yield (
                turn.finished_at,
                f"turn {turn.state.value}, {tries}" + (f": {cause}" if cause else ""),
            )
    for item in report.items:
        yield item.created_at, f"{item.kind} {item.id} written"
        if item.settled_at is not None:
            yield item.settled_at, f"{item.kind} {_delivery_result(item)}"
    ended = turn and (report.continued_by or turn.finished_at == entry.settled_at)
    if entry.settled_at is not None and not ended:
        yield entry.settled_at, "settled"


def _describe_requester(requester: Requester) -> str:
    """Return the key of an API request, and the user and chat that its client names."""
    key = f"the API key {requester.name}" if requester.key else "the API key of the configuration"
    named = {"user": requester.named_user, "chat": requester.named_chat}
    names = [f"{what} {shorten(name, _MAX_NAME)}" for what, name in named.items() if name]
    return f"sent with {key}" + (f"; {', '.join(names)}, as the client says" if names else "")


def _delivery_result(item: OutboxItem) -> str:
    tries = f" after {item.tries} tries" if item.tries > 1 else ""
    if item.state is ItemState.SENT:
        return f"sent{tries}"
    return f"not delivered{tries}: {item.error or 'no cause is known'}"


def _corrections(report: MessageReport) -> Iterator[tuple[int, str]]:
    """Yield the author's later edits and deletions, and whether each was in time."""
    entry, turn = report.entry, report.trace.turn
    for row in reversed(report.around.corrections):
        event = read_event(row) if row.payload else None
        if not isinstance(event, InboundEdit | InboundDelete) or event.message != entry.event:
            continue
        verb = "deleted" if isinstance(event, InboundDelete) else "edited"
        if turn and turn.started_at <= row.received_at:
            yield row.received_at, f"{verb} by its author; too late, its turn had started"
        else:
            yield row.received_at, f"{verb} by its author while it was waiting"
