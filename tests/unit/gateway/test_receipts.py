"""The reactions on people's messages, without a platform."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.inbound.reactions import ACCEPTED_EMOJI, DONE_EMOJI, NOT_DONE_EMOJI, MessageReactions
from platforms.core.contract import Address
from sessions.changes import Change, EndTurn, PutItem, SetInbox, StartTurn
from sessions.records import InboxEntry, InboxState, ItemKind, ItemState, OutboxItem, TurnState

HERE = Address("memory", "7", thread="3")


class Board:
    """The reaction shown on each message."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, str]] = []

    def react(self, address: Address, message: str, sign: str) -> None:
        assert address == HERE
        self.shown.append((message, sign))


def entry(name: str, state: InboxState = InboxState.WAITING, turn: str | None = None) -> InboxEntry:
    """Return a stored message; the platform's id differs from the row's."""
    return InboxEntry(
        id=f"i_{name}",
        source="memory@:7",
        event=name,
        key="k",
        address=HERE,
        state=state,
        payload=b"{}",
        received_at=0,
        turn_id=turn,
    )


def start(turn: str, *names: str) -> StartTurn:
    inbox = tuple(f"i_{name}" for name in names)
    return StartTurn(
        id=turn,
        session_id="s",
        key="k",
        address=HERE,
        inbox=inbox,
        messages=(),
        request="",
        at=0,
    )


def end(turn: str, state: TurnState = TurnState.DONE) -> EndTurn:
    return EndTurn(turn, state, 0)


def moved(name: str, state: InboxState, turn: str | None = None) -> SetInbox:
    return SetInbox(ids=(f"i_{name}",), state=state, at=0, turn_id=turn)


def played(*changes: Change, names: str = "a") -> list[tuple[str, str]]:
    """Return the reactions caused by changes after these messages were accepted."""
    board = Board()
    receipts = MessageReactions(board.react)
    for name in names:
        receipts.on_accepted(entry(name))
    for change in changes:
        receipts.on_committed([change])
    return board.shown


@pytest.mark.parametrize(
    ("changes", "signs"),
    [
        pytest.param((), [ACCEPTED_EMOJI], id="waits"),
        pytest.param((start("t", "a"),), [ACCEPTED_EMOJI], id="runs"),
        pytest.param((start("t", "a"), end("t")), [ACCEPTED_EMOJI, DONE_EMOJI], id="done"),
        *(
            pytest.param(
                (start("t", "a"), end("t", state)), [ACCEPTED_EMOJI, NOT_DONE_EMOJI], id=state.value
            )
            for state in (TurnState.FAILED, TurnState.STOPPED, TurnState.INTERRUPTED)
        ),
        pytest.param(
            (moved("a", InboxState.REFUSED),), [ACCEPTED_EMOJI, NOT_DONE_EMOJI], id="queue full"
        ),
        pytest.param(
            (moved("a", InboxState.HELD), start("t", "a"), end("t")),
            [ACCEPTED_EMOJI, DONE_EMOJI],
            id="held and brought back",
        ),
        pytest.param(
            (moved("a", InboxState.RUNNING, "t"), end("t")),
            [ACCEPTED_EMOJI, DONE_EMOJI],
            id="steers a turn",
        ),
        pytest.param(
            (moved("a", InboxState.DONE), start("t", "a"), end("t")),
            [ACCEPTED_EMOJI],
            id="taken back",
        ),
        pytest.param(
            (start("t", "a"), start("t"), end("t")),
            [ACCEPTED_EMOJI, DONE_EMOJI],
            id="taken up again",
        ),
        pytest.param(
            (start("t", "a"), end("t", TurnState.FAILED), start("u", "a"), end("u")),
            [ACCEPTED_EMOJI, NOT_DONE_EMOJI],
            id="retried: two signs are enough",
        ),
        pytest.param((start("t"), end("u")), [ACCEPTED_EMOJI], id="the turn of another"),
    ],
)
def test_reactions_show_the_progress_of_a_message(
    changes: tuple[Change, ...], signs: list[str]
) -> None:
    assert played(*changes) == [("a", sign) for sign in signs]


def test_all_messages_of_a_turn_get_reactions() -> None:
    shown = played(start("t", "a", "b"), end("t"), names="abc")
    assert shown[3:] == [("a", DONE_EMOJI), ("b", DONE_EMOJI)]


def test_other_changes_and_unknown_messages_are_ignored() -> None:
    item = OutboxItem(
        id="a_1",
        address=HERE,
        kind=ItemKind.ANSWER,
        state=ItemState.PENDING,
        body=b"",
        created_at=0,
    )
    assert played(PutItem(item), start("t", "x"), end("t"), names="") == []


@pytest.mark.parametrize("state", list(InboxState))
def test_after_a_restart_open_messages_get_only_the_last_reaction(state: InboxState) -> None:
    board = Board()
    receipts = MessageReactions(board.react)
    for _ in range(2):
        receipts.on_recovered(entry("a", state, "t"))
    if state is not InboxState.RUNNING:
        receipts.on_committed([start("t", "a")])
    receipts.on_committed([end("t")])
    open_ = state in {InboxState.WAITING, InboxState.HELD, InboxState.RUNNING}
    assert board.shown == ([("a", DONE_EMOJI)] if open_ else [])


def test_without_reactions_nothing_is_remembered() -> None:
    receipts = MessageReactions(None)
    receipts.on_accepted(entry("a"))
    receipts.on_recovered(entry("b"))
    receipts.on_committed([start("t", "a"), end("t")])
    assert not receipts._open_messages
    assert not receipts._messages_by_turn


def test_only_a_limited_number_of_messages_is_remembered() -> None:
    board = Board()
    receipts = MessageReactions(board.react)
    for number in range(5_000):
        receipts.on_accepted(entry(str(number)))
    receipts.on_committed([start("t", "0", "4999"), end("t")])
    assert board.shown[5_000:] == [("4999", DONE_EMOJI)]


_names = st.sampled_from("abc")
_turns = st.sampled_from("tu")
_changes = st.one_of(
    st.builds(start, _turns, _names),
    st.builds(end, _turns, st.sampled_from(TurnState)),
    st.builds(moved, _names, st.sampled_from(InboxState), st.none() | _turns),
)


@settings(deadline=None)
@given(st.lists(_changes, max_size=30))
def test_no_message_gets_more_than_two_reactions(changes: list[Change]) -> None:
    shown = played(*changes, names="abc")
    for name in "abc":
        signs = [sign for message, sign in shown if message == name]
        assert signs[0] == ACCEPTED_EMOJI
        assert len(signs) <= 2
        assert ACCEPTED_EMOJI not in signs[1:]
