"""Sans-IO: who wrote what was meant for us: Discord does not say it when a message is deleted."""

from collections import OrderedDict
from itertools import islice

import msgspec

from platforms.core.contract import Sender

_MOST = 1_000
_KEPT = 100
"""Messages of which it is known after a restart, too: those that may still wait for an answer."""


class Authors:
    """Who wrote which message, the newest last."""

    def __init__(self, authors: dict[str, Sender] | None = None) -> None:
        self._authors: OrderedDict[str, Sender] = OrderedDict(authors or {})
        self.dirty = False

    def wrote(self, message: str, sender: Sender) -> None:
        """Remember who wrote a message."""
        self._authors[message] = sender
        self.dirty = True
        if len(self._authors) > _MOST:
            self._authors.popitem(last=False)

    def of(self, message: str) -> Sender | None:
        """Who wrote a message; None when it was not meant for us, or long ago."""
        return self._authors.get(message)

    def write(self) -> str:
        """Write the newest for the shelf."""
        self.dirty = False
        newest = list(islice(reversed(self._authors.items()), _KEPT))
        return msgspec.json.encode(dict(reversed(newest))).decode()


def read_authors(text: str | None) -> Authors:
    """Read what `write` wrote."""
    return Authors(msgspec.json.decode(text, type=dict[str, Sender]) if text else None)
