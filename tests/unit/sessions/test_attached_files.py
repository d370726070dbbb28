"""Attachments: as text, in history rows, and in the state machine."""

import msgspec
import pytest

from sessions.attached import (
    name_files,
    request_text,
    unfetched_files,
    with_fetch_results,
    with_known_transcripts,
)
from sessions.changes import SetRequest, StartTurn
from sessions.conversation.events import (
    BusyPolicy,
    CommandContext,
    ConversationState,
    LastTurn,
    MessageArrived,
    PendingMessage,
    RequestTranscribed,
    RunningTurn,
    SendNotice,
    StartWaiting,
    TurnEnded,
    UndoTurn,
)
from sessions.conversation.machine import step
from sessions.conversation.transition import StepContext, Transition
from sessions.records import Attachment, Message, TurnState
from sessions.values.address import Address

PHOTO = Attachment(name="photo.jpg", media_type="image/jpeg", path="received/a/photo.jpg")
VOICE = Attachment(name="v.ogg", media_type="audio/ogg", path="received/b/v.ogg", voice=True)
HEARD = msgspec.structs.replace(VOICE, fetched=True, heard="Buy milk")
THERE = Address("web", "a")
BY = CommandContext(address=THERE, person="web:owner", admin=True)
TURN = RunningTurn(
    id="t_now",
    session="s_now",
    address=THERE,
    person="web:owner",
    request="voice message",
    started_at=0,
)


def run(state: ConversationState, *events: object) -> Transition:
    count = iter(range(1000))
    result = Transition(state)
    for event in events:
        env = StepContext(1_000_000, lambda kind: f"{kind}_{next(count)}")
        result = step(result.state, event, env)  # type: ignore[arg-type]
    return result


def pending(name: str, message: Message, mode: BusyPolicy = BusyPolicy.QUEUE) -> PendingMessage:
    return PendingMessage(id=name, address=THERE, person="web:owner", message=message, mode=mode)


def of(kind: type, result: Transition) -> list[object]:
    return [each for each in (*result.changes, *result.effects) if isinstance(each, kind)]


@pytest.mark.parametrize(
    ("content", "files", "request_"),
    [
        pytest.param("look", (PHOTO, HEARD), "look", id="text first"),
        pytest.param(" \n", (PHOTO, HEARD), "Buy milk", id="then transcripts"),
        pytest.param("", (PHOTO, VOICE), "photo.jpg, voice message", id="then file names"),
        pytest.param(
            "", (PHOTO,) * 5, "photo.jpg, photo.jpg, photo.jpg and 2 more", id="many files"
        ),
        pytest.param("", (), "", id="nothing"),
    ],
)
def test_a_request_text_is_text_transcript_or_file_names(
    content: str, files: tuple[Attachment, ...], request_: str
) -> None:
    assert request_text(Message("user", content, files=files)) == request_


FRAME = "[In reply to Eve: hi]\n"
OLD_ROOM = "[Earlier in this room, from people who may not be known:\n  Eve: hi\n]\n"


@pytest.mark.parametrize(
    ("message", "request_"),
    [
        (Message("user", f"{FRAME}look", words="look"), "look"),
        (Message("user", FRAME, files=(HEARD,), words=""), "Buy milk"),
        (Message("user", FRAME, files=(PHOTO,), words=""), "photo.jpg"),
        (Message("user", FRAME, words=""), "a quoted message"),
        (Message("user", f"{OLD_ROOM}{FRAME}look"), "look"),
        (Message("user", f"{OLD_ROOM}look\n]\nlook"), "look\n]\nlook"),
        (Message("user", "[In reply to Eve: hi\nthere]\nlook"), "look"),
        (Message("user", OLD_ROOM[:70]), "a quoted message"),
        (Message("user", "[1, 2] is a list"), "[1, 2] is a list"),
    ],
)
def test_a_request_text_has_no_words_of_others(message: Message, request_: str) -> None:
    assert request_text(message) == request_


def test_collected_messages_keep_the_words_of_their_authors() -> None:
    framed = Message("user", f"{FRAME}one", words="one")
    batch = [
        pending("a", framed, BusyPolicy.COLLECT),
        pending("b", Message("user", "two"), BusyPolicy.COLLECT),
    ]
    state = ConversationState(key="k", session="s", waiting=tuple(batch))
    (start,) = of(StartTurn, run(state, StartWaiting()))
    assert isinstance(start, StartTurn)
    assert start.messages == (Message("user", f"{FRAME}one\n\ntwo", words="one\n\ntwo"),)
    assert start.request == "one\n\ntwo"


def test_only_files_without_a_result_are_unfetched() -> None:
    tried = msgspec.structs.replace(PHOTO, path="received/c/x", trouble="gone")
    rows = (
        Message("user", "a", files=(PHOTO, HEARD)),
        Message("assistant", "b"),
        Message("user", "c", files=(tried, PHOTO)),
    )
    assert unfetched_files(rows, "telegram:1") == (PHOTO,)
    assert unfetched_files(rows[1:2], "telegram:1") == ()


@pytest.mark.parametrize(
    ("sender", "person", "own"),
    [
        (None, "telegram:1", True),
        ("Ann (1)", "telegram:1", True),
        ("(1)", "telegram:1", True),
        ("Bob (21)", "telegram:1", False),
        ("Ann 1 (2)", "telegram:1", False),
        ("Ann (T1/U3)", "slack:T1/U3", True),
        ("Ann (T1/U3)", "slack:T2/U3", False),
    ],
)
def test_only_files_of_the_person_are_fetched(sender: str | None, person: str, own: bool) -> None:
    row = Message("user", "a", files=(PHOTO,), sender=sender)
    assert unfetched_files((row,), person) == ((PHOTO,) if own else ())


def test_download_results_are_put_into_their_row() -> None:
    row = Message("user", "a", files=(PHOTO, VOICE))
    assert with_fetch_results(row, {HEARD.path: HEARD}).files == (PHOTO, HEARD)
    assert with_fetch_results(row, {"other": HEARD}) is row


def test_known_transcripts_are_kept_for_a_repeated_request() -> None:
    (again,) = with_known_transcripts(
        (Message("user", "", files=(VOICE, PHOTO)),), [Message("user", "", files=(HEARD,))]
    )
    assert again.files == (msgspec.structs.replace(VOICE, heard="Buy milk"), PHOTO)
    assert unfetched_files((again,), "telegram:1") == again.files


def test_file_names_are_shortened_to_a_few() -> None:
    assert name_files((PHOTO, VOICE)) == "photo.jpg, voice message"


# --- in the state machine ------------------------------------------------------------------


def test_a_turn_about_a_file_has_its_name_as_request() -> None:
    message = Message("user", "", files=(PHOTO,))
    (start,) = of(
        StartTurn, run(ConversationState(key="web:a"), MessageArrived(pending("a", message)))
    )
    assert isinstance(start, StartTurn)
    assert (start.request, start.messages) == ("photo.jpg", (message,))


def test_collected_messages_join_their_files() -> None:
    state = ConversationState(key="web:a", session="s_now", turn=TURN)
    first = pending("a", Message("user", "these", files=(PHOTO,)), BusyPolicy.COLLECT)
    second = pending("b", Message("user", "", files=(VOICE,)), BusyPolicy.COLLECT)
    third = pending("c", Message("user", "and this"), BusyPolicy.COLLECT)
    ended = TurnEnded("t_now", TurnState.DONE)
    result = run(state, MessageArrived(first), MessageArrived(second), MessageArrived(third), ended)
    (start,) = of(StartTurn, result)
    assert isinstance(start, StartTurn)
    assert start.messages == (Message("user", "these\n\nand this", files=(PHOTO, VOICE)),)


def test_an_undone_message_without_text_is_named_by_its_files() -> None:
    last = LastTurn(
        id="t_1",
        session="s_now",
        address=THERE,
        inbox=("a",),
        messages=(Message("user", "", files=(PHOTO,)),),
    )
    (say,) = of(
        SendNotice, run(ConversationState(key="web:a", session="s_now"), UndoTurn(BY, last))
    )
    assert isinstance(say, SendNotice)
    assert say.fields == {"request": "photo.jpg"}


def test_notices_use_the_transcript_of_a_spoken_request() -> None:
    state = ConversationState(key="web:a", session="s_now", turn=TURN)
    waits = MessageArrived(pending("b", Message("user", "more")))
    result = run(state, waits, RequestTranscribed("t_now", "Buy milk"))
    assert result.changes == [SetRequest("t_now", "s_now", "voice message", "Buy milk")]
    assert result.state.turn
    assert result.state.turn.request == "Buy milk"
    (say,) = of(SendNotice, result)
    assert isinstance(say, SendNotice)
    assert (say.notice, say.fields["request"]) == ("N15", "Buy milk")


@pytest.mark.parametrize(
    "turn",
    [
        pytest.param(None, id="no turn"),
        pytest.param(msgspec.structs.replace(TURN, cancelling=True), id="cancelling turn"),
        pytest.param(msgspec.structs.replace(TURN, id="t_other"), id="another turn"),
    ],
)
def test_a_transcript_of_an_ended_turn_changes_nothing(turn: RunningTurn | None) -> None:
    state = ConversationState(key="web:a", session="s_now", turn=turn)
    result = run(state, RequestTranscribed("t_now", "Buy milk"))
    assert (result.changes, result.state) == ([], state)
