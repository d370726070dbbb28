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

ACCEPTED_EMOJI = "👀"
DONE_EMOJI = "✅"
NOT_DONE_EMOJI = "❌"

_MAX_REMEMBERED = 4_096
_OPEN_STATES = {InboxState.WAITING, InboxState.HELD, InboxState.RUNNING}

SendReaction = Callable[[Address, str, str], None]


class MessageReactions:
    """Follows messages from their arrival to the end of their turn."""

    def __init__(self, send: SendReaction | None) -> None:
        self._send = send  # None: no signs are wanted
        self._open_messages: OrderedDict[str, tuple[str, str]] = (
            OrderedDict()
        )  # by inbox row: where, which
        self._messages_by_turn: dict[str, list[str]] = {}  # inbox rows by turn

    def on_accepted(self, entry: InboxEntry) -> None:
        """A message was stored and will be answered."""
        self._track(entry)
        self._send_reaction(entry.id, ACCEPTED_EMOJI)

    def on_recovered(self, entry: InboxEntry) -> None:
        """A message came from the store; an earlier process may have taken it in."""
        if entry.state in _OPEN_STATES and entry.id not in self._open_messages:
            self._track(entry)
            if entry.state is InboxState.RUNNING and entry.turn_id:
                self._on_turn_started(entry.turn_id, (entry.id,))

    def on_committed(self, changes: Iterable[Change]) -> None:
        """These changes are durable now."""
        if self._send is None:
            return
        for change in changes:
            match change:
                case StartTurn() if change.inbox:
                    self._on_turn_started(change.id, change.inbox)
                case SetInbox():
                    self._on_inbox_change(change)
                case EndTurn():
                    sign = DONE_EMOJI if change.state is TurnState.DONE else NOT_DONE_EMOJI
                    for inbox in self._messages_by_turn.pop(change.id, ()):
                        self._finish(inbox, sign)
                case _:
                    pass

    def _on_inbox_change(self, change: SetInbox) -> None:
        if change.state is InboxState.RUNNING and change.turn_id:
            self._on_turn_started(change.turn_id, change.ids)
        elif change.state is InboxState.REFUSED:
            for inbox in change.ids:
                self._finish(inbox, NOT_DONE_EMOJI)
        elif change.state is InboxState.DONE:  # its sender took it back
            for inbox in change.ids:
                self._open_messages.pop(inbox, None)

    def _on_turn_started(self, turn: str, inbox: Iterable[str]) -> None:
        known = self._messages_by_turn.setdefault(turn, [])
        known.extend(each for each in inbox if each not in known)

    def _track(self, entry: InboxEntry) -> None:
        if self._send is None:
            return
        self._open_messages[entry.id] = (entry.address, entry.event)
        if len(self._open_messages) > _MAX_REMEMBERED:
            self._open_messages.popitem(last=False)

    def _send_reaction(self, inbox: str, emoji: str) -> None:
        if self._send and (found := self._open_messages.get(inbox)):
            address, message = found
            self._send(read_address(address), message, emoji)

    def _finish(self, inbox: str, emoji: str) -> None:
        self._send_reaction(inbox, emoji)
        self._open_messages.pop(inbox, None)
