"""Sans-IO: the reactions on a person's message: accepted, done or not done.

A message gets at most two reactions. They are best-effort: their state is kept in memory only, so
after a restart a message may keep its first reaction.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable

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
    """Follows messages from arrival to the end of their turn."""

    def __init__(self, send: SendReaction | None) -> None:
        self._send = send  # None: reactions are off
        self._open_messages: OrderedDict[str, tuple[Address, str]] = OrderedDict()
        """Address and message id, by inbox row."""
        self._messages_by_turn: dict[str, list[str]] = {}  # inbox rows by turn

    def on_accepted(self, entry: InboxEntry) -> None:
        """Track a stored message and show the first reaction."""
        self._track(entry)
        self._send_reaction(entry.id, ACCEPTED_EMOJI)

    def on_recovered(self, entry: InboxEntry) -> None:
        """Track an unfinished message from the store."""
        if entry.state in _OPEN_STATES and entry.id not in self._open_messages:
            self._track(entry)
            if entry.state is InboxState.RUNNING and entry.turn_id:
                self._on_turn_started(entry.turn_id, (entry.id,))

    def on_committed(self, changes: Iterable[Change]) -> None:
        """Receive committed changes, and show which messages have finished."""
        if self._send is None:
            return
        for change in changes:
            match change:
                case StartTurn() if change.inbox:
                    self._on_turn_started(change.id, change.inbox)
                case SetInbox():
                    self._on_inbox_change(change)
                case EndTurn():
                    emoji = DONE_EMOJI if change.state is TurnState.DONE else NOT_DONE_EMOJI
                    for inbox in self._messages_by_turn.pop(change.id, ()):
                        self._finish(inbox, emoji)
                case _:
                    pass

    def _on_inbox_change(self, change: SetInbox) -> None:
        if change.state is InboxState.RUNNING and change.turn_id:
            self._on_turn_started(change.turn_id, change.ids)
        elif change.state in {InboxState.REFUSED, InboxState.IGNORED}:
            for inbox in change.ids:
                self._finish(inbox, NOT_DONE_EMOJI)
        elif change.state is InboxState.DONE:  # withdrawn by its sender
            for inbox in change.ids:
                self._open_messages.pop(inbox, None)

    def _on_turn_started(self, turn: str, inbox: Iterable[str]) -> None:
        known = self._messages_by_turn.setdefault(turn, [])
        known.extend(row for row in inbox if row not in known)

    def _track(self, entry: InboxEntry) -> None:
        if self._send is None:
            return
        self._open_messages[entry.id] = (entry.address, entry.event)
        if len(self._open_messages) > _MAX_REMEMBERED:
            self._open_messages.popitem(last=False)

    def _send_reaction(self, inbox: str, emoji: str) -> None:
        if self._send and (found := self._open_messages.get(inbox)):
            address, message = found
            self._send(address, message, emoji)

    def _finish(self, inbox: str, emoji: str) -> None:
        self._send_reaction(inbox, emoji)
        self._open_messages.pop(inbox, None)
