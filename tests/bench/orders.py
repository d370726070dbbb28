"""What the benchmark asks of its chat service, and what it hears back: one line of JSON each."""

import msgspec

PRIVATE, GROUP = "private", "supergroup"


class Reach(msgspec.Struct, frozen=True, tag=True):
    """Wait until a program asks for updates that had not yet asked when this came."""

    seconds: float = 30.0


class Talk(msgspec.Struct, frozen=True, tag=True):
    """Let people say things, each of them once more only when the one before is answered.

    Message number n goes to chat `first + n % chats`; `at_once` of them are open at a time.
    """

    first: int
    chats: int
    messages: int
    at_once: int
    tokens: int = 10
    apart: int = 0  # milliseconds between tokens
    seconds: float = 60.0  # patience for all of it together
    edits_apart: float = 0.0  # seconds; what comes sooner in a chat is refused with 429


class Say(msgspec.Struct, frozen=True, tag=True):
    """Let one message be said in each of some chats, and do not wait."""

    first: int
    chats: int
    tokens: int = 10
    apart: int = 0


class Heard(msgspec.Struct, frozen=True, tag=True):
    """Wait until each of some chats has been sent something since the last `SendNotice`, or no longer."""

    first: int
    chats: int
    seconds: float = 60.0


class Reached(msgspec.Struct, frozen=True, tag=True):
    """A program asked for updates, at this moment of the clock that all processes share."""

    at: int  # nanoseconds; 0: never


class Talked(msgspec.Struct, frozen=True, tag=True):
    """How people were answered."""

    delays: tuple[float, ...]  # seconds, of those that were answered
    seconds: float  # from the first message to the last answer
    missing: int
    twice: int  # answers of which there was more than one
    shown_live: int  # drafts and edits that were accepted
    refused: int  # calls that were refused with 429
    odd: tuple[str, ...]  # calls that Telegram would not have taken


class Told(msgspec.Struct, frozen=True, tag=True):
    """Of each of the chats, in order: was it sent anything."""

    any: tuple[bool, ...]
    answered: tuple[bool, ...]  # with the answer to what was said there last


Order = Reach | Talk | Say | Heard
Report = Reached | Talked | Told
