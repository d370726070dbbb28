"""The person of a stored event: its sender, or the person of its API key."""

import msgspec
import pytest

from gateway.access.api_keys import Requester
from gateway.inbound.reader import InboxReader
from gateway.inbound.request_options import RequestOptions, encode_options, person_of
from platforms.core.contract import Address, Inbound, InboundAction, InboundMessage, Sender, Text
from sessions.conversation.events import BusyPolicy
from sessions.records import InboxEntry, InboxState

ANN = RequestOptions(requester=Requester(key="ann.1", name="ann", person="telegram:1001"))


def message(platform: str, sender: str, options: RequestOptions | None = None) -> InboundMessage:
    return InboundMessage(
        id="1",
        at=0,
        address=Address(platform, "c"),
        sender=Sender(id=sender),
        parts=(Text("hello"),),
        wishes=encode_options(options) if options else b"",
    )


@pytest.mark.parametrize(
    ("event", "person"),
    [
        pytest.param(message("telegram", "1001"), "telegram:1001", id="a message"),
        pytest.param(
            InboundAction("1", 0, Address("slack", "c"), Sender(id="U1"), "stop"),
            "slack:U1",
            id="a button",
        ),
        pytest.param(
            message("api", "key", RequestOptions(once=True)), "api:key", id="the configured key"
        ),
        pytest.param(message("api", "ann.1", ANN), "telegram:1001", id="a key of a person"),
    ],
)
def test_person_of_an_event(event: Inbound, person: str) -> None:
    assert person_of(event) == person


@pytest.mark.parametrize(
    ("event", "person"),
    [
        pytest.param(message("telegram", "1001"), "telegram:1001", id="a message"),
        pytest.param(message("api", "ann.1", ANN), "telegram:1001", id="a key of a person"),
    ],
)
def test_pending_message_has_the_person_of_its_event(event: InboundMessage, person: str) -> None:
    entry = InboxEntry(
        id="i_1",
        source="s",
        event="1",
        key="api:c",
        address=event.address,
        state=InboxState.WAITING,
        payload=msgspec.json.encode(event),
        received_at=0,
    )
    assert InboxReader(lambda: BusyPolicy.QUEUE).read_pending(entry).person == person
