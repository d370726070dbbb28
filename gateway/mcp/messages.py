"""`PromptMessages`: replaces a stored command by a message, which is then answered like any other."""

from collections.abc import Callable

import msgspec

from gateway.commands.contract import CommandCall
from gateway.inbound.reactions import MessageReactions
from gateway.inbound.reader import InboxReader, read_event
from platforms.core.contract import File, InboundMessage, Part
from sessions.changes import SetInbox
from sessions.conversation.events import Event, MessageArrived
from sessions.records import InboxEntry, InboxState
from sessions.store.store import SessionStore
from sessions.values.clock import Clock


class PromptMessages:
    """Turns commands into messages of their senders.

    The stored command becomes a waiting message in one commit: it is neither lost nor run twice.
    """

    def __init__(
        self,
        store: SessionStore,
        clock: Clock,
        *,
        reader: InboxReader,
        reactions: MessageReactions,
        has_access: Callable[[InboxEntry], bool],
        post: Callable[[str, Event], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._reader = reader
        self._reactions = reactions
        self._has_access = has_access  # of the sender, as of now
        self._post = post  # to the actor of a conversation

    async def take(self, call: CommandCall, parts: tuple[Part, ...]) -> None:
        """Replace a command by a message with these parts; its files stay with it."""
        entry = await self._store.inbox.get(call.context.inbox)
        if entry is None or entry.state is not InboxState.COMMAND:
            return
        event = read_event(entry)
        assert isinstance(event, InboundMessage)  # noqa: S101 - buttons are no prompts
        files = (part for part in event.parts if isinstance(part, File))
        message = msgspec.structs.replace(event, parts=(*parts, *files))
        payload = msgspec.json.encode(message)
        waiting = msgspec.structs.replace(entry, state=InboxState.WAITING, payload=payload)
        await self._set_state(entry, InboxState.WAITING, payload)
        if not self._has_access(waiting):  # revoked while it was stored
            await self._set_state(entry, InboxState.IGNORED)
            return
        self._reactions.on_accepted(waiting)
        pending = self._reader.make_pending(waiting, message, command=None)
        self._post(waiting.key, MessageArrived(pending))

    async def _set_state(
        self, entry: InboxEntry, state: InboxState, payload: bytes | None = None
    ) -> None:
        change = SetInbox(ids=(entry.id,), state=state, at=self._clock.now(), payload=payload)
        await self._store.apply(change)
