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
from sessions.conversation.events import (
    NewSession,
    ResumeSession,
    RetryTurn,
    StopTurn,
    UndoTurn,
)
from sessions.records import Session, SessionState
from sessions.values.clock import rfc3339
from sessions.values.notices import NoticeId

_MAX_LISTED = 10


async def _new(call: CommandCall) -> CommandOutcome:
    return ForwardEvent(NewSession(call.context))


async def _stop(call: CommandCall) -> CommandOutcome:
    if call.args.lower() != "all":
        return ForwardEvent(StopTurn(call.context))
    if call.role is not Role.ADMIN:
        return NoticeReply(NoticeId.ADMINS_ONLY)
    return NoticeReply(
        NoticeId.STOPPED_ALL, {"n": await call.services.stop_all(call.context)}, urgent=True
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
    if len(matches) != 1:
        return NoticeReply(NoticeId.NOTHING_TO_RESUME)
    return ForwardEvent(ResumeSession(context=call.context, session=matches[0].id))


async def _sessions(call: CommandCall) -> CommandOutcome:
    earlier = _suspended_sessions(await call.services.list_sessions(call.key))
    if not earlier:
        return NoticeReply(NoticeId.PLAIN_TEXT, {"text": "There's no earlier conversation here."})
    lines = [
        f"{number}. {session.title or 'untitled'} · {_format_updated_at(session)} · "
        f"{session.messages} messages · {session.reason}"
        for number, session in enumerate(earlier[:_MAX_LISTED], 1)
    ]
    return NoticeReply(NoticeId.SESSIONS, {"list": "\n".join(lines)})


def _suspended_sessions(sessions: Sequence[Session]) -> list[Session]:
    return [session for session in sessions if session.state is SessionState.SUSPENDED]


def _format_updated_at(session: Session) -> str:
    return rfc3339(session.updated_at)[:16].replace("T", " ")


async def _status(call: CommandCall) -> CommandOutcome:
    state = await call.services.read_state(call.key)
    lines = []
    if state.turn and not state.turn.cancelling:
        minutes = (call.services.now() - state.turn.started_at) // 60_000
        request = " ".join(state.turn.request.split())[:80]
        duration = f" for {minutes} min" if minutes else ""
        lines.append(f"⏳ Working on “{request}”{duration}.")
    else:
        lines.append("💤 No active task.")
    lines.extend(
        f"{number}. queued: “{' '.join(pending.message.content.split())[:80]}”"
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
    Command("stop", "stop the current task", _stop, args="[all]"),
    Command("status", "show running and queued messages", _status, role=Role.GUEST),
    Command("resume", "return to an earlier conversation", _resume, args="[NUMBER]"),
    Command("sessions", "list earlier conversations", _sessions),
    Command("retry", "run the last message again", _retry),
    Command("undo", "remove the last message and its answer", _undo),
    Command("queue", "answer this after the current task", _queue, args="TEXT"),
    Command("steer", "add this to the current task", _steer, args="TEXT"),
)
