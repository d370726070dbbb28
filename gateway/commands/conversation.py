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
    found = [session for session in earlier if session.id.startswith(wanted)]
    if wanted.isdigit() and 0 < int(wanted) <= len(earlier):
        found = [earlier[int(wanted) - 1]]
    if len(found) != 1:
        return NoticeReply(NoticeId.NOTHING_TO_RESUME)
    return ForwardEvent(ResumeSession(context=call.context, session=found[0].id))


async def _sessions(call: CommandCall) -> CommandOutcome:
    earlier = _suspended_sessions(await call.services.list_sessions(call.key))
    if not earlier:
        return NoticeReply(NoticeId.PLAIN_TEXT, {"text": "There is no earlier conversation here."})
    lines = [
        f"{number}. {session.title or 'untitled'} · {_format_updated_at(session)} · "
        f"{session.messages} messages · {session.reason}"
        for number, session in enumerate(earlier[:_MAX_LISTED], 1)
    ]
    return NoticeReply(NoticeId.SESSIONS, {"list": "\n".join(lines)})


def _suspended_sessions(sessions: Sequence[Session]) -> list[Session]:
    return [each for each in sessions if each.state is SessionState.SUSPENDED]


def _format_updated_at(session: Session) -> str:
    return rfc3339(session.updated_at)[:16].replace("T", " ")


async def _status(call: CommandCall) -> CommandOutcome:
    state = await call.services.read_state(call.key)
    lines = []
    if state.turn and not state.turn.cancelling:
        minutes = (call.services.now() - state.turn.started_at) // 60_000
        request = " ".join(state.turn.request.split())[:80]
        lines.append(f"⏳ Working on “{request}” for {minutes} min.")
    else:
        lines.append("💤 No active task.")
    lines.extend(
        f"{number}. waiting: “{' '.join(pending.message.content.split())[:80]}”"
        for number, pending in enumerate(state.waiting, 1)
    )
    if state.session is None and state.resumable:
        lines.append("The last conversation is suspended; the next message starts a fresh one.")
    if call.role is Role.ADMIN:
        lines.append(f"In all conversations {len(call.services.running_turns())} running.")
        if crashes := call.services.crash_count():
            lines.append(f"🛟 {safe_mode_text(crashes)}")
    if call.services.is_restarting():
        lines.append("🔄 Restarting.")
    return NoticeReply(NoticeId.PLAIN_TEXT, {"text": "\n".join(lines)})


async def _queue(_: CommandCall) -> CommandOutcome:
    """With a text behind it, it is a message; see `gateway.inbound.reader`."""
    return NoticeReply(NoticeId.QUEUE_USAGE)


async def _steer(_: CommandCall) -> CommandOutcome:
    """As `_queue`."""
    return NoticeReply(NoticeId.STEER_USAGE)


COMMANDS = (
    Command("new", "start a new conversation", _new, aliases=("reset",)),
    Command("stop", "stop what is running", _stop, args="[all]"),
    Command("status", "what is running and waiting here", _status, role=Role.GUEST),
    Command("resume", "bring an earlier conversation back", _resume, args="[NUMBER]"),
    Command("sessions", "list earlier conversations", _sessions),
    Command("retry", "run the last message again", _retry),
    Command("undo", "take the last exchange back", _undo),
    Command("queue", "answer this after what is running", _queue, args="TEXT"),
    Command("steer", "give this to what is running", _steer, args="TEXT"),
)
