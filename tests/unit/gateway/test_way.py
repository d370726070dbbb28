"""`holdfast why` has words for every way that something received can take."""

import itertools
from typing import Any

import msgspec
import pytest

from gateway.access.policy import Role
from gateway.approvals.rules import approval_code
from gateway.commands.registry import COMMANDS
from gateway.delivery.view import write_address
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
ADDRESS = write_address(PLACE)
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
        address=ADDRESS,
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
        address=ADDRESS,
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
        address=ADDRESS,
        kind=kind,
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
        address=ADDRESS,
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


# --- nothing is left out -----------------------------------------------------------------------

DECISIONS = ("", "member", "stop", *InboxDecision)
TURNS = (None, *itertools.product(TurnState, (None, "stop", "odd")))
SESSIONS = (None, *itertools.product(SessionState, (None, *SessionReason)))


WAYS = (
    *itertools.product(DECISIONS, TURNS, (None, *ItemState), (None,)),
    *itertools.product(("member",), TURNS, (None,), SESSIONS),
)


@pytest.mark.parametrize("daemon", [UP, RunningGateway(stopping=True), None])
@pytest.mark.parametrize("state", InboxState)
def test_every_way_has_words(state: InboxState, daemon: RunningGateway | None) -> None:
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
        assert headline(found).endswith("m1 of raven:1001")
        assert all(what for _, what in timeline(found))
        assert "None" not in stands.current + stands.unblocked_by
        if state in {InboxState.WAITING, InboxState.RUNNING, InboxState.COMMAND}:
            assert stands.unblocked_by  # what is to go on says when


def test_no_command_is_called_like_a_decision() -> None:
    assert not COMMANDS.words & {*InboxDecision, *(role.name.lower() for role in Role)}


# --- what they say -----------------------------------------------------------------------------

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
        "it was said in a room and not to the bot",
        "require_mention = false",
    ),
    "a stranger": (
        way(entry(InboxState.IGNORED, InboxDecision.NOT_ALLOWED)),
        "its sender is not let in",
        "holdfast pair approve CODE",
    ),
    "a bot": (
        way(entry(InboxState.IGNORED, InboxDecision.BOT)),
        "a program wrote it",
        "access.allow",
    ),
    "not let in any more": (way(entry(InboxState.IGNORED, "stop")), "not let in any more", ""),
    "stale": (way(entry(InboxState.REFUSED, InboxDecision.STALE)), "gateway.stale_after", "again"),
    "too many": (
        way(entry(InboxState.REFUSED, InboxDecision.TOO_MANY)),
        "more than limits.messages_per_minute allows",
        "sends it again",
    ),
    "queue full": (way(entry(InboxState.REFUSED)), "gateway.queue_limit", "sends it again"),
    "behind a turn": (
        way(WAITING, running=turn(), attempt=ASKING, ahead=2),
        "and 2 messages before it: its turn waits for the model (openai/one): request 2, sent 2026",
        "by /stop in the chat, or by holdfast sessions stop s1",
    ),
    "in a queue": (way(WAITING, ahead=1), "1 message before it", "they are answered"),
    "no gateway": (way(WAITING, daemon=None), "no gateway runs on this state folder", "runs again"),
    "stopping": (way(WAITING, daemon=RunningGateway(stopping=True)), "is stopping", "runs again"),
    "nothing in its way": (way(WAITING), "nothing is in its way", "the log says"),
    "a command": (way(entry(InboxState.COMMAND, "btw")), "being carried out", "begun anew"),
    "a command, no gateway": (
        way(entry(InboxState.COMMAND, "btw"), daemon=None),
        "it was not carried out yet: no gateway runs",
        "runs again",
    ),
    "held": (
        way(entry(InboxState.HELD), session=session()),
        "with session s1, which is suspended since 2026-11-18 10:43:00 (somebody stopped it)",
        "/resume in the chat, or holdfast sessions resume s1",
    ),
    "held by what is closed": (
        way(entry(InboxState.HELD), session=session(SessionState.CLOSED, SessionReason.NEW)),
        "which is closed now",
        "",
    ),
    "a question": (
        way(RUNNING, turn(), questions=(ASKED,), runs=(TOOL,), attempt=ASKING),
        "its turn asks whether pay may run, since 2026-11-18 10:40:00",
        f"/approve {approval_code(ASKED.id)} or /deny {approval_code(ASKED.id)}; at 2026-11-18 11:10:00 it counts",
    ),
    "a tool": (way(RUNNING, turn(), runs=(TOOL,)), "runs the tool pay since", "tool_timeout"),
    "the model": (way(RUNNING, turn(), attempt=ASKING), "request 2, sent", "model.timeouts"),
    "between requests": (
        way(RUNNING, turn(), attempt=FAILED),
        "between two requests to the model; request 2 ended: RateLimited: slow down",
        "a pause before it",
    ),
    "a dead process": (
        way(RUNNING, turn(), daemon=None),
        "under way when the gateway ended",
        "its sender is told",
    ),
    "failed": (
        way(DONE, turn(TurnState.FAILED, "the limit of 5 tokens a day is used up")),
        "its turn failed: the limit of 5 tokens a day is used up",
        "/retry in the chat runs it again",
    ),
    "stopped": (
        way(DONE, turn(TurnState.STOPPED, "stop"), session=session()),
        "its turn was stopped (somebody said /stop); session s1 is suspended since",
        "holdfast sessions resume s1",
    ),
    "crashed": (
        way(
            DONE, turn(TurnState.INTERRUPTED, "crash"), session=session(reason=SessionReason.CRASH)
        ),
        "its turn was interrupted (the process died in it)",
        "/resume in the chat",
    ),
    "stopped by /new": (
        way(
            DONE,
            turn(TurnState.STOPPED, "new"),
            session=session(SessionState.CLOSED, SessionReason.NEW),
        ),
        "(somebody said /new)",
        "",
    ),
    "cut off by a newer message": (
        way(
            DONE,
            turn(TurnState.INTERRUPTED, "new message"),
            session=session(SessionState.ACTIVE, None),
        ),
        "(a newer message took its place)",
        "/retry",
    ),
    "answered": (
        way(DONE, turn(TurnState.DONE), item(ItemState.SENT)),
        "it was answered, and the answer delivered 2026-11-18 10:41:00",
        "",
    ),
    "a pause": (
        way(DONE, turn(TurnState.DONE), item(ItemState.PENDING, not_before=NOW + MINUTE)),
        "its answer a_1 waits: the platform asked us to send nothing before 2026-11-18 10:41:00",
        "that moment comes",
    ),
    "a pause of the chat": (
        way(DONE, turn(TurnState.DONE), item(ItemState.PENDING), pauses={SOURCE: NOW + MINUTE}),
        "send nothing before 2026-11-18 10:41:00",
        "that moment comes",
    ),
    "a platform that is away": (
        way(
            DONE,
            turn(TurnState.DONE),
            item(ItemState.PENDING, tries=3),
            daemon=RunningGateway(platforms={"raven": "the token is refused"}),
        ),
        "waits to be sent, after 3 tries: raven is not connected (the token is refused)",
        "the platform works again",
    ),
    "a platform that is not there": (
        way(DONE, turn(TurnState.DONE), item(ItemState.PENDING), daemon=RunningGateway()),
        "raven is not configured, or its library is missing",
        "the platform works again",
    ),
    "an answer, no gateway": (
        way(DONE, turn(TurnState.DONE), item(ItemState.PENDING), daemon=None),
        "its answer a_1 waits to be sent: no gateway runs",
        "runs again",
    ),
    "on its way": (
        way(DONE, turn(TurnState.DONE), item(ItemState.ATTEMPTING)),
        "its answer a_1 is being sent",
        "the platform takes it",
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
        "it is not known",
        "once the platform works again",
    ),
    "unknown": (
        way(DONE, turn(TurnState.DONE), item(ItemState.UNKNOWN, error="timed out")),
        "it is not known whether its answer a_1 arrived: a try to send it was cut off (timed out)",
        "never repeated blindly",
    ),
    "unknown, no gateway": (
        way(DONE, turn(TurnState.DONE), item(ItemState.UNKNOWN), daemon=None),
        "it is not known",
        "once the gateway runs again",
    ),
    "dead": (
        way(DONE, turn(TurnState.DONE), item(ItemState.DEAD, error="chat not found")),
        "was given up: chat not found",
        "/retry",
    ),
    "deleted in time": (way(entry(InboxState.DONE)), "its author deleted it", ""),
    "an edit": (way(entry(InboxState.DONE, InboxDecision.EDIT)), "applied to what it changes", ""),
    "a command done": (way(entry(InboxState.DONE, "stop")), "it was carried out", ""),
    "a button": (
        way(entry(InboxState.DONE, InboxDecision.BUTTON)),
        "carried out, and answered",
        "",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_way_says_how_it_stands_and_what_would_make_it_go_on(name: str) -> None:
    found, now, then = CASES[name]
    stands = wait_status(found)
    assert now in stands.current
    assert then in stands.unblocked_by if then else stands.unblocked_by == ""


def told(found: MessageReport) -> list[str]:
    return [what for _, what in timeline(found)]


def test_a_message_that_steered_a_turn_says_so() -> None:
    late = msgspec.structs.replace(DONE, received_at=NOW + MINUTE, settled_at=NOW + 2 * MINUTE)
    assert told(way(late, turn(TurnState.DONE))) == [
        "received and stored as i1 (decision: member)",
        "given to turn t1, which was running, to steer it",
        "turn done, 2 requests to the model",
    ]


def test_messages_that_were_collected_say_so_and_a_turn_that_was_taken_up() -> None:
    found = told(way(DONE, turn(TurnState.FAILED, "no luck", resumed=1), together=3))
    assert found[1:] == [
        "turn t1 began, with 2 more of what waited",
        "it was taken up again once after a restart",
        "turn failed, 2 requests to the model: no luck",
    ]
    assert "3 times after a restart" in " ".join(told(way(DONE, turn(resumed=3))))


def correction(event: Inbound, at: int) -> InboxEntry:
    return InboxEntry(
        id="i2",
        source=SOURCE,
        event="e1",
        key=KEY,
        address=ADDRESS,
        state=InboxState.DONE,
        payload=msgspec.json.encode(event),
        received_at=at,
    )


def test_edits_and_deletions_are_told_with_what_they_changed() -> None:
    ann = Sender("1")
    edit = InboundEdit("e1", NOW, address=PLACE, sender=ann, message="m1", parts=(Text("x"),))
    other = InboundEdit("e2", NOW, address=PLACE, sender=ann, message="m2", parts=(Text("x"),))
    gone = InboundDelete("e3", NOW, address=PLACE, sender=ann, message="m1")
    rows = (correction(gone, NOW + MINUTE), correction(other, NOW + 2), correction(edit, NOW))
    assert told(way(DONE, turn(TurnState.DONE), corrections=rows)) == [
        "received and stored as i1 (decision: member)",
        "edited by its author while it waited",
        "turn t1 began",
        "deleted by its author; too late, its turn had begun",
        "turn done, 2 requests to the model",
    ]


def test_what_was_shown_is_told_when_it_was_settled() -> None:
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
    assert "notice given up: no cause is known" in shown
    assert [each for each in shown if each.startswith("upload")] == ["upload u_1 written"]


def test_what_is_sent_waits_for_nothing() -> None:
    assert delivery_status(way(DONE), item(ItemState.SENT)) == WaitStatus("its answer a_1 is sent")
    assert platform_trouble(None, "raven") == "no gateway runs on this state folder"


# --- chats -------------------------------------------------------------------------------------


def test_a_chat_in_which_all_is_well_says_so() -> None:
    answered = way(DONE, turn(TurnState.DONE), item(ItemState.SENT))
    failed = way(DONE, turn(TurnState.FAILED, "no luck"))
    assert (
        chat_summary([])
        == chat_summary([answered, failed, *(way(entry(InboxState.IGNORED)),)])
        == ("nothing waits here")
    )
    waiting = way(WAITING)
    assert chat_summary([answered, waiting]) == "1 message not answered yet"
    late = way(DONE, turn(TurnState.DONE), item(ItemState.UNKNOWN))
    assert chat_summary([late, waiting, way(RUNNING, turn())]) == (
        "2 messages not answered yet; 1 answer not delivered yet"
    )
    assert chat_summary([late, late]) == "2 answers not delivered yet"


def test_of_what_was_never_received_is_told_what_is_known_of_its_platform() -> None:
    last = entry(InboxState.DONE)
    ignored = entry(InboxState.IGNORED, InboxDecision.NOT_ADDRESSED)
    assert list(not_found_lines("raven:7", UP, [last], [ignored])) == [
        "Nothing was received that is called raven:7: no chat, message, turn, answer or session.",
        "raven is connected.",
        "The last thing from raven came 2026-11-18 10:40:00, of raven:1001.",
        "Ignored there of late (what is ignored is forgotten after 7 days):",
        "  2026-11-18 10:40:00  raven:1001: not addressed",
    ]
    away = RunningGateway(platforms={"raven@work": "connecting"})
    assert list(not_found_lines("raven@work:7", away, [], []))[1:] == [
        "raven@work: raven@work is not connected (connecting).",
        "Nothing has come from raven@work yet.",
    ]
    assert len(list(not_found_lines("i_123", None, [], []))) == 1
    assert platform_of("raven:1") == "raven"


def test_what_was_shown_without_being_asked_for_is_told_in_one_line() -> None:
    assert unrequested_item_line(item(ItemState.SENT, kind="notice")) == (
        "notice n_1 for raven:1001: sent 2026-11-18 10:41:00"
    )
    assert (
        unrequested_item_line(item(ItemState.UNKNOWN, error="cut"))
        == "answer a_1 for raven:1001: unknown (cut)"
    )
