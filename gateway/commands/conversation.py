"""Commands about the conversation itself."""

from collections.abc import Sequence

from gateway.access.policy import Role
from gateway.commands.contract import Act, Call, Command, Outcome, Tell
from gateway.process.safe_mode import safe_mode
from sessions.conversation.events import (
    New,
    Resume,
    Retry,
    Stop,
    Undo,
)
from sessions.records import Session, SessionState
from sessions.values.clock import rfc3339

_LISTED = 10


async def _new(call: Call) -> Outcome:
    return Act(New(call.by))


async def _stop(call: Call) -> Outcome:
    if call.args.lower() != "all":
        return Act(Stop(call.by))
    if call.role is not Role.ADMIN:
        return Tell("admins_only")
    return Tell("stopped_all", {"n": await call.desk.stop_all(call.by)}, urgent=True)


async def _retry(call: Call) -> Outcome:
    return Act(Retry(call.by, None))


async def _undo(call: Call) -> Outcome:
    return Act(Undo(call.by, None))


async def _resume(call: Call) -> Outcome:
    if not call.args:
        return Act(Resume(call.by, None))
    earlier = _earlier(await call.desk.sessions(call.key))
    wanted = call.args.split()[0]
    found = [session for session in earlier if session.id.startswith(wanted)]
    if wanted.isdigit() and 0 < int(wanted) <= len(earlier):
        found = [earlier[int(wanted) - 1]]
    if len(found) != 1:
        return Tell("nothing_to_resume")
    return Act(Resume(call.by, found[0].id))


async def _sessions(call: Call) -> Outcome:
    earlier = _earlier(await call.desk.sessions(call.key))
    if not earlier:
        return Tell("text", {"text": "There is no earlier conversation here."})
    lines = [
        f"{number}. {session.title or 'untitled'} · {_when(session)} · "
        f"{session.messages} messages · {session.reason}"
        for number, session in enumerate(earlier[:_LISTED], 1)
    ]
    return Tell("sessions", {"list": "\n".join(lines)})


def _earlier(sessions: Sequence[Session]) -> list[Session]:
    return [each for each in sessions if each.state is SessionState.SUSPENDED]


def _when(session: Session) -> str:
    return rfc3339(session.updated_at)[:16].replace("T", " ")


async def _status(call: Call) -> Outcome:
    state = await call.desk.look(call.key)
    lines = []
    if state.turn and not state.turn.leaving:
        minutes = (call.desk.now() - state.turn.started_at) // 60_000
        request = " ".join(state.turn.request.split())[:80]
        lines.append(f"⏳ Working on “{request}” for {minutes} min.")
    else:
        lines.append("💤 No active task.")
    lines.extend(
        f"{number}. waiting: “{' '.join(pending.message.content.split())[:80]}”"
        for number, pending in enumerate(state.waiting, 1)
    )
    if state.session is None and state.earlier:
        lines.append("The last conversation is suspended; the next message starts a fresh one.")
    if call.role is Role.ADMIN:
        lines.append(f"In all conversations {len(call.desk.running())} running.")
        if crashes := call.desk.crashes():
            lines.append(f"🛟 {safe_mode(crashes)}")
    if call.desk.restarting():
        lines.append("🔄 Restarting.")
    return Tell("text", {"text": "\n".join(lines)})


async def _queue(_: Call) -> Outcome:
    """With a text behind it, it is a message; see `gateway.inbound.reader`."""
    return Tell("queue_usage")


async def _steer(_: Call) -> Outcome:
    """As `_queue`."""
    return Tell("steer_usage")


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
