"""Sans-IO: the current state of a message, and the event that will change the state."""

from gateway.approvals.rules import approval_code
from gateway.inbound import decisions
from gateway.inbound.decisions import InboxDecision
from gateway.operate.why.facts import (
    NO_GATEWAY,
    START_HINT,
    MessageReport,
    WaitStatus,
    format_message_count,
)
from gateway.operate.why.shown import delivery_status
from gateway.operate.why.story import is_command
from gateway.turns.answer import HANDED_TO_CLIENT
from sessions.records import (
    InboxEntry,
    InboxState,
    ItemKind,
    ItemState,
    Session,
    SessionReason,
    SessionState,
    Turn,
    TurnState,
)
from sessions.values.text import excerpt, format_time

_EXCERPT_LENGTH = 60


def wait_status(report: MessageReport) -> WaitStatus:
    """Return the current state of a message, and the event that will change the state."""
    entry = report.entry
    match entry.state:
        case InboxState.IGNORED:
            return _ignored(entry)
        case InboxState.REFUSED:
            return _refused(entry)
        case InboxState.WAITING:
            return _waiting(report)
        case InboxState.COMMAND:
            return _pending_command(report)
        case InboxState.HELD:
            return _held(report)
        case InboxState.RUNNING:
            return _running(report)
        case InboxState.DONE:
            return _done(report)


def _ignored(entry: InboxEntry) -> WaitStatus:
    match decisions.read_decision(entry.decision):
        case InboxDecision.NOT_ADDRESSED:
            return WaitStatus(
                "it was ignored: in this room the bot was not addressed (no mention, reply or command). Its "
                "text was not kept",
                "it is sent again with a mention; to answer every message in rooms, set "
                "require_mention = false for the platform",
            )
        case InboxDecision.BOT:
            return WaitStatus(
                "it was ignored: its sender is a bot, and bots need an entry of their own. Its text was "
                "not kept",
                "the bot's id is added to access.allow, and the bot sends another message",
            )
        case InboxDecision.NOT_ALLOWED:
            return WaitStatus(
                "it was ignored: its sender has no access. Its text was not kept",
                "its sender gets access, by access.allow or by holdfast pair approve CODE (see "
                "holdfast pair list), and sends it again",
            )
        case InboxDecision.EDIT | InboxDecision.DELETE:
            return WaitStatus(
                "it was ignored: it changes a message that was not addressed to the bot. Its text was not "
                "kept"
            )
        case _:
            return WaitStatus(
                "it was ignored: its sender lost access before the message was answered"
            )


def _refused(entry: InboxEntry) -> WaitStatus:
    again = "its sender, who was notified, sends it again"
    match decisions.read_decision(entry.decision):
        case InboxDecision.STALE:
            return WaitStatus(
                "it was not accepted: on arrival it was older than gateway.stale_after",
                again,
            )
        case InboxDecision.BEFORE_RESTORE:
            return WaitStatus(
                "it was not accepted: it is older than the restored backup, and may have been answered "
                "already",
                again,
            )
        case InboxDecision.TOO_MANY:
            return WaitStatus(
                "it was not accepted: its sender exceeded limits.messages_per_minute",
                again,
            )
        case _:
            return WaitStatus(
                "it was not accepted: gateway.queue_limit messages were already waiting in its conversation",
                again,
            )


def _halted_reason(report: MessageReport) -> str:
    if report.daemon is None:
        return NO_GATEWAY
    return "the gateway is stopping and starts no new turn" if report.daemon.stopping else ""


def _waiting(report: MessageReport) -> WaitStatus:
    around, running = report.around, report.around.running
    if halted := _halted_reason(report):
        return WaitStatus(f"it is waiting: {halted}", START_HINT)
    first = f", with {format_message_count(around.ahead)} before it" if around.ahead else ""
    if running:
        return WaitStatus(
            f"it is waiting for turn {running.id} (“{excerpt(running.request, _EXCERPT_LENGTH)}”, started "
            f"{format_time(running.started_at)}){first}: {_turn_status(report, running).current}",
            f"that turn ends, or is stopped by /stop in the chat or by holdfast sessions stop "
            f"{running.session_id}",
        )
    if around.ahead:
        return WaitStatus(
            f"it is waiting: {format_message_count(around.ahead)} before it",
            "they are answered",
        )
    return WaitStatus(
        "it is about to be processed",
        "its conversation picks it up within moments; if nothing happens, see the log for the cause, "
        "such as a database that cannot be written",
    )


def _pending_command(report: MessageReport) -> WaitStatus:
    if halted := _halted_reason(report):
        return WaitStatus(f"it has not been processed yet: {halted}", START_HINT)
    return WaitStatus(
        "it is being processed",
        "it finishes; after a restart it starts again",
    )


def _held(report: MessageReport) -> WaitStatus:
    session = report.around.session
    if session is None:
        return WaitStatus("it is kept unanswered with an interrupted conversation", "/resume")
    if session.state is SessionState.CLOSED:
        return WaitStatus(
            f"it was kept with session {session.id}, which is now closed, so it will not be answered"
        )
    return WaitStatus(
        f"it is kept unanswered with session {session.id}, which is suspended{_suspended_since(session)}",
        _resume_hint(session),
    )


def _resume_hint(session: Session) -> str:
    return (
        f"/resume in the chat, or holdfast sessions resume {session.id}, continues the conversation"
    )


def _suspended_since(session: Session) -> str:
    return (
        f" since {format_time(session.updated_at)} ({_REASON_TEXTS[session.reason]})"
        if session.reason
        else ""
    )


_REASON_TEXTS = {
    SessionReason.STOP: "it was stopped",
    SessionReason.RESTART: "a restart interrupted it",
    SessionReason.CRASH: "the process crashed",
    SessionReason.STUCK: "it was resumed too often without finishing",
    SessionReason.SWITCHED: "another session was resumed instead",
    SessionReason.NEW: "/new started another session",
    SessionReason.IDLE: "it was idle too long",
    SessionReason.DAILY: "a new session starts every day",
    SessionReason.DELETED: "it was deleted",
    SessionReason.ANSWERED: "it served a single request",
}


def _running(report: MessageReport) -> WaitStatus:
    turn = report.trace.turn
    if turn is None:
        return WaitStatus("its turn is running", "the turn ends")
    if report.daemon is None:
        return WaitStatus(
            "its turn was running when the gateway stopped, and no gateway is running now",
            f"{START_HINT}; then its sender is notified and can resume the work",
        )
    return _turn_status(report, turn)


def _turn_status(report: MessageReport, turn: Turn) -> WaitStatus:
    """Return the current activity of a running turn."""
    around = report.around
    for question in around.questions:
        code = approval_code(question.id)
        return WaitStatus(
            f"its turn has been waiting for approval of {question.tool} since "
            f"{format_time(question.asked_at)}",
            f"an authorized person answers /approve {code} or /deny {code}; at "
            f"{format_time(question.expires_at)} the request counts as denied",
        )
    for run in around.runs:
        return WaitStatus(
            f"its turn has been running the tool {run.tool} since {format_time(run.started_at)}",
            "the tool ends, or agent.tool_timeout stops it",
        )
    attempt = around.attempt
    if attempt and attempt.finished_at is None:
        return WaitStatus(
            f"its turn is waiting for the model ({attempt.target}): request {attempt.number}, sent "
            f"{format_time(attempt.started_at)}",
            "the model answers, or a timeout of [model.timeouts] ends the request",
        )
    if attempt:
        why = f"; request {attempt.number} ended: {attempt.cause}" if attempt.cause else ""
        return WaitStatus(
            f"its turn is between two model requests{why}",
            "the next request is sent; after a failure, following a pause",
        )
    return WaitStatus(
        f"its turn started {format_time(turn.started_at)}", "its first request is sent"
    )


def _done(report: MessageReport) -> WaitStatus:
    entry, turn = report.entry, report.trace.turn
    for item in report.items:
        if item.state is not ItemState.SENT:
            return delivery_status(report, item)
    if turn is None:
        return _done_without_turn(entry)
    if following := report.continued_by:
        return WaitStatus(
            "it was answered with tool calls, which the client ran; message "
            f"{following.id} brought their results"
        )
    match turn.state:
        case TurnState.DONE:
            return WaitStatus(_answered(report))
        case TurnState.FAILED:
            return WaitStatus(
                f"its turn failed: {turn.cause or 'see the log'}",
                "/retry in the chat runs it again" + _resume_suffix(report),
            )
        case TurnState.STOPPED:
            return _ended_early(report, f"its turn was stopped{_cause_suffix(turn.cause)}")
        case TurnState.INTERRUPTED:
            return _ended_early(report, f"its turn was interrupted{_cause_suffix(turn.cause)}")
        case TurnState.QUEUED | TurnState.RUNNING:
            return _turn_status(report, turn)


_STOP_CAUSES = {
    "stop": "by /stop",
    "new": "by /new",
    "switched": "another session was resumed",
    "deleted": "its session was deleted",
    "left": "the client had disconnected",
    "access lost": "the person lost access",
    "crash": "the process crashed",
    "restart": "by a restart",
    "new message": "replaced by a newer message",
}


def _cause_suffix(cause: str | None) -> str:
    return f" ({_STOP_CAUSES.get(cause, cause)})" if cause else ""


def _answered(report: MessageReport) -> str:
    turn = report.trace.turn
    if turn and turn.cause == HANDED_TO_CLIENT:
        return (
            "it was answered with tool calls, which the client runs; a later message brings their "
            "results"
        )
    shown = [item for item in report.items if item.kind is ItemKind.ANSWER and item.settled_at]
    if not shown:
        return "it was answered"
    return f"it was answered; the answer was delivered {format_time(max(i.settled_at or 0 for i in shown))}"


def _resume_suffix(report: MessageReport) -> str:
    session = report.around.session
    suspended = session is not None and session.state is SessionState.SUSPENDED
    return f"; {_resume_hint(session)}" if session and suspended else ""


def _ended_early(report: MessageReport, how: str) -> WaitStatus:
    session = report.around.session
    if session is None or session.state is SessionState.CLOSED:
        return WaitStatus(how)
    if session.state is SessionState.SUSPENDED:
        return WaitStatus(
            f"{how}; session {session.id} is suspended{_suspended_since(session)}",
            _resume_hint(session),
        )
    return WaitStatus(how, "/retry in the chat runs it again")


def _done_without_turn(entry: InboxEntry) -> WaitStatus:
    match decisions.read_decision(entry.decision):
        case InboxDecision.EDIT | InboxDecision.DELETE:
            return WaitStatus("it was applied to the message it changes, if that was still waiting")
        case InboxDecision.BUTTON | InboxDecision.UNKNOWN_COMMAND:
            return WaitStatus("it was processed and answered")
        case _:
            if is_command(entry):
                return WaitStatus("it was processed")
            return WaitStatus(
                "it was withdrawn before its turn started: its author deleted it, or the client had "
                "disconnected"
            )
