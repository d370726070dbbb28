from typing import Any

import msgspec
import pytest

from gateway.inbound.reader import InboxReader, read_event
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
from sessions.conversation.events import BusyPolicy
from sessions.records import Attachment, InboxEntry, InboxState

PLACE = Address("telegram", "-100")


def message(text: str = "hello", *, direct: bool = True, **fields: Any) -> InboundMessage:
    base = InboundMessage(
        "1", 0, address=PLACE, sender=Sender("7", "Ada"), parts=(Text(text),), direct=direct
    )
    return msgspec.structs.replace(base, **fields)


def entry(event: Inbound, key: str = "telegram:-100") -> InboxEntry:
    payload = msgspec.json.encode(event)
    return InboxEntry(
        id="i_1",
        source="s",
        event="1",
        key=key,
        address=PLACE,
        state=InboxState.WAITING,
        payload=payload,
        received_at=0,
    )


def test_a_message_in_a_dm_consists_of_its_text() -> None:
    pending = InboxReader(lambda: BusyPolicy.QUEUE).read_pending(entry(message()))
    assert pending.person == "telegram:7"
    assert (pending.message.content, pending.message.sender) == ("hello", None)
    assert pending.mode is BusyPolicy.QUEUE


def test_ids_of_replies_depend_only_on_the_place_and_id_of_the_message() -> None:
    def origin(**changes: Any) -> str:
        return (
            InboxReader(lambda: BusyPolicy.QUEUE)
            .read_pending(msgspec.structs.replace(entry(message()), **changes))
            .origin
        )

    here = origin(source="discord@:5", event="7")
    assert here == origin(source="discord@:5", event="7", id="i_other", received_at=9)
    others = [("discord@:5", "8"), ("discord@work:5", "7"), ("discord@:", "57"), ("slack@:5", "7")]
    names = {origin(source=source, event=event) for source, event in others}
    assert len({here, *names}) == 5


def test_in_a_shared_session_senders_have_name_and_id() -> None:
    reader = InboxReader(lambda: BusyPolicy.QUEUE)
    shared = reader.read_pending(entry(message(direct=False)))
    assert shared.message.sender == "Ada (7)"
    own = reader.read_pending(entry(message(direct=False), "telegram:-100:u=7"))
    assert own.message.sender is None


@pytest.mark.parametrize("direct", [False, True])
def test_a_message_knows_its_id_and_whether_its_chat_is_private(*, direct: bool) -> None:
    reader = InboxReader(lambda: BusyPolicy.QUEUE)
    read = reader.read_pending(entry(message(direct=direct, id="55")))
    assert (read.reply_to, read.direct) == ("55", direct)


def test_a_busy_mode_command_applies_to_its_message() -> None:
    reader = InboxReader(lambda: BusyPolicy.COLLECT)
    for text, mode, content in [
        ("/queue and then this", BusyPolicy.QUEUE, "and then this"),
        ("/steer no, left", BusyPolicy.STEER, "no, left"),
        ("plain", BusyPolicy.COLLECT, "plain"),
        ("/queue", BusyPolicy.COLLECT, "/queue"),
    ]:
        pending = reader.read_pending(entry(message(text)))
        assert (pending.mode, pending.message.content) == (mode, content)


def test_quotes_and_room_context_become_text_and_files_are_listed() -> None:
    event = message(
        "look",
        parts=(Text("look"), File("a.pdf", "application/pdf", ref="ref", size=7)),
        reply_to=Quote("Bob", "earlier"),
        context=(Quote("Eve", "before"),),
    )
    said = InboxReader(lambda: BusyPolicy.QUEUE).read_pending(entry(event)).message
    assert "Eve: before" in said.content
    assert "[In reply to Bob: earlier]" in said.content
    assert said.content.endswith("]\nlook")
    assert said.files == (
        Attachment(
            name="a.pdf", media_type="application/pdf", path="received/1/a.pdf", ref="ref", size=7
        ),
    )


def test_an_edit_replaces_only_text_and_files() -> None:
    reader = InboxReader(lambda: BusyPolicy.QUEUE)
    photo = File("b.png", "image/png", "r2")
    edit = InboundEdit(
        "e", 1, address=PLACE, sender=Sender("7"), message="1", parts=(Text("better"), photo)
    )
    old = message(parts=(Text("look"), File("a.png", "image/png", "r1")))
    changed = reader.apply_edit(entry(old), edit)
    assert reader.read_pending(changed).message.content == "better"
    assert [file.ref for file in reader.read_pending(changed).message.files] == ["r2"]
    again = read_event(changed)
    assert isinstance(again, InboundMessage)
    assert again.sender == Sender("7", "Ada")


def test_a_button_is_not_a_message_for_the_model() -> None:
    pressed = InboundAction("2", 0, address=PLACE, sender=Sender("7"), action="stop")
    assert InboxReader(lambda: BusyPolicy.QUEUE).read_pending(entry(pressed)).message.content == ""
