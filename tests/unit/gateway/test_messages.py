import msgspec

from gateway.inbound.reader import Reader, read_event
from platforms.core.contract import (
    Address,
    File,
    Inbound,
    InboundAction,
    InboundEdit,
    InboundMessage,
    Quote,
    Sender,
    Text,
)
from sessions.conversation.events import Busy
from sessions.records import Attachment, InboxEntry, InboxState

PLACE = Address("telegram", "-100")


def message(text: str = "hello", *, direct: bool = True, **fields: object) -> InboundMessage:
    base = InboundMessage("1", 0, PLACE, Sender("7", "Ada"), (Text(text),), direct=direct)
    return msgspec.structs.replace(base, **fields)


def entry(event: Inbound, key: str = "telegram:-100") -> InboxEntry:
    payload = msgspec.json.encode(event)
    return InboxEntry("i_1", "s", "1", key, "there", InboxState.WAITING, payload, 0)


def test_a_message_in_a_dm_is_its_words() -> None:
    pending = Reader(lambda: Busy.QUEUE).pending(entry(message()))
    assert pending.person == "telegram:7"
    assert (pending.message.content, pending.message.sender) == ("hello", None)
    assert pending.mode is Busy.QUEUE


def test_all_that_answers_a_message_is_named_after_where_and_what_it_is_and_nothing_else() -> None:
    def origin(**changes: object) -> str:
        return (
            Reader(lambda: Busy.QUEUE)
            .pending(msgspec.structs.replace(entry(message()), **changes))
            .origin
        )

    here = origin(source="discord@:5", event="7")
    assert here == origin(source="discord@:5", event="7", id="i_other", received_at=9)
    others = [("discord@:5", "8"), ("discord@work:5", "7"), ("discord@:", "57"), ("slack@:5", "7")]
    names = {origin(source=source, event=event) for source, event in others}
    assert len({here, *names}) == 5


def test_in_a_shared_session_everybody_is_named_with_name_and_id() -> None:
    reader = Reader(lambda: Busy.QUEUE)
    shared = reader.pending(entry(message(direct=False)))
    assert shared.message.sender == "Ada (7)"
    own = reader.pending(entry(message(direct=False), "telegram:-100:u=7"))
    assert own.message.sender is None


def test_only_in_a_room_an_answer_is_a_reply() -> None:
    reader = Reader(lambda: Busy.QUEUE)
    assert reader.pending(entry(message(direct=False, id="55"))).reply_to == "55"
    assert reader.pending(entry(message(direct=True, id="55"))).reply_to == ""


def test_words_in_front_say_how_one_message_is_handled() -> None:
    reader = Reader(lambda: Busy.COLLECT)
    for text, mode, content in [
        ("/queue and then this", Busy.QUEUE, "and then this"),
        ("/steer no, left", Busy.STEER, "no, left"),
        ("plain", Busy.COLLECT, "plain"),
        ("/queue", Busy.COLLECT, "/queue"),
    ]:
        pending = reader.pending(entry(message(text)))
        assert (pending.mode, pending.message.content) == (mode, content)


def test_quotes_and_rooms_are_words_and_files_stand_beside_them() -> None:
    event = message(
        "look",
        parts=(Text("look"), File("a.pdf", "application/pdf", "ref", 7)),
        reply_to=Quote("Bob", "earlier"),
        context=(Quote("Eve", "before"),),
    )
    said = Reader(lambda: Busy.QUEUE).pending(entry(event)).message
    assert "Eve: before" in said.content
    assert "[In reply to Bob: earlier]" in said.content
    assert said.content.endswith("]\nlook")
    assert said.files == (
        Attachment("a.pdf", "application/pdf", "received/1/a.pdf", ref="ref", size=7),
    )


def test_an_edit_replaces_words_and_files_and_nothing_else() -> None:
    reader = Reader(lambda: Busy.QUEUE)
    photo = File("b.png", "image/png", "r2")
    edit = InboundEdit("e", 1, PLACE, Sender("7"), "1", (Text("better"), photo))
    old = message(parts=(Text("look"), File("a.png", "image/png", "r1")))
    changed = reader.rewritten(entry(old), edit)
    assert reader.pending(changed).message.content == "better"
    assert [file.ref for file in reader.pending(changed).message.files] == ["r2"]
    again = read_event(changed)
    assert isinstance(again, InboundMessage)
    assert again.sender == Sender("7", "Ada")


def test_a_button_is_nothing_for_a_model() -> None:
    pressed = InboundAction("2", 0, PLACE, Sender("7"), "stop")
    assert Reader(lambda: Busy.QUEUE).pending(entry(pressed)).message.content == ""
