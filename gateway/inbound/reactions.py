"""Sans-IO: which sign stands on a person's message: taken in, done, or not finished.

A message gets two signs at most. They are only a courtesy: what is known about them is kept in
memory, and a message that nothing is known of any more keeps the sign that it has.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable

from gateway.delivery.view import read_address
from platforms.core.contract import Address
from sessions.changes import Change, EndTurn, SetInbox, StartTurn
from sessions.records import InboxEntry, InboxState, TurnState

TAKEN_IN = "👀"
DONE = "✅"
NOT_DONE = "❌"

_REMEMBERED = 4_096
_OPEN = {InboxState.WAITING, InboxState.HELD, InboxState.RUNNING}

React = Callable[[Address, str, str], None]


class Receipts:
    """Follows messages from their arrival to the end of their turn."""

    def __init__(self, react: React | None) -> None:
        self._react = react  # None: no signs are wanted
        self._open: OrderedDict[str, tuple[str, str]] = OrderedDict()  # by inbox row: where, which
        self._turns: dict[str, list[str]] = {}  # inbox rows by turn

    def taken_in(self, entry: InboxEntry) -> None:
        """A message was stored and will be answered."""
        self._remember(entry)
        self._show(entry.id, TAKEN_IN)

    def read_back(self, entry: InboxEntry) -> None:
        """A message came from the store; an earlier process may have taken it in."""
        if entry.state in _OPEN and entry.id not in self._open:
            self._remember(entry)
            if entry.state is InboxState.RUNNING and entry.turn_id:
                self._begun(entry.turn_id, (entry.id,))

    def committed(self, changes: Iterable[Change]) -> None:
        """These changes are durable now."""
        if self._react is None:
            return
        for change in changes:
            match change:
                case StartTurn() if change.inbox:
                    self._begun(change.id, change.inbox)
                case SetInbox():
                    self._moved(change)
                case EndTurn():
                    sign = DONE if change.state is TurnState.DONE else NOT_DONE
                    for inbox in self._turns.pop(change.id, ()):
                        self._finish(inbox, sign)
                case _:
                    pass

    def _moved(self, change: SetInbox) -> None:
        if change.state is InboxState.RUNNING and change.turn_id:
            self._begun(change.turn_id, change.ids)
        elif change.state is InboxState.REFUSED:
            for inbox in change.ids:
                self._finish(inbox, NOT_DONE)
        elif change.state is InboxState.DONE:  # its sender took it back
            for inbox in change.ids:
                self._open.pop(inbox, None)

    def _begun(self, turn: str, inbox: Iterable[str]) -> None:
        known = self._turns.setdefault(turn, [])
        known.extend(each for each in inbox if each not in known)

    def _remember(self, entry: InboxEntry) -> None:
        if self._react is None:
            return
        self._open[entry.id] = (entry.address, entry.event)
        if len(self._open) > _REMEMBERED:
            self._open.popitem(last=False)

    def _show(self, inbox: str, sign: str) -> None:
        if self._react and (found := self._open.get(inbox)):
            address, message = found
            self._react(read_address(address), message, sign)

    def _finish(self, inbox: str, sign: str) -> None:
        self._show(inbox, sign)
        self._open.pop(inbox, None)
