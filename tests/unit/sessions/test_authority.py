"""Authority in a shared conversation: a turn holds the words of one person and runs as that person."""

import itertools

import pytest

from sessions.changes import SetInbox
from sessions.conversation.events import (
    AccessLost,
    BusyPolicy,
    CancelTask,
    CommandContext,
    ConversationState,
    DeliverSteers,
    LastTurn,
    MessageArrived,
    PendingMessage,
    ResumableSession,
    ResumeSession,
    RetryTurn,
    RunningTurn,
    SendNotice,
    StartTask,
    SteersRequested,
    StopTurn,
    TurnCrashed,
    TurnEnded,
    UndoTurn,
)
from sessions.conversation.machine import step
from sessions.conversation.transition import StepContext, Transition
from sessions.records import InboxState, Message, SessionReason, TurnState
from sessions.values.address import Address
from sessions.values.notices import NoticeId
from tests.unit.sessions.test_machine import WORK, after, notices, of_kind

THREAD = Address("slack", "C1", "", "7")
OWNER, ANN, BOB = "slack:T1/OWNER", "slack:T1/ANN", "slack:T1/BOB"
PEOPLE = (OWNER, ANN, BOB)
counter = itertools.count()


def command(person: str) -> CommandContext:
    return CommandContext(
        address=THREAD, person=person, admin=person == OWNER, origin=f"o.{next(counter)}"
    )


def message(name: str, person: str, mode: BusyPolicy = BusyPolicy.QUEUE) -> PendingMessage:
    return PendingMessage(
        id=name,
        address=THREAD,
        person=person,
        message=Message("user", name, sender=person),
        mode=mode,
        origin=f"o.{name}",
    )


def turn_of(person: str) -> RunningTurn:
    return RunningTurn(
        id="t_1", session="s_1", address=THREAD, person=person, request="go", started_at=0
    )


def working(person: str, *waiting: PendingMessage) -> ConversationState:
    """A conversation in which a person's turn is running."""
    return ConversationState(
        key="slack:C1:t=7", session="s_1", turn=turn_of(person), waiting=waiting, person=person
    )


def rested(last_requester: str) -> ConversationState:
    """A conversation without a running turn."""
    return ConversationState(key="slack:C1:t=7", session="s_1", person=last_requester)


def last_turn(person: str, *, repeatable: bool = True) -> LastTurn:
    return LastTurn(
        id="t_1",
        session="s_1",
        address=THREAD,
        inbox=("a",),
        messages=(Message("user", "go", sender=person),),
        person=person,
        repeatable=repeatable,
    )


def started(result: Transition) -> list[tuple[str, tuple[str, ...]]]:
    """Return the requester of each started turn, and the senders of its messages."""
    return [
        (start.turn.person, tuple(str(row.sender) for row in rows))
        for start, rows in zip(
            of_kind(StartTask, result),
            (change.messages for change in result.changes if hasattr(change, "messages")),
            strict=False,
        )
    ]


EVERY_PAIR = [
    pytest.param(person, owner, id=f"{person[-3:]} in the turn of {owner[-3:]}".lower())
    for person in PEOPLE
    for owner in PEOPLE
]


@pytest.mark.parametrize(("person", "owner"), EVERY_PAIR)
def test_only_the_requester_steers_a_turn(person: str, owner: str) -> None:
    state = working(owner, message("m", person, BusyPolicy.STEER))
    result = after(state, SteersRequested("t_1"))
    (delivered,) = of_kind(DeliverSteers, result)
    if person == owner:
        assert [row.content for row in delivered.messages] == ["m"]
        assert result.state.waiting == ()
        return
    assert (delivered.messages, result.changes) == ((), [])
    assert [p.id for p in result.state.waiting] == ["m"]
    ended = after(result.state, TurnEnded("t_1", TurnState.DONE))
    assert started(ended) == [(person, (person,))]


@pytest.mark.parametrize(("person", "owner"), EVERY_PAIR)
def test_a_message_ends_only_a_turn_of_its_sender(person: str, owner: str) -> None:
    state = working(owner, message("a", ANN))
    result = after(state, MessageArrived(message("m", person, BusyPolicy.INTERRUPT)))
    if person == owner:
        assert [cancel.turn.id for cancel in of_kind(CancelTask, result)] == ["t_1"]
        assert [p.id for p in result.state.waiting] == ["m", "a"]
        return
    assert of_kind(CancelTask, result) == []
    assert notices(result) == [NoticeId.QUEUED]
    assert [p.id for p in result.state.waiting] == ["a", "m"]
    (turn,) = started(after(result.state, TurnEnded("t_1", TurnState.DONE)))
    assert turn == (ANN, (ANN,))


@pytest.mark.parametrize("mode", [BusyPolicy.QUEUE, BusyPolicy.STEER, BusyPolicy.COLLECT])
@pytest.mark.parametrize(("person", "owner"), EVERY_PAIR)
def test_a_queued_message_gets_a_turn_of_its_sender(
    person: str, owner: str, mode: BusyPolicy
) -> None:
    result = after(working(owner), MessageArrived(message("m", person, mode)))
    assert notices(result) == [NoticeId.QUEUED]
    result = after(result.state, TurnEnded("t_1", TurnState.DONE))
    assert started(result) == [(person, (person,))]


@pytest.mark.parametrize(("person", "owner"), EVERY_PAIR)
def test_collected_messages_are_joined_only_with_those_of_the_same_person(
    person: str, owner: str
) -> None:
    waiting = (
        message("one", owner, BusyPolicy.COLLECT),
        message("two", person, BusyPolicy.COLLECT),
        message("three", owner, BusyPolicy.COLLECT),
    )
    state = working(owner, *waiting)
    turns: list[tuple[str, str]] = []
    while state.turn:
        result = after(state, TurnEnded(state.turn.id, TurnState.DONE))
        state = result.state
        turns += [(start.turn.person, start.turn.request) for start in of_kind(StartTask, result)]
    if person == owner:
        assert turns == [(owner, "one\n\ntwo\n\nthree")]
    else:
        assert turns == [(owner, "one"), (person, "two"), (owner, "three")]


@pytest.mark.parametrize(("person", "owner"), EVERY_PAIR)
@pytest.mark.parametrize("last_requester", PEOPLE)
def test_a_repeated_turn_keeps_its_author_and_needs_the_author_or_an_admin(
    person: str, owner: str, last_requester: str
) -> None:
    asked = RetryTurn(command(person), last_turn(owner))
    result = after(rested(last_requester), asked)
    if person == OWNER or person == owner == last_requester:
        assert started(result) == [(owner, (owner,))]
    else:
        assert notices(result) == [NoticeId.NOT_YOURS]
        assert (result.changes, result.state.turn) == ([], None)


@pytest.mark.parametrize("failed", [True, False], ids=["a failed turn", "an interrupted turn"])
@pytest.mark.parametrize(("person", "owner"), EVERY_PAIR)
@pytest.mark.parametrize("last_requester", PEOPLE)
def test_a_continued_turn_keeps_its_author_and_needs_the_author_or_an_admin(
    person: str, owner: str, last_requester: str, failed: bool
) -> None:
    state = rested(last_requester)
    if not failed:
        earlier = ResumableSession("s_1", SessionReason.CRASH)
        state = ConversationState(key=state.key, resumable=earlier, person=last_requester)
    asked = ResumeSession(
        context=command(person),
        session="s_1",
        resume_turn=True,
        turn="t_1" if failed else "",
        last=last_turn(owner),
    )
    result = after(state, asked)
    if person == OWNER or person == owner == last_requester:
        assert [start.turn.person for start in of_kind(StartTask, result)] == [owner]
    else:
        assert notices(result) == [NoticeId.NOT_YOURS]
        assert (result.changes, result.state.turn) == ([], None)


@pytest.mark.parametrize(("person", "owner"), EVERY_PAIR)
@pytest.mark.parametrize("last_requester", PEOPLE)
def test_a_resumed_session_answers_each_held_message_as_its_sender(
    person: str, owner: str, last_requester: str
) -> None:
    earlier = ResumableSession("s_1", SessionReason.STOP, held=1)
    state = ConversationState(key="slack:C1:t=7", resumable=earlier, person=last_requester)
    held = (message("m", owner),)
    result = after(state, ResumeSession(context=command(person), session="s_1", held=held))
    if person in {OWNER, last_requester}:
        assert started(result) == [(owner, (owner,))]
    else:
        assert notices(result) == [NoticeId.NOT_YOURS]
        assert result.changes == []


@pytest.mark.parametrize(("person", "owner"), EVERY_PAIR)
@pytest.mark.parametrize("last_requester", PEOPLE)
def test_only_the_author_and_admins_undo_a_turn(
    person: str, owner: str, last_requester: str
) -> None:
    result = after(rested(last_requester), UndoTurn(command(person), last_turn(owner)))
    allowed = person == OWNER or person == owner == last_requester
    assert notices(result) == [NoticeId.UNDONE if allowed else NoticeId.NOT_YOURS]
    assert bool(result.changes) == allowed


@pytest.mark.parametrize(
    ("event", "notice"),
    [
        pytest.param(
            RetryTurn(command(OWNER), last_turn(OWNER, repeatable=False)),
            NoticeId.NOTHING_TO_RETRY,
            id="retry",
        ),
        pytest.param(
            ResumeSession(
                context=command(OWNER),
                session="s_1",
                resume_turn=True,
                turn="t_1",
                last=last_turn(OWNER, repeatable=False),
            ),
            NoticeId.NOTHING_TO_RESUME,
            id="continue",
        ),
    ],
)
def test_a_turn_with_words_of_several_people_never_runs_again(
    event: RetryTurn | ResumeSession, notice: NoticeId
) -> None:
    result = after(rested(OWNER), event)
    assert notices(result) == [notice]
    assert result.changes == []


@pytest.mark.parametrize(("person", "owner"), EVERY_PAIR)
@pytest.mark.parametrize("how", ["crash", "stop"])
def test_the_interrupted_request_is_repeated_only_to_a_turn_of_its_author(
    person: str, owner: str, how: str
) -> None:
    if how == "crash":
        crash = TurnCrashed(turn=turn_of(owner), changes=(), interruption=WORK, resume=False)
        state = after(rested(owner), crash).state
    else:
        state = after(working(owner), StopTurn(command(OWNER))).state
        state = after(state, TurnEnded("t_1", TurnState.STOPPED)).state
    (start,) = of_kind(StartTask, after(state, MessageArrived(message("next", person))))
    told = how == "crash" and person == owner
    assert start.interrupted_request == ("go" if told else "")


@pytest.mark.parametrize("owner", PEOPLE)
def test_a_turn_resumed_after_a_crash_keeps_its_author(owner: str) -> None:
    crash = TurnCrashed(turn=turn_of(owner), changes=(), interruption=WORK, resume=True)
    result = step(rested(BOB), crash, StepContext(1, lambda kind: kind))
    assert [start.turn.person for start in of_kind(StartTask, result)] == [owner]
    assert of_kind(SendNotice, result) == []


@pytest.mark.parametrize(("person", "owner"), EVERY_PAIR)
def test_lost_access_ends_the_turn_and_the_queued_messages_of_that_person(
    person: str, owner: str
) -> None:
    state = working(owner, message("one", ANN), message("two", BOB))
    held = (message("kept", person),)
    result = after(state, AccessLost(frozenset({person}), held))
    dropped = [name for name, sender in (("one", ANN), ("two", BOB)) if sender == person]
    assert of_kind(SetInbox, result)[0].ids == (*dropped, "kept")
    assert of_kind(SetInbox, result)[0].state is InboxState.IGNORED
    left = [p.id for p in result.state.waiting]
    assert left == [name for name in ("one", "two") if name not in dropped]
    (say,) = [say for say in of_kind(SendNotice, result) if say.notice == NoticeId.ACCESS_LOST]
    assert say.fields == {"request": "go" if person == owner else "", "n": len(dropped) + 1}
    assert bool(of_kind(CancelTask, result)) == (person == owner)
    assert result.state.session == "s_1"
    ended = after(result.state, TurnEnded("t_1", TurnState.STOPPED))
    assert started(ended)[0][0] == (BOB if person == ANN else ANN)


def test_lost_access_of_a_person_without_work_changes_nothing() -> None:
    state = working(OWNER, message("one", ANN))
    result = after(state, AccessLost(frozenset({BOB})))
    assert (result.changes, result.effects, result.state) == ([], [], state)
