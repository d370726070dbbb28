"""Sans-IO: questions that a running tool asks a person in the chat."""

from collections.abc import Awaitable, Callable

import msgspec

MAX_OPTIONS = 20


class PersonQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question; the words come from the asker, who is not trusted."""

    asker: str  # name of the program that asks
    text: str
    options: tuple[str, ...] = ()  # possible answers; empty: any text, or only yes or no
    free_text: bool = False  # the answer is a text


class PersonAnswer(msgspec.Struct, frozen=True):
    """The answer of a person."""

    accepted: bool
    text: str = ""  # the chosen option or the text; empty for a question without either


AskPerson = Callable[[PersonQuestion], Awaitable[PersonAnswer | None]]
"""Asks a question and waits; None if no person can be asked, or if no one answered in time."""
