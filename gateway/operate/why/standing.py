"""Sans-IO: what something received waits for now, and what would make it go on."""

from typing import assert_never

from gateway.approvals.rules import code_of
from gateway.inbound import decisions
from gateway.inbound.decisions import Decision
from gateway.operate.why.facts import NO_GATEWAY, START, Waits, Way, excerpt, messages, moment
from gateway.operate.why.shown import undelivered
from gateway.operate.why.story import is_command
from sessions.records import (
    InboxEntry,
    InboxState,
    ItemState,
    Reason,
    Session,
    SessionState,
    Turn,
    TurnState,
)


def waits(way: Way) -> Waits:
    """Say how it stands, and what would make it go on."""
    entry = way.entry
    match entry.state:
        case InboxState.IGNORED:
            return _ignored(entry)
        case InboxState.REFUSED:
            return _refused(entry)
        case InboxState.WAITING:
            return _waiting(way)
        case InboxState.COMMAND:
            return _not_carried_out(way)
        case InboxState.HELD:
            return _held(way)
        case InboxState.RUNNING:
            return _running(way)
        case InboxState.DONE:
            return _done(way)
        case _:
            assert_never(entry.state)


def _ignored(entry: InboxEntry) -> Waits:
    match decisions.read(entry.decision):
        case Decision.NOT_ADDRESSED:
            return Waits(
                "it was ignored: it was said in a room and not to the bot (no mention, no reply to it, "
                "no command). Its text was not kept",
                "it must be sent again with a mention; who wants every message of a room answered "
                "sets require_mention = false for that platform",
            )
        case Decision.BOT:
            return Waits(
                "it was ignored: a program wrote it, and programs are let in only by name. Its text "
                "was not kept",
                "the program's id is written into access.allow, and it sends another one",
            )
        case Decision.NOT_ALLOWED:
            return Waits(
                "it was ignored: its sender is not let in. Its text was not kept",
                "its sender is let in, by access.allow or by holdfast pair approve CODE (holdfast "
                "pair list shows who asks), and sends it again",
            )
        case Decision.EDIT | Decision.DELETE:
            return Waits(
                "it was ignored: it changes a message that was not meant for the bot. Its text was "
                "not kept"
            )
        case _:
            return Waits(
                "it was ignored: when it was to be carried out after a restart, its sender was not "
                "let in any more"
            )


def _refused(entry: InboxEntry) -> Waits:
    again = "its sender, who was told, sends it again"
    match decisions.read(entry.decision):
        case Decision.STALE:
            return Waits(
                "it was not taken: it was older than gateway.stale_after when it arrived here",
                again,
            )
        case Decision.BEFORE_RESTORE:
            return Waits(
                "it was not taken: it is older than the backup that was restored here, and may have "
                "been answered before",
                again,
            )
        case Decision.TOO_MANY:
            return Waits(
                "it was not taken: its sender sent more than limits.messages_per_minute allows",
                again,
            )
        case _:
            return Waits(
                "it was not taken: as many messages as gateway.queue_limit allows were waiting in its "
                "conversation",
                again,
            )


def _without_daemon(way: Way) -> str:
    if way.daemon is None:
        return NO_GATEWAY
    return "the gateway is stopping, and begins nothing more" if way.daemon.stopping else ""


def _waiting(way: Way) -> Waits:
    around, running = way.around, way.around.running
    if halted := _without_daemon(way):
        return Waits(f"it waits for its turn: {halted}", START)
    first = f", and {messages(around.ahead)} before it" if around.ahead else ""
    if running:
        return Waits(
            f"it waits behind turn {running.id} (“{excerpt(running.request)}”, begun "
            f"{moment(running.started_at)}){first}: {_work(way, running).now}",
            f"that turn ends by itself, by /stop in the chat, or by holdfast sessions stop "
            f"{running.session_id}",
        )
    if around.ahead:
        return Waits(
            f"it waits for its turn: {messages(around.ahead)} before it", "they are answered"
        )
    return Waits(
        "it waits for its turn, and nothing is in its way",
        "the owner of its conversation takes it, which is a matter of moments; if it stays so, the log "
        "says what keeps it (such as a store that cannot be written)",
    )


def _not_carried_out(way: Way) -> Waits:
    if halted := _without_daemon(way):
        return Waits(f"it was not carried out yet: {halted}", START)
    return Waits(
        "it is being carried out, or its answer is being worked on",
        "that comes to its end; after a restart it is begun anew",
    )


def _held(way: Way) -> Waits:
    session = way.around.session
    if session is None:
        return Waits("it is kept, unanswered, with a conversation that was interrupted", "/resume")
    if session.state is SessionState.CLOSED:
        return Waits(
            f"it was kept with session {session.id}, which is closed now: it is not answered"
        )
    return Waits(
        f"it is kept, unanswered, with session {session.id}, which is suspended{_since(session)}",
        _bring_back(session),
    )


def _bring_back(session: Session) -> str:
    return f"/resume in the chat, or holdfast sessions resume {session.id}, brings that conversation back"


def _since(session: Session) -> str:
    return (
        f" since {moment(session.updated_at)} ({_REASONS[session.reason]})"
        if session.reason
        else ""
    )


_REASONS = {
    Reason.STOP: "somebody stopped it",
    Reason.RESTART: "a restart interrupted it",
    Reason.CRASH: "the process died in it",
    Reason.STUCK: "it was taken up again too often without coming to an end",
    Reason.SWITCHED: "another one was brought back in its place",
    Reason.NEW: "/new began another one",
    Reason.IDLE: "it was quiet for long",
    Reason.DAILY: "a new one begins every day",
    Reason.DELETED: "it was deleted",
    Reason.ANSWERED: "it was for one request",
}


def _running(way: Way) -> Waits:
    turn = way.traced.turn
    if turn is None:
        return Waits("its turn is under way", "that ends")
    if way.daemon is None:
        return Waits(
            "its turn was under way when the gateway ended, and no gateway runs on this state folder",
            f"{START}: then its sender is told, and the work can be brought back",
        )
    return _work(way, turn)


def _work(way: Way, turn: Turn) -> Waits:
    """What a turn that runs is busy with."""
    around = way.around
    for question in around.questions:
        code = code_of(question.id)
        return Waits(
            f"its turn asks whether {question.tool} may run, since {moment(question.asked_at)}",
            f"somebody who may answers /approve {code} or /deny {code}; at "
            f"{moment(question.expires_at)} it counts as denied",
        )
    for run in around.runs:
        return Waits(
            f"its turn runs the tool {run.tool} since {moment(run.started_at)}",
            "the tool ends, or agent.tool_timeout ends it",
        )
    attempt = around.attempt
    if attempt and attempt.finished_at is None:
        return Waits(
            f"its turn waits for the model ({attempt.target}): request {attempt.number}, sent "
            f"{moment(attempt.started_at)}",
            "the model answers, or the clocks of [model.timeouts] end the request",
        )
    if attempt:
        why = f"; request {attempt.number} ended: {attempt.cause}" if attempt.cause else ""
        return Waits(
            f"its turn is between two requests to the model{why}",
            "the next request is sent; after a failure there is a pause before it",
        )
    return Waits(f"its turn began {moment(turn.started_at)}", "its first request is sent")


def _done(way: Way) -> Waits:
    entry, turn = way.entry, way.traced.turn
    for item in way.traced.items:
        if item.state is not ItemState.SENT:
            return undelivered(way, item)
    if turn is None:
        return _done_without_turn(entry)
    match turn.state:
        case TurnState.DONE:
            return Waits(_answered(way))
        case TurnState.FAILED:
            return Waits(
                f"its turn failed: {turn.cause or 'the log says why'}",
                "/retry in the chat runs it again" + _closed(way),
            )
        case TurnState.STOPPED:
            return _broken_off(way, f"its turn was stopped{_because(turn.cause)}")
        case TurnState.INTERRUPTED:
            return _broken_off(way, f"its turn was interrupted{_because(turn.cause)}")
        case TurnState.QUEUED | TurnState.RUNNING:
            return _work(way, turn)
        case _:
            assert_never(turn.state)


_STOPPED = {
    "stop": "somebody said /stop",
    "new": "somebody said /new",
    "switched": "another conversation was brought back",
    "deleted": "its session was deleted",
    "left": "whoever asked had left",
    "crash": "the process died in it",
    "restart": "by a restart",
    "new message": "a newer message took its place",
}


def _because(cause: str | None) -> str:
    return f" ({_STOPPED.get(cause, cause)})" if cause else ""


def _answered(way: Way) -> str:
    shown = [item for item in way.traced.items if item.kind == "answer" and item.settled_at]
    if not shown:
        return "it was answered"
    return (
        f"it was answered, and the answer delivered {moment(max(i.settled_at or 0 for i in shown))}"
    )


def _closed(way: Way) -> str:
    session = way.around.session
    suspended = session is not None and session.state is SessionState.SUSPENDED
    return f"; {_bring_back(session)}" if session and suspended else ""


def _broken_off(way: Way, how: str) -> Waits:
    session = way.around.session
    if session is None or session.state is SessionState.CLOSED:
        return Waits(how)
    if session.state is SessionState.SUSPENDED:
        return Waits(
            f"{how}; session {session.id} is suspended{_since(session)}", _bring_back(session)
        )
    return Waits(how, "/retry in the chat runs it again")


def _done_without_turn(entry: InboxEntry) -> Waits:
    match decisions.read(entry.decision):
        case Decision.EDIT | Decision.DELETE:
            return Waits("it was applied to what it changes, if that still waited")
        case Decision.BUTTON | Decision.UNKNOWN_COMMAND:
            return Waits("it was carried out, and answered")
        case _:
            if is_command(entry):
                return Waits("it was carried out")
            return Waits(
                "it was taken back before its turn began: its author deleted it, or whoever asked had "
                "left"
            )
