"""Sans-IO: authors of addressed messages, because Discord's delete events do not name the author."""

from collections import OrderedDict
from itertools import islice

import msgspec

from platforms.core.contract import Sender

_MAX_AUTHORS = 1_000
_MAX_STORED = 100
"""Number of newest entries that survive a restart, enough for messages still in progress."""


class MessageAuthors:
    """Bounded map from message id to author, newest last; `dirty` if changed since `dump`."""

    def __init__(self, authors: dict[str, Sender] | None = None) -> None:
        self._authors: OrderedDict[str, Sender] = OrderedDict(authors or {})
        self.dirty = False

    def add(self, message: str, sender: Sender) -> None:
        """Record the author of an addressed message."""
        self._authors[message] = sender
        self.dirty = True
        if len(self._authors) > _MAX_AUTHORS:
            self._authors.popitem(last=False)

    def find(self, message: str) -> Sender | None:
        """Return a message's author; None if the message was not addressed to the bot or is old."""
        return self._authors.get(message)

    def dump(self) -> str:
        """Return the newest entries as JSON for the shelf."""
        self.dirty = False
        newest = list(islice(reversed(self._authors.items()), _MAX_STORED))
        return msgspec.json.encode(dict(reversed(newest))).decode()


def load_authors(text: str | None) -> MessageAuthors:
    """Return the authors from the output of `MessageAuthors.dump`."""
    return MessageAuthors(msgspec.json.decode(text, type=dict[str, Sender]) if text else None)
