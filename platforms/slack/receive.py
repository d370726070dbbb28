"""Receiving: decode events, add sender and context, and hand them to the inbox.

Messages, edits and deletes of a chat go in the order in which they arrive; commands and buttons
overtake them. Every listener returns after the commit, because bolt then acknowledges.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Iterator
from weakref import WeakValueDictionary

import msgspec

from platforms.core.contract import (
    Accepted,
    Inbound,
    InboundAction,
    InboundMessage,
    Inbox,
    Quote,
    Sender,
    Surroundings,
)
from platforms.core.errors import PlatformError, Unavailable
from platforms.slack.calls import Json, SlackClient
from platforms.slack.decode import SlackEvent, SlackEventDecoder, SlackIdentity
from platforms.slack.held import HeldInteractions
from platforms.slack.people import UserDirectory
from platforms.slack.read_marks import SlackPlaces, is_dm
from platforms.slack.welcome import WelcomePrompts

_PLACES_KEY = "places"
_CONTEXT_MESSAGES = 20
_CONTEXT_TIMEOUT_SECONDS = 1.5
_MAX_COMMANDS = 1_000


class SlackReceiver:
    """Completes events and submits them; implements `SlackEventReceiver`."""

    def __init__(
        self,
        calls: SlackClient,
        people: UserDirectory,
        welcome_prompts: WelcomePrompts,
        surroundings: Surroundings,
        *,
        require_mention: bool,
    ) -> None:
        self.places = SlackPlaces()
        self._calls = calls
        self._people = people
        self._welcome_prompts = welcome_prompts
        self._clock = surroundings.clock
        self._shelf = surroundings.shelf
        self._account = surroundings.account
        self._require_mention = require_mention
        self._surroundings = surroundings
        self._outside_threads: OrderedDict[str, None] = OrderedDict()  # ids of recent commands
        self._identity = SlackIdentity("", "")
        self._held = HeldInteractions(surroundings.shelf)
        self._inbox: Inbox | None = None
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def restore(self) -> None:
        """Load the conversations that were in use, and undecided interactions, of the last process."""
        self.places = SlackPlaces(await self._shelf.get(_PLACES_KEY))
        await self._held.restore(self._clock.now())

    async def submit_held(self) -> None:
        """Submit the commands and presses of people whose membership may be known now."""
        await self._held.submit_all(self.submit)

    async def save_places(self) -> None:
        """Store the conversations in use, if they have changed."""
        if self.places.changed:
            await self._shelf.put(_PLACES_KEY, self.places.dump())

    @contextlib.contextmanager
    def receiving(self, inbox: Inbox, identity: SlackIdentity) -> Iterator[None]:
        """Submit events to `inbox` inside the block; `identity` is our own user."""
        self._inbox, self._identity = inbox, identity
        try:
            yield
        finally:
            self._inbox = None

    # --- events from bolt ---------------------------------------------------------------------

    async def on_event(self, event: Json, team: str) -> None:
        """See `SlackEventReceiver`."""
        await self._take(self.decoder().decode_event(event, team))

    async def on_action(self, payload: Json) -> None:
        """See `SlackEventReceiver`."""
        await self._take(self.decoder().decode_action(payload))

    async def on_command(self, payload: Json) -> None:
        """See `SlackEventReceiver`."""
        await self._take(self.decoder().decode_command(payload, self._clock.now()))

    async def _take(self, found: SlackEvent | None) -> None:
        if found is None:
            return
        if found.is_ordered:
            async with self.lock(found.channel or found.event.address.chat.rpartition("/")[2]):
                await self.submit(found)
        else:
            await self.submit(found)

    def is_outside_thread(self, command: str) -> bool:
        """Return true for a recent command in a channel that acts on a thread."""
        return command in self._outside_threads

    def decoder(self) -> SlackEventDecoder:
        """Return a decoder for the current identity and conversations."""
        return SlackEventDecoder(
            self._identity,
            self.places,
            self._people.names,
            account=self._account,
            require_mention=self._require_mention,
            command_words=self._surroundings.words,
        )

    def lock(self, channel: str) -> asyncio.Lock:
        """Return the lock that keeps the events of a channel in order."""
        return self._locks.setdefault(channel, asyncio.Lock())

    # --- submitting ---------------------------------------------------------------------------

    async def submit(self, found: SlackEvent) -> Accepted:
        """Add the sender and the context, and commit the event.

        A message is `UNDECIDED` while Slack cannot tell whether the sender is a member; its place
        is then read again. A command and a press of a button are kept. Other such events raise
        `Unavailable`.
        """
        assert self._inbox is not None  # noqa: S101 - only called while `run` is active
        event, team = found.event, self._identity.team
        if found.outside_thread:
            self._outside_threads[event.id] = None
            if len(self._outside_threads) > _MAX_COMMANDS:
                self._outside_threads.popitem(last=False)
        if found.addressed:
            sender = await self._people.sender(found.user, found.team, team, is_bot=found.is_bot)
        else:
            sender = Sender(f"{found.team or team}/{found.user}", is_bot=found.is_bot)
        event = msgspec.structs.replace(event, sender=sender)
        if found.opened_chat:
            return await self._greet(found, event)
        if isinstance(event, InboundMessage) and self._starts_thread(found):
            context = (*await self._context(found), *event.context)
            event = msgspec.structs.replace(event, context=context)
        if not found.ts or not found.addressed:
            accepted = await self._inbox(event)
            if accepted is Accepted.UNDECIDED and isinstance(event, InboundAction | InboundMessage):
                await self._held.hold(found)
            elif accepted is Accepted.UNDECIDED:
                msg = "Slack cannot tell now whether the sender is a member."
                raise Unavailable(msg)
            return accepted
        return await self._submit_message(found, event)

    async def _submit_message(self, found: SlackEvent, event: Inbound) -> Accepted:
        """Commit an addressed message, and record its place."""
        assert self._inbox is not None  # noqa: S101 - only called while `run` is active
        place = self.places.find(found.channel, found.thread)
        is_new = place is None or place.undecided
        # Saved before the commit, so that a crash in between cannot leave a thread unknown.
        if is_new:
            self._update_place(found)
            await self.save_places()
        accepted = await self._inbox(event)
        if accepted is Accepted.UNDECIDED:
            now = self._clock.now()
            self.places.hold(found.channel, found.thread, found.ts, now, is_new=is_new)
            await self.save_places()
        elif accepted is Accepted.IGNORED and is_dm(found.channel):  # the person lost access
            await self._welcome_prompts.forget(found.channel)
            for thread in {"", found.thread}:
                self.places.forget(found.channel, thread)
        elif not is_new:
            self._update_place(found)
        elif accepted is Accepted.STORED:
            self.places.open(found.channel, found.thread)
        elif place is None or accepted is Accepted.IGNORED:  # the sender has no access
            self.places.forget(found.channel, found.thread)
        return accepted

    async def _greet(self, found: SlackEvent, event: Inbound) -> Accepted:
        """Have the gateway greet a person with access who opened the chat, once."""
        assert self._inbox is not None  # noqa: S101 - only called while `run` is active
        accepted = Accepted.DUPLICATE
        talks = self.places.find(found.channel, "") is not None
        if not (talks or self._welcome_prompts.is_greeted(found.channel)):
            accepted = await self._inbox(event)
            if accepted is not Accepted.STORED:
                return accepted
        await self._welcome_prompts.show_prompts(found.channel, found.thread)
        return accepted

    def _starts_thread(self, found: SlackEvent) -> bool:
        """Return true for the first message addressed to the app in a thread."""
        known = self.places.find(found.channel, found.thread)
        is_new = known is None or known.undecided
        return bool(found.thread) and found.addressed and is_new

    async def _context(self, found: SlackEvent) -> tuple[Quote, ...]:
        """Read the messages before the first one; empty when Slack does not answer soon."""
        in_thread = found.thread != found.ts
        method = "conversations.replies" if in_thread else "conversations.history"
        where: Json = {"ts": found.thread} if in_thread else {}
        try:
            async with asyncio.timeout(_CONTEXT_TIMEOUT_SECONDS):
                answer = await self._calls.read(
                    method,
                    about_channel=found.channel,
                    channel=found.channel,
                    latest=found.ts,
                    limit=_CONTEXT_MESSAGES + 1,
                    **where,
                )
        except (PlatformError, TimeoutError):
            return ()
        messages = answer.get("messages") or []
        return self.decoder().quotes(messages, found.ts)[-_CONTEXT_MESSAGES:]

    def _update_place(self, found: SlackEvent) -> None:
        user = "" if found.is_bot else found.user
        self.places.update(found.channel, found.thread, found.ts, user, found.team)
        if found.thread:  # other threads may begin in the channel while the gateway is down
            self.places.update(found.channel, "", found.ts)
