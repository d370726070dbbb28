"""Commands about the conversation itself."""

from collections.abc import Sequence

from gateway.access.policy import Role
from gateway.commands.contract import (
    Command,
    CommandCall,
    CommandOutcome,
    ForwardEvent,
    NoticeReply,
)
from gateway.notices.catalogue import safe_mode_text
from sessions.attached import request_text
from sessions.conversation.events import (
    NewSession,
    ResumeSession,
    RetryTurn,
    StopTurn,
    UndoTurn,
)
from sessions.records import Session, SessionReason, SessionState
from sessions.values.notices import NoticeId
from sessions.values.text import count_of, excerpt, format_time
from sessions.values.visible_text import escape_markdown

_MAX_LISTED = 10
_REASONS = {
    SessionReason.STOP: "stopped",
    SessionReason.RESTART: "interrupted by a restart",
    SessionReason.CRASH: "interrupted by a crash",
    SessionReason.STUCK: "interrupted several times",
    SessionReason.SWITCHED: "left for another one",
}
_MAX_REQUEST_LENGTH = 80  # of a quoted request


async def _new(call: CommandCall) -> CommandOutcome:
    return ForwardEvent(NewSession(call.context))


async def _stop(call: CommandCall) -> CommandOutcome:
    if call.args.lower() != "all":
        return ForwardEvent(StopTurn(call.context))
    if call.role is not Role.ADMIN:
        return NoticeReply(NoticeId.ADMINS_ONLY)
    return NoticeReply(
        NoticeId.STOPPED_ALL, {"n": await call.services.stop_all(call.context.person)}, urgent=True
    )


async def _retry(call: CommandCall) -> CommandOutcome:
    return ForwardEvent(RetryTurn(call.context, None))


async def _undo(call: CommandCall) -> CommandOutcome:
    return ForwardEvent(UndoTurn(call.context, None))


async def _resume(call: CommandCall) -> CommandOutcome:
    if not call.args:
        return ForwardEvent(ResumeSession(context=call.context, session=None))
    earlier = _suspended_sessions(await call.services.list_sessions(call.key))
    wanted = call.args.split()[0]
    matches = [session for session in earlier if session.id.startswith(wanted)]
    if wanted.isdigit() and 0 < int(wanted) <= len(earlier):
        matches = [earlier[int(wanted) - 1]]
    if not earlier:
        return NoticeReply(NoticeId.NOTHING_TO_RESUME)
    if len(matches) != 1:
        return NoticeReply(NoticeId.RESUME_UNKNOWN, {"name": wanted})
    return ForwardEvent(ResumeSession(context=call.context, session=matches[0].id))


async def _sessions(call: CommandCall) -> CommandOutcome:
    earlier = _suspended_sessions(await call.services.list_sessions(call.key))
    if not earlier:
        return NoticeReply(NoticeId.PLAIN_TEXT, {"text": "There's no earlier conversation here."})
    lines = [
        f"{number}. {escape_markdown(session.title or 'untitled')} · {_format_updated_at(session)} · "
        f"{count_of(session.messages, 'message')} · {_reason(session)}"
        for number, session in enumerate(earlier[:_MAX_LISTED], 1)
    ]
    return NoticeReply(NoticeId.SESSIONS, {"list": "\n".join(lines)})


def _suspended_sessions(sessions: Sequence[Session]) -> list[Session]:
    return [session for session in sessions if session.state is SessionState.SUSPENDED]


def _reason(session: Session) -> str:
    return _REASONS.get(session.reason, "interrupted") if session.reason else "interrupted"


def _format_updated_at(session: Session) -> str:
    return f"{format_time(session.updated_at, seconds=False)} UTC"


def _quote(request: str) -> str:
    """Return the beginning of a request, drawn as it was written."""
    return escape_markdown(excerpt(request, _MAX_REQUEST_LENGTH))


async def _status(call: CommandCall) -> CommandOutcome:
    state = await call.services.read_state(call.key)
    lines = []
    if state.turn and not state.turn.cancelling:
        minutes = (call.services.now() - state.turn.started_at) // 60_000
        request = _quote(state.turn.request)
        duration = f" for {minutes} min" if minutes else ""
        lines.append(f"⏳ Working on “{request}”{duration}.")
    else:
        lines.append("💤 No active task.")
    lines.extend(
        f"{number}. queued: “{_quote(request_text(pending.message))}”"
        for number, pending in enumerate(state.waiting, 1)
    )
    if state.session is None and state.resumable:
        lines.append(
            "The last conversation was stopped or interrupted; your next message starts a new one."
        )
    if call.role is Role.ADMIN:
        lines.append(f"Running in all conversations: {len(call.services.running_turns())}.")
        if crashes := call.services.crash_count():
            lines.append(f"🛟 {safe_mode_text(crashes)}")
        degraded = call.services.degraded_parts()
        lines.extend(f"⚠️ {name}: {problem}" for name, problem in degraded.items())
    if call.services.is_restarting():
        lines.append("🔄 Restarting.")
    return NoticeReply(NoticeId.PLAIN_TEXT, {"text": "\n".join(lines)})


async def _queue(_: CommandCall) -> CommandOutcome:
    """Explain the usage: `/queue TEXT` is a message and never gets here, see `inbound.reader`."""
    return NoticeReply(NoticeId.QUEUE_USAGE)


async def _steer(_: CommandCall) -> CommandOutcome:
    """Explain the usage, as `_queue` does."""
    return NoticeReply(NoticeId.STEER_USAGE)


COMMANDS = (
    Command("new", "start a new conversation", _new, aliases=("reset",)),
    Command("stop", "stop the current task", _stop, admin_args="[all]"),
    Command("status", "show running and queued messages", _status, role=Role.GUEST, private=True),
    Command("resume", "return to an earlier conversation", _resume, args="[NUMBER]"),
    Command("sessions", "list earlier conversations", _sessions, private=True),
    Command("retry", "run the last message again", _retry),
    Command("undo", "remove the last message and its answer", _undo),
    Command("queue", "answer this after the current task", _queue, args="TEXT"),
    Command("steer", "add this to the current task", _steer, args="TEXT"),
)
