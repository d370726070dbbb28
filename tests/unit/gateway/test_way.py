"""`holdfast why` has a text for every state of a message."""

import itertools
from typing import Any

import msgspec
import pytest

from gateway.access.policy import Role
from gateway.approvals.rules import approval_code
from gateway.commands.registry import COMMANDS
from gateway.inbound.decisions import InboxDecision
from gateway.operate.why.chats import (
    chat_summary,
    not_found_lines,
    platform_of,
    unrequested_item_line,
)
from gateway.operate.why.facts import MessageReport, RunningGateway, WaitStatus
from gateway.operate.why.shown import delivery_status, platform_trouble
from gateway.operate.why.standing import wait_status
from gateway.operate.why.story import headline, timeline
from platforms.core.contract import Address, Inbound, InboundDelete, InboundEdit, Sender, Text
from sessions.records import (
    Attempt,
    EntryContext,
    InboxEntry,
    InboxState,
    ItemKind,
    ItemState,
    MessageTrace,
    OutboxItem,
    Session,
    SessionReason,
    SessionState,
    ToolRun,
    Turn,
    TurnState,
)
from tests.contract.store_kit import question

PLACE = Address("raven", "1001")
KEY = "raven:1001"
SOURCE = "raven@:1001"
UP = RunningGateway(platforms={"raven": "connected"})
NOW = 1_794_998_400_000  # 2026-11-18 10:40:00
MINUTE = 60_000


def entry(
    state: InboxState, decision: str = "member", *, turn: str | None = None, **more: Any
) -> InboxEntry:
    return InboxEntry(
        id="i1",
        source=SOURCE,
        event="m1",
        key=KEY,
        address=PLACE,
        state=state,
        payload=b"{}",
        received_at=NOW,
        decision=decision,
        turn_id=turn,
        **more,
    )


def turn(state: TurnState = TurnState.RUNNING, cause: str | None = None, **more: Any) -> Turn:
    finished = None if state is TurnState.RUNNING else NOW + 2 * MINUTE
    return Turn(
        id="t1",
        session_id="s1",
        key=KEY,
        address=PLACE,
        state=state,
        request="do it",
        started_at=NOW + 1,
        finished_at=finished,
        attempts=2,
        cause=cause,
        **more,
    )


def item(state: ItemState, *, kind: str = "answer", **more: Any) -> OutboxItem:
    settled = NOW + MINUTE if state in {ItemState.SENT, ItemState.DEAD} else None
    return OutboxItem(
        id=f"{kind[0]}_1",
        address=PLACE,
        kind=ItemKind(kind),
        state=state,
        body=b"{}",
        created_at=NOW + MINUTE,
        settled_at=settled,
        **more,
    )


def session(
    state: SessionState = SessionState.SUSPENDED, reason: SessionReason | None = SessionReason.STOP
) -> Session:
    return Session(
        id="s1",
        key=KEY,
        address=PLACE,
        state=state,
        reason=reason,
        title=None,
        messages=1,
        created_at=NOW,
        updated_at=NOW + 3 * MINUTE,
    )


def way(
    what: InboxEntry,
    its_turn: Turn | None = None,
    *items: OutboxItem,
    daemon: RunningGateway | None = UP,
    pauses: dict[str, int] | None = None,
    **around: Any,
) -> MessageReport:
    return MessageReport(
        trace=MessageTrace(what, its_turn, items),
        around=EntryContext(**around),
        now=NOW,
        daemon=daemon,
        pauses=pauses or {},
    )


# --- completeness ------------------------------------------------------------------------------

DECISIONS = ("", "member", "stop", *InboxDecision)
TURNS = (None, *itertools.product(TurnState, (None, "stop", "odd")))
SESSIONS = (None, *itertools.product(SessionState, (None, *SessionReason)))


WAYS = (
    *itertools.product(DECISIONS, TURNS, (None, *ItemState), (None,)),
    *itertools.product(("member",), TURNS, (None,), SESSIONS),
)


@pytest.mark.parametrize("daemon", [UP, RunningGateway(stopping=True), None])
@pytest.mark.parametrize("state", InboxState)
def test_every_state_has_a_text(state: InboxState, daemon: RunningGateway | None) -> None:
    for decision, its_turn, shown, its_session in WAYS:
        found = way(
            entry(state, decision, turn=its_turn and "t1"),
            turn(*its_turn) if its_turn else None,
            *([item(shown)] if shown else []),
            daemon=daemon,
            session=session(*its_session) if its_session else None,
        )
        stands = wait_status(found)
        assert isinstance(stands, WaitStatus)
        assert stands.current
        assert headline(found).endswith("m1 in raven:1001")
        assert all(what for _, what in timeline(found))
        assert "None" not in stands.current + stands.unblocked_by
        if state in {InboxState.WAITING, InboxState.RUNNING, InboxState.COMMAND}:
            assert stands.unblocked_by  # an unfinished message names the next event


def test_no_command_is_named_like_a_decision() -> None:
    assert not COMMANDS.words & {*InboxDecision, *(role.name.lower() for role in Role)}


# --- texts -------------------------------------------------------------------------------------

RUNNING = entry(InboxState.RUNNING, turn="t1")
DONE = entry(InboxState.DONE, turn="t1")
WAITING = entry(InboxState.WAITING)
ASKED = question("p_0000ABCDEF", asked_at=NOW)
TOOL = ToolRun(turn_id="t1", call_id="c1", tool="pay", risk="exec", arguments="{}", started_at=NOW)
ASKING = Attempt(turn_id="t1", number=2, target="openai/one", started_at=NOW)
FAILED = Attempt(
    turn_id="t1",
    number=2,
    target="openai/one",
    started_at=NOW,
    finished_at=NOW,
    verdict="cut",
    cause="RateLimited: slow down",
)

CASES: dict[str, tuple[MessageReport, str, str]] = {
    "not addressed": (
        way(entry(InboxState.IGNORED, InboxDecision.NOT_ADDRESSED)),
        "in this room the bot was not addressed",
        "require_mention = false",
    ),
    "a stranger": (
        way(entry(InboxState.IGNORED, InboxDecision.NOT_ALLOWED)),
        "its sender has no access",
        "holdfast pair approve CODE",
    ),
    "a bot": (
        way(entry(InboxState.IGNORED, InboxDecision.BOT)),
        "its sender is a bot",
        "access.allow",
    ),
    "its sender lost access": (
        way(entry(InboxState.IGNORED, "stop")),
        "its sender lost access",
        "",
    ),
    "stale": (way(entry(InboxState.REFUSED, InboxDecision.STALE)), "gateway.stale_after", "again"),
    "too many": (
        way(entry(InboxState.REFUSED, InboxDecision.TOO_MANY)),
        "exceeded limits.messages_per_minute",
        "sends it again",
    ),
    "queue full": (way(entry(InboxState.REFUSED)), "gateway.queue_limit", "sends it again"),
    "behind a turn": (
        way(WAITING, running=turn(), attempt=ASKING, ahead=2),
        "with 2 messages before it: its turn is waiting for the model (openai/one): request 2, sent 2026",
        "by /stop in the chat or by holdfast sessions stop s1",
    ),
    "in a queue": (way(WAITING, ahead=1), "1 message before it", "they are answered"),
    "no gateway": (
        way(WAITING, daemon=None),
        "no gateway is running on this state folder",
        "is started",
    ),
    "stopping": (way(WAITING, daemon=RunningGateway(stopping=True)), "is stopping", "is started"),
    "next in line": (way(WAITING), "it is about to be processed", "see the log"),
    "a command": (way(entry(InboxState.COMMAND, "btw")), "being processed", "starts again"),
    "a command, no gateway": (
        way(entry(InboxState.COMMAND, "btw"), daemon=None),
        "it has not been processed yet: no gateway is running",
        "is started",
    ),
    "held": (
        way(entry(InboxState.HELD), session=session()),
        "with session s1, which is suspended since 2026-11-18 10:43:00 (it was stopped)",
        "/resume in the chat, or holdfast sessions resume s1",
    ),
    "held by what is closed": (
        way(entry(InboxState.HELD), session=session(SessionState.CLOSED, SessionReason.NEW)),
        "which is now closed",
        "",
    ),
    "a question": (
        way(RUNNING, turn(), questions=(ASKED,), runs=(TOOL,), attempt=ASKING),
        "its turn has been waiting for approval of pay since 2026-11-18 10:40:00",
        f"/approve {approval_code(ASKED.id)} or /deny {approval_code(ASKED.id)}; at 2026-11-18 11:10:00 the request counts",
    ),
    "a tool": (way(RUNNING, turn(), runs=(TOOL,)), "running the tool pay since", "tool_timeout"),
    "the model": (way(RUNNING, turn(), attempt=ASKING), "request 2, sent", "model.timeouts"),
    "between requests": (
        way(RUNNING, turn(), attempt=FAILED),
        "between two model requests; request 2 ended: RateLimited: slow down",
        "following a pause",
    ),
    "a dead process": (
        way(RUNNING, turn(), daemon=None),
        "running when the gateway stopped",
        "its sender is notified",
    ),
    "failed": (
        way(DONE, turn(TurnState.FAILED, "the limit of 5 tokens a day is used up")),
        "its turn failed: the limit of 5 tokens a day is used up",
        "/retry in the chat runs it again",
    ),
    "stopped": (
        way(DONE, turn(TurnState.STOPPED, "stop"), session=session()),
        "its turn was stopped (by /stop); session s1 is suspended since",
        "holdfast sessions resume s1",
    ),
    "crashed": (
        way(
            DONE, turn(TurnState.INTERRUPTED, "crash"), session=session(reason=SessionReason.CRASH)
        ),
        "its turn was interrupted (the process crashed)",
        "/resume in the chat",
    ),
    "stopped by /new": (
        way(
            DONE,
            turn(TurnState.STOPPED, "new"),
            session=session(SessionState.CLOSED, SessionReason.NEW),
        ),
        "(by /new)",
        "",
    ),
    "cut off by a newer message": (
        way(
            DONE,
            turn(TurnState.INTERRUPTED, "new message"),
            session=session(SessionState.ACTIVE, None),
        ),
        "(replaced by a newer message)",
        "/retry",
    ),
    "answered": (
        way(DONE, turn(TurnState.DONE), item(ItemState.SENT)),
        "it was answered; the answer was delivered 2026-11-18 10:41:00",
        "",
    ),
    "a pause": (
        way(DONE, turn(TurnState.DONE), item(ItemState.PENDING, not_before=NOW + MINUTE)),
        "its answer a_1 is waiting: the platform accepts no message before 2026-11-18 10:41:00",
        "that time is reached",
    ),
    "a pause of the chat": (
        way(DONE, turn(TurnState.DONE), item(ItemState.PENDING), pauses={SOURCE: NOW + MINUTE}),
        "accepts no message before 2026-11-18 10:41:00",
        "that time is reached",
    ),
    "a platform that is away": (
        way(
            DONE,
            turn(TurnState.DONE),
            item(ItemState.PENDING, tries=3),
            daemon=RunningGateway(platforms={"raven": "the token is refused"}),
        ),
        "is waiting to be sent, after 3 tries: raven is not connected (the token is refused)",
        "the platform works again",
    ),
    "a platform that is not there": (
        way(DONE, turn(TurnState.DONE), item(ItemState.PENDING), daemon=RunningGateway()),
        "raven is not configured, or its library is missing",
        "the platform works again",
    ),
    "an answer, no gateway": (
        way(DONE, turn(TurnState.DONE), item(ItemState.PENDING), daemon=None),
        "its answer a_1 is waiting to be sent: no gateway is running",
        "is started",
    ),
    "on its way": (
        way(DONE, turn(TurnState.DONE), item(ItemState.ATTEMPTING)),
        "its answer a_1 is being sent",
        "the platform accepts it",
    ),
    "being written": (
        way(DONE, turn(TurnState.DONE), item(ItemState.PENDING, final=False)),
        "its answer a_1 is being written",
        "its turn ends",
    ),
    "unknown, the platform away": (
        way(
            DONE,
            turn(TurnState.DONE),
            item(ItemState.UNKNOWN),
            daemon=RunningGateway(platforms={"raven": "connecting"}),
        ),
        "may or may not have arrived",
        "once the platform works again",
    ),
    "unknown": (
        way(DONE, turn(TurnState.DONE), item(ItemState.UNKNOWN, error="timed out")),
        "its answer a_1 may or may not have arrived: the connection broke while it was sent (timed out)",
        "marked as a possible duplicate",
    ),
    "unknown, no gateway": (
        way(DONE, turn(TurnState.DONE), item(ItemState.UNKNOWN), daemon=None),
        "may or may not have arrived",
        "once the gateway is started",
    ),
    "dead": (
        way(DONE, turn(TurnState.DONE), item(ItemState.DEAD, error="chat not found")),
        "could not be delivered: chat not found",
        "/retry",
    ),
    "deleted in time": (way(entry(InboxState.DONE)), "its author deleted it", ""),
    "an edit": (
        way(entry(InboxState.DONE, InboxDecision.EDIT)),
        "applied to the message it changes",
        "",
    ),
    "a command done": (way(entry(InboxState.DONE, "stop")), "it was processed", ""),
    "a button": (
        way(entry(InboxState.DONE, InboxDecision.BUTTON)),
        "processed and answered",
        "",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_status_names_the_state_and_the_next_event(name: str) -> None:
    found, now, then = CASES[name]
    stands = wait_status(found)
    assert now in stands.current
    assert then in stands.unblocked_by if then else stands.unblocked_by == ""


def told(found: MessageReport) -> list[str]:
    return [what for _, what in timeline(found)]


def test_a_message_that_steered_a_turn_is_described() -> None:
    late = msgspec.structs.replace(DONE, received_at=NOW + MINUTE, settled_at=NOW + 2 * MINUTE)
    assert told(way(late, turn(TurnState.DONE))) == [
        "received and stored as i1 (decision: member)",
        "added to the running turn t1 to steer it",
        "turn done, 2 model requests",
    ]


def test_collected_messages_and_resumed_turns_are_described() -> None:
    together = tuple(msgspec.structs.replace(DONE, id=f"i{number}") for number in (1, 2, 3))
    found = told(way(DONE, turn(TurnState.FAILED, "no luck", resumed=1), turn_entries=together))
    assert found[1:] == [
        "turn t1 started, with 2 more waiting",
        "resumed once after a restart",
        "turn failed, 2 model requests: no luck",
    ]
    assert "resumed 3 times after a restart" in " ".join(told(way(DONE, turn(resumed=3))))


def correction(event: Inbound, at: int) -> InboxEntry:
    return InboxEntry(
        id="i2",
        source=SOURCE,
        event="e1",
        key=KEY,
        address=PLACE,
        state=InboxState.DONE,
        payload=msgspec.json.encode(event),
        received_at=at,
    )


def test_edits_and_deletions_are_listed_with_their_effect() -> None:
    ann = Sender("1")
    edit = InboundEdit("e1", NOW, address=PLACE, sender=ann, message="m1", parts=(Text("x"),))
    other = InboundEdit("e2", NOW, address=PLACE, sender=ann, message="m2", parts=(Text("x"),))
    gone = InboundDelete("e3", NOW, address=PLACE, sender=ann, message="m1")
    rows = (correction(gone, NOW + MINUTE), correction(other, NOW + 2), correction(edit, NOW))
    assert told(way(DONE, turn(TurnState.DONE), corrections=rows)) == [
        "received and stored as i1 (decision: member)",
        "edited by its author while it was waiting",
        "turn t1 started",
        "deleted by its author; too late, its turn had started",
        "turn done, 2 model requests",
    ]


def test_outgoing_messages_are_listed_when_settled() -> None:
    shown = told(
        way(
            DONE,
            turn(TurnState.DONE),
            item(ItemState.SENT, tries=2),
            item(ItemState.DEAD, kind="notice"),
            item(ItemState.PENDING, kind="upload"),
        )
    )
    assert "answer sent after 2 tries" in shown
    assert "notice not delivered: no cause is known" in shown
    assert [each for each in shown if each.startswith("upload")] == ["upload u_1 written"]


def test_a_sent_item_waits_for_nothing() -> None:
    assert delivery_status(way(DONE), item(ItemState.SENT)) == WaitStatus("its answer a_1 is sent")
    assert platform_trouble(None, "raven") == "no gateway is running on this state folder"


# --- chats -------------------------------------------------------------------------------------


def test_a_chat_without_waiting_messages_is_summarized() -> None:
    answered = way(DONE, turn(TurnState.DONE), item(ItemState.SENT))
    failed = way(DONE, turn(TurnState.FAILED, "no luck"))
    assert (
        chat_summary([])
        == chat_summary([answered, failed, *(way(entry(InboxState.IGNORED)),)])
        == ("nothing is waiting")
    )
    waiting = way(WAITING)
    assert chat_summary([answered, waiting]) == "1 message not answered yet"
    late = way(DONE, turn(TurnState.DONE), item(ItemState.UNKNOWN))
    assert chat_summary([late, waiting, way(RUNNING, turn())]) == (
        "2 messages not answered yet; 1 answer not delivered yet"
    )
    assert chat_summary([late, late]) == "2 answers not delivered yet"


def test_an_unknown_id_shows_the_state_of_its_platform() -> None:
    last = entry(InboxState.DONE)
    ignored = entry(InboxState.IGNORED, InboxDecision.NOT_ADDRESSED)
    assert list(not_found_lines("raven:7", UP, [last], [ignored])) == [
        "Nothing is known about raven:7: no chat, message, turn, answer or session has this name.",
        "raven is connected.",
        "The last message from raven arrived 2026-11-18 10:40:00 in raven:1001.",
        "Recently ignored messages (kept for 7 days):",
        "  2026-11-18 10:40:00  raven:1001: not addressed",
    ]
    away = RunningGateway(platforms={"raven@work": "connecting"})
    assert list(not_found_lines("raven@work:7", away, [], []))[1:] == [
        "raven@work: raven@work is not connected (connecting).",
        "No message from raven@work has been received yet.",
    ]
    assert len(list(not_found_lines("i_123", None, [], []))) == 1
    assert platform_of("raven:1") == "raven"


def test_an_unrequested_item_is_described_in_one_line() -> None:
    assert unrequested_item_line(item(ItemState.SENT, kind="notice")) == (
        "notice n_1 for raven:1001: sent 2026-11-18 10:41:00"
    )
    assert (
        unrequested_item_line(item(ItemState.UNKNOWN, error="cut"))
        == "answer a_1 for raven:1001: unknown (cut)"
    )
