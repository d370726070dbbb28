"""Sans-IO: options of a request over HTTP, stored with its message.

A message with options is taken literally: the text is never a command, the message always waits for
a turn, and the earlier messages open the session.
"""

from collections.abc import Iterator

import msgspec

from agent.model.answer_options import AnswerOptions
from gateway.access.api_keys import KeyRole, Requester
from gateway.media.incoming import plan_attachments
from platforms.core.contract import File, Inbound, InboundMessage, Part
from sessions.conversation.events import PendingMessage
from sessions.records import Attachment, InboxEntry, Message, MessageRole, ToolCall


class EarlierMessage(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An earlier message of the conversation, as given by the client."""

    role: MessageRole
    text: str = ""
    files: tuple[File, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    interrupted: str | None = None


class RequestOptions(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Options for answering a message."""

    system: str = ""  # appended to the gateway's own prompt
    model: str = ""  # empty: the conversation's model
    max_output_tokens: int | None = None
    temperature: float | None = None
    effort: str | None = None
    before: tuple[EarlierMessage, ...] = ()
    rows: tuple[Message, ...] = ()  # history of the conversation from which this one branches
    after: str = ""  # the session to continue
    turn: str = ""  # of that session, to continue: it ended with calls whose results are here
    turn_attempts: int = 0  # model requests that this turn has sent
    once: bool = False  # the conversation consists of this request and ends with its answer
    plain: bool = False  # the model alone answers, without the agent's tools and prompt
    keyed: bool = False  # has an idempotency key, so the client may send it again
    digest: str = ""  # of the request; the same key must not be used for another one
    kept: bool = False  # the client may fetch the answer later by its id
    background: bool = False  # goes on without a client, also after a restart
    called: str = ""  # model name for the response
    answer: AnswerOptions = AnswerOptions()  # tools of the client, format and sampling
    tool_call_id: str = ""  # the message is the result of this call of a client's tool
    echo: bytes = b""  # fields of the request that the response repeats
    requester: Requester | None = None  # None: the key of the configuration

    @property
    def allows_tools(self) -> bool:
        """True unless the request is one of a guest."""
        return self.requester is None or self.requester.role is not KeyRole.GUEST

    @property
    def continues_call(self) -> bool:
        """True if the request brings the result of a call that its conversation waits for."""
        return bool(self.after and self.tool_call_id)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(RequestOptions).decode


def encode_options(options: RequestOptions) -> bytes:
    """Encode the options for storage."""
    return _encode(options)


def decode_options(encoded: bytes) -> RequestOptions:
    """Decode stored options."""
    return _decode(encoded)


def runs_in_background(encoded: bytes) -> bool:
    """Return True if stored options, possibly empty, say that no client has to stay."""
    return bool(encoded) and decode_options(encoded).background


def person_of(event: Inbound) -> str:
    """Return the person whose authority an event has: its sender, or the person of its API key."""
    if isinstance(event, InboundMessage) and event.wishes:
        return _person_of_request(event, decode_options(event.wishes))
    return f"{event.address.platform}:{event.sender.id}"


def _person_of_request(event: InboundMessage, options: RequestOptions) -> str:
    if options.requester:
        return options.requester.person
    return f"{event.address.platform}:{event.sender.id}"


def read_request(entry: InboxEntry, event: InboundMessage, origin: str) -> PendingMessage:
    """Return the pending message of a stored request with options."""
    options = decode_options(event.wishes)
    parts: list[Part] = [file for row in options.before for file in row.files]
    files = iter(plan_attachments(entry.id, (*parts, *event.parts)))
    before = (*options.rows, *(_to_message(row, files) for row in options.before))
    message = Message(MessageRole.USER, event.text, files=tuple(files))
    if options.tool_call_id:
        message = Message(MessageRole.TOOL, event.text, tool_call_id=options.tool_call_id)
    return PendingMessage(
        id=entry.id,
        address=entry.address,
        person=_person_of_request(event, options),
        message=message,
        origin=origin,
        prior_messages=before,
        request_options=encode_options(msgspec.structs.replace(options, before=(), rows=())),
        single_turn=options.once,
        continued_session=options.after,
        continued_turn=options.turn,
    )


def _to_message(row: EarlierMessage, files: Iterator[Attachment]) -> Message:
    attachments = tuple(next(files) for _ in row.files)
    return Message(
        row.role,
        row.text,
        tool_calls=row.tool_calls,
        tool_call_id=row.tool_call_id,
        files=attachments,
        interrupted=row.interrupted,
    )
