"""Which dialect answers a request."""

from tests.fakes.dialects import anthropic, chat, responses
from tests.fakes.dialects.steps import Dialect, ProtocolName, Usage
from tests.fakes.dialects.whole import WholeBody


def protocol_of(path: str) -> ProtocolName | None:
    """The protocol that is spoken at an address; None where nothing answers."""
    route = path.partition("?")[0]
    if route.endswith("/chat/completions"):
        return "chat"
    if route.endswith("/messages"):
        return "anthropic"
    return "responses" if route.endswith("/responses") else None


def dialect_for(protocol: ProtocolName, expected: Usage, *, stream: bool = True) -> Dialect:
    """A new writer for one response; `expected` is what it will turn out to cost."""
    match protocol:
        case "chat":
            if stream:
                return chat.ChatStream()
            return WholeBody(
                chat.REQUEST_ID, chat.whole, chat.fault, "finish_reason", in_order=False
            )
        case "anthropic":
            if stream:
                return anthropic.MessagesStream(expected)
            return WholeBody(anthropic.REQUEST_ID, anthropic.whole, anthropic.fault, "stop_reason")
        case "responses":
            if stream:
                return responses.ResponsesStream()
            return WholeBody(chat.REQUEST_ID, responses.whole, chat.fault, "status")


def refusal_in(protocol: ProtocolName, code: int, message: str) -> bytes:
    """The body of an error status."""
    return anthropic.refusal(code, message) if protocol == "anthropic" else chat.refusal(message)
