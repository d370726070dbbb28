"""Sans-IO: what something received waits for now, and what would make it go on."""

from typing import assert_never

from gateway.approvals.rules import approval_code
from gateway.inbound import decisions
from gateway.inbound.decisions import InboxDecision
from gateway.operate.why.facts import (
    NO_GATEWAY,
    START_HINT,
    MessageReport,
    WaitStatus,
    excerpt,
    format_message_count,
    format_time,
)
from gateway.operate.why.shown import delivery_status
from gateway.operate.why.story import is_command
from sessions.records import (
    InboxEntry,
    InboxState,
    ItemState,
    Session,
    SessionReason,
    SessionState,
    Turn,
    TurnState,
)


def wait_status(report: MessageReport) -> WaitStatus:
    """Say how it stands, and what would make it go on."""
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
        case _:
            assert_never(entry.state)


def _ignored(entry: InboxEntry) -> WaitStatus:
    match decisions.read_decision(entry.decision):
        case InboxDecision.NOT_ADDRESSED:
            return WaitStatus(
                "it was ignored: it was said in a room and not to the bot (no mention, no reply to it, "
                "no command). Its text was not kept",
                "it must be sent again with a mention; who wants every message of a room answered "
                "sets require_mention = false for that platform",
            )
        case InboxDecision.BOT:
            return WaitStatus(
                "it was ignored: a program wrote it, and programs are let in only by name. Its text "
                "was not kept",
                "the program's id is written into access.allow, and it sends another one",
            )
        case InboxDecision.NOT_ALLOWED:
            return WaitStatus(
                "it was ignored: its sender is not let in. Its text was not kept",
                "its sender is let in, by access.allow or by holdfast pair approve CODE (holdfast "
                "pair list shows who asks), and sends it again",
            )
        case InboxDecision.EDIT | InboxDecision.DELETE:
            return WaitStatus(
                "it was ignored: it changes a message that was not meant for the bot. Its text was "
                "not kept"
            )
        case _:
            return WaitStatus(
                "it was ignored: when it was to be carried out after a restart, its sender was not "
                "let in any more"
            )


def _refused(entry: InboxEntry) -> WaitStatus:
    again = "its sender, who was told, sends it again"
    match decisions.read_decision(entry.decision):
        case InboxDecision.STALE:
            return WaitStatus(
                "it was not taken: it was older than gateway.stale_after when it arrived here",
                again,
            )
        case InboxDecision.BEFORE_RESTORE:
            return WaitStatus(
                "it was not taken: it is older than the backup that was restored here, and may have "
                "been answered before",
                again,
            )
        case InboxDecision.TOO_MANY:
            return WaitStatus(
                "it was not taken: its sender sent more than limits.messages_per_minute allows",
                again,
            )
        case _:
            return WaitStatus(
                "it was not taken: as many messages as gateway.queue_limit allows were waiting in its "
                "conversation",
                again,
            )


def _halted_reason(report: MessageReport) -> str:
    if report.daemon is None:
        return NO_GATEWAY
    return "the gateway is stopping, and begins nothing more" if report.daemon.stopping else ""


def _waiting(report: MessageReport) -> WaitStatus:
    around, running = report.around, report.around.running
    if halted := _halted_reason(report):
        return WaitStatus(f"it waits for its turn: {halted}", START_HINT)
    first = f", and {format_message_count(around.ahead)} before it" if around.ahead else ""
    if running:
        return WaitStatus(
            f"it waits behind turn {running.id} (“{excerpt(running.request)}”, begun "
            f"{format_time(running.started_at)}){first}: {_turn_status(report, running).current}",
            f"that turn ends by itself, by /stop in the chat, or by holdfast sessions stop "
            f"{running.session_id}",
        )
    if around.ahead:
        return WaitStatus(
            f"it waits for its turn: {format_message_count(around.ahead)} before it",
            "they are answered",
        )
    return WaitStatus(
        "it waits for its turn, and nothing is in its way",
        "the owner of its conversation takes it, which is a matter of moments; if it stays so, the log "
        "says what keeps it (such as a store that cannot be written)",
    )


def _pending_command(report: MessageReport) -> WaitStatus:
    if halted := _halted_reason(report):
        return WaitStatus(f"it was not carried out yet: {halted}", START_HINT)
    return WaitStatus(
        "it is being carried out, or its answer is being worked on",
        "that comes to its end; after a restart it is begun anew",
    )


def _held(report: MessageReport) -> WaitStatus:
    session = report.around.session
    if session is None:
        return WaitStatus(
            "it is kept, unanswered, with a conversation that was interrupted", "/resume"
        )
    if session.state is SessionState.CLOSED:
        return WaitStatus(
            f"it was kept with session {session.id}, which is closed now: it is not answered"
        )
    return WaitStatus(
        f"it is kept, unanswered, with session {session.id}, which is suspended{_suspended_since(session)}",
        _resume_hint(session),
    )


def _resume_hint(session: Session) -> str:
    return f"/resume in the chat, or holdfast sessions resume {session.id}, brings that conversation back"


def _suspended_since(session: Session) -> str:
    return (
        f" since {format_time(session.updated_at)} ({_REASON_TEXTS[session.reason]})"
        if session.reason
        else ""
    )


_REASON_TEXTS = {
    SessionReason.STOP: "somebody stopped it",
    SessionReason.RESTART: "a restart interrupted it",
    SessionReason.CRASH: "the process died in it",
    SessionReason.STUCK: "it was taken up again too often without coming to an end",
    SessionReason.SWITCHED: "another one was brought back in its place",
    SessionReason.NEW: "/new began another one",
    SessionReason.IDLE: "it was quiet for long",
    SessionReason.DAILY: "a new one begins every day",
    SessionReason.DELETED: "it was deleted",
    SessionReason.ANSWERED: "it was for one request",
}


def _running(report: MessageReport) -> WaitStatus:
    turn = report.trace.turn
    if turn is None:
        return WaitStatus("its turn is under way", "that ends")
    if report.daemon is None:
        return WaitStatus(
            "its turn was under way when the gateway ended, and no gateway runs on this state folder",
            f"{START_HINT}: then its sender is told, and the work can be brought back",
        )
    return _turn_status(report, turn)


def _turn_status(report: MessageReport, turn: Turn) -> WaitStatus:
    """What a turn that runs is busy with."""
    around = report.around
    for question in around.questions:
        code = approval_code(question.id)
        return WaitStatus(
            f"its turn asks whether {question.tool} may run, since {format_time(question.asked_at)}",
            f"somebody who may answers /approve {code} or /deny {code}; at "
            f"{format_time(question.expires_at)} it counts as denied",
        )
    for run in around.runs:
        return WaitStatus(
            f"its turn runs the tool {run.tool} since {format_time(run.started_at)}",
            "the tool ends, or agent.tool_timeout ends it",
        )
    attempt = around.attempt
    if attempt and attempt.finished_at is None:
        return WaitStatus(
            f"its turn waits for the model ({attempt.target}): request {attempt.number}, sent "
            f"{format_time(attempt.started_at)}",
            "the model answers, or the clocks of [model.timeouts] end the request",
        )
    if attempt:
        why = f"; request {attempt.number} ended: {attempt.cause}" if attempt.cause else ""
        return WaitStatus(
            f"its turn is between two requests to the model{why}",
            "the next request is sent; after a failure there is a pause before it",
        )
    return WaitStatus(f"its turn began {format_time(turn.started_at)}", "its first request is sent")


def _done(report: MessageReport) -> WaitStatus:
    entry, turn = report.entry, report.trace.turn
    for item in report.trace.items:
        if item.state is not ItemState.SENT:
            return delivery_status(report, item)
    if turn is None:
        return _done_without_turn(entry)
    match turn.state:
        case TurnState.DONE:
            return WaitStatus(_answered(report))
        case TurnState.FAILED:
            return WaitStatus(
                f"its turn failed: {turn.cause or 'the log says why'}",
                "/retry in the chat runs it again" + _resume_suffix(report),
            )
        case TurnState.STOPPED:
            return _ended_early(report, f"its turn was stopped{_cause_suffix(turn.cause)}")
        case TurnState.INTERRUPTED:
            return _ended_early(report, f"its turn was interrupted{_cause_suffix(turn.cause)}")
        case TurnState.QUEUED | TurnState.RUNNING:
            return _turn_status(report, turn)
        case _:
            assert_never(turn.state)


_STOP_CAUSES = {
    "stop": "somebody said /stop",
    "new": "somebody said /new",
    "switched": "another conversation was brought back",
    "deleted": "its session was deleted",
    "left": "whoever asked had left",
    "crash": "the process died in it",
    "restart": "by a restart",
    "new message": "a newer message took its place",
}


def _cause_suffix(cause: str | None) -> str:
    return f" ({_STOP_CAUSES.get(cause, cause)})" if cause else ""


def _answered(report: MessageReport) -> str:
    shown = [item for item in report.trace.items if item.kind == "answer" and item.settled_at]
    if not shown:
        return "it was answered"
    return f"it was answered, and the answer delivered {format_time(max(i.settled_at or 0 for i in shown))}"


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
            return WaitStatus("it was applied to what it changes, if that still waited")
        case InboxDecision.BUTTON | InboxDecision.UNKNOWN_COMMAND:
            return WaitStatus("it was carried out, and answered")
        case _:
            if is_command(entry):
                return WaitStatus("it was carried out")
            return WaitStatus(
                "it was taken back before its turn began: its author deleted it, or whoever asked had "
                "left"
            )
