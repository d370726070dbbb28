"""Sans-IO: who wrote what was meant for us: Discord does not say it when a message is deleted."""

from collections import OrderedDict
from itertools import islice

import msgspec

from platforms.core.contract import Sender

_MAX_AUTHORS = 1_000
_MAX_STORED = 100
"""Messages of which it is known after a restart, too: those that may still wait for an answer."""


class MessageAuthors:
    """Who wrote which message, the newest last."""

    def __init__(self, authors: dict[str, Sender] | None = None) -> None:
        self._authors: OrderedDict[str, Sender] = OrderedDict(authors or {})
        self.dirty = False

    def add(self, message: str, sender: Sender) -> None:
        """Remember who wrote a message."""
        self._authors[message] = sender
        self.dirty = True
        if len(self._authors) > _MAX_AUTHORS:
            self._authors.popitem(last=False)

    def find(self, message: str) -> Sender | None:
        """Who wrote a message; None when it was not meant for us, or long ago."""
        return self._authors.get(message)

    def dump(self) -> str:
        """Write the newest for the shelf."""
        self.dirty = False
        newest = list(islice(reversed(self._authors.items()), _MAX_STORED))
        return msgspec.json.encode(dict(reversed(newest))).decode()


def load_authors(text: str | None) -> MessageAuthors:
    """Read what `write` wrote."""
    return MessageAuthors(msgspec.json.decode(text, type=dict[str, Sender]) if text else None)
