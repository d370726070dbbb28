"""Operations that the command line can run in the daemon.

Each class serves one subject; its public coroutines are operations, and `by_name` lists them by the
name that the command line uses. `gateway.process.reload` has one more.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from gateway.access.api_keys import KeyLimits, KeyRole
from gateway.access.key_store import ApiKeys, KeyRefused
from gateway.access.people import CodeDelayed, People
from gateway.commands.access_requests import AccessRequests
from gateway.commands.dispatch import Dispatcher
from gateway.connections.directory import AdapterDirectory
from gateway.delivery.outbox import Delivery
from gateway.delivery.view import ItemBody, write_body
from gateway.errors import HoldfastError
from gateway.inbound.routing import connection_name
from gateway.process.restart import Restarter
from platforms.core.contract import Address
from sessions.changes import PutItem
from sessions.conversation.events import CommandContext, DeleteSession, ResumeSession, StopTurn
from sessions.key import parse_key
from sessions.records import ItemKind, ItemState, OutboxItem, Session, SessionState
from sessions.store.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.ids import Ids
from sessions.values.item_ids import ItemType
from sessions.values.text import format_seconds

Operation = Callable[..., Awaitable[object]]

_OPERATOR = "console:owner"
_SEND_TIMEOUT_SECONDS = 57.0
_REACHABLE_SECONDS = 3.0  # then a chat that is not reachable ends the wait


class OperationRefused(HoldfastError):
    """The operation cannot be carried out as requested."""


class StatusOperations:
    """State of the daemon, and links to the web page."""

    def __init__(
        self,
        read_status: Callable[[], dict[str, object]],
        read_usage_today: Callable[[], Awaitable[list[dict[str, object]]]],
        create_link: Callable[[str | None], Awaitable[str]],
    ) -> None:
        self._read_status = read_status
        self._read_usage_today = read_usage_today
        self._create_link = create_link

    def by_name(self) -> Mapping[str, Operation]:
        """Return the operations by name."""
        return {
            "status": self.status,
            "link": self.link,
        }

    async def status(self) -> dict[str, object]:
        """Return the state of the daemon and today's usage."""
        today = await self._read_usage_today()
        return self._read_status() | ({"today": today} if today else {})

    async def link(self, base_url: str | None = None) -> str:
        """Create a one-time link to the web page."""
        return await self._create_link(base_url)


class MessageOperations:
    """Messages that the operator sends to a chat."""

    def __init__(
        self,
        clock: Clock,
        ids: Ids,
        delivery: Delivery,
        adapters: AdapterDirectory,
    ) -> None:
        self._clock = clock
        self._ids = ids
        self._delivery = delivery
        self._adapters = adapters

    def by_name(self) -> Mapping[str, Operation]:
        """Return the operations by name."""
        return {
            "send": self.send,
        }

    async def send(self, chat: str, text: str) -> dict[str, str]:
        """Post a text to a chat and wait until it is delivered, for a minute at most.

        `reason` says why a text is not delivered; the wait ends early if the chat is not reachable.
        """
        try:
            key = parse_key(chat)
        except ValueError as error:
            msg = (
                f"{chat!r} is not the name of a chat; one looks like telegram:1001 or slack:T1/D1."
            )
            raise OperationRefused(msg) from error
        address = Address(key.platform, key.chat, key.account, key.thread)
        if self._adapters.get(address.platform, address.account) is None:
            platform = connection_name(address.platform, address.account)
            names = ", ".join(each.name for each in self._adapters)
            msg = f"{platform} is not configured here. Configured: {names}."
            raise OperationRefused(msg)
        item = OutboxItem(
            id=self._ids.new(ItemType.TEXT),
            address=address,
            kind=ItemKind.ANSWER,
            state=ItemState.PENDING,
            body=write_body(ItemBody(text=text)),
            created_at=self._clock.now(),
        )
        await self._delivery.put(PutItem(item))
        await self._wait_delivered(item)
        found = await self._delivery.store.outbox.get(item.id) or item
        return {"state": found.state.value, "id": item.id, "reason": self._explain(found)}

    async def _wait_delivered(self, item: OutboxItem) -> None:
        """Wait until the item is sent or dead; give up early on a chat that is not reachable."""
        async with asyncio.TaskGroup() as group:
            delivered = group.create_task(self._delivery.wait_sent(item.id))
            await asyncio.wait({delivered}, timeout=_REACHABLE_SECONDS)
            if not self._obstacle(item.address):
                await asyncio.wait({delivered}, timeout=_SEND_TIMEOUT_SECONDS)
            delivered.cancel()

    def _explain(self, item: OutboxItem) -> str:
        """Return why an item is not sent; empty if it is."""
        match item.state:
            case ItemState.SENT:
                return ""
            case ItemState.DEAD:
                return (item.error or "no cause is known").rstrip(".")
            case ItemState.PENDING | ItemState.ATTEMPTING | ItemState.UNKNOWN:
                return self._obstacle(item.address) or "the platform has not confirmed it yet"

    def _obstacle(self, address: Address) -> str:
        """Return why a chat cannot be reached now; empty if nothing is known."""
        name = connection_name(address.platform, address.account)
        problem = self._adapters.disconnection(address.platform, address.account)
        if problem:
            return f"{name} is not connected ({problem})"
        pause = self._delivery.paused_until(address) - self._clock.now()
        if pause > 0:
            span = format_seconds(pause / 1000)
            return f"{name} accepts no messages in this chat for another {span}"
        return ""


class SessionOperations:
    """Sessions and their running turns."""

    def __init__(
        self,
        store: SessionStore,
        dispatcher: Dispatcher,
        erase_text: Callable[[str], Awaitable[None]],
    ) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._erase_text = erase_text

    def by_name(self) -> Mapping[str, Operation]:
        """Return the operations by name."""
        return {
            "stop": self.stop,
            "stop_all": self.stop_all,
            "resume": self.resume,
            "delete": self.delete,
        }

    async def stop(self, session: str) -> dict[str, str | bool]:
        """Stop the running turn of a session; `stopped` tells whether a turn was running."""
        target = await self._find_session(session)
        if target.state is not SessionState.ACTIVE:
            return {"id": target.id, "state": target.state.value, "stopped": False}
        await self._dispatcher.ask(target.key, StopTurn(self._operator_context(target), quiet=True))
        after = (await self._find_session(target.id)).state
        return {
            "id": target.id,
            "state": after.value,
            "stopped": after is SessionState.SUSPENDED,
        }

    async def stop_all(self) -> dict[str, int]:
        """Stop all running turns and return their number."""
        return {"stopped": await self._dispatcher.stop_all(_OPERATOR)}

    async def resume(self, session: str) -> dict[str, str]:
        """Make a suspended session the active one of its conversation."""
        target = await self._find_session(session)
        if target.state is not SessionState.SUSPENDED:
            msg = f"{target.id} is {target.state.value}; only a suspended session can be resumed."
            raise OperationRefused(msg)
        await self._dispatcher.ask(
            target.key, ResumeSession(context=self._operator_context(target), session=target.id)
        )
        state = (await self._find_session(target.id)).state
        if state is SessionState.SUSPENDED:
            msg = (
                f"{target.id} was not resumed: with its queued messages, more than "
                "gateway.queue_limit would wait in its conversation. Try again later."
            )
            raise OperationRefused(msg)
        return {"id": target.id, "state": state.value}

    async def delete(self, session: str) -> dict[str, str]:
        """Close a session permanently, and erase its text from the store."""
        target = await self._find_session(session)
        await self._dispatcher.ask(
            target.key, DeleteSession(self._operator_context(target), target.id)
        )
        await self._erase_text(target.id)
        return {"id": target.id, "state": (await self._find_session(target.id)).state.value}

    async def _find_session(self, text: str) -> Session:
        found = await self._store.sessions.find(text)
        if found is None:
            msg = f"No session has the id {text}; “holdfast sessions list” shows them."
            raise OperationRefused(msg)
        return found

    def _operator_context(self, session: Session) -> CommandContext:
        return CommandContext(address=session.address, person=_OPERATOR, admin=True)


class AccessOperations:
    """Access of people."""

    def __init__(
        self,
        people: People,
        access: AccessRequests,
        claim_links: Callable[[str], dict[str, str]],
    ) -> None:
        self._people = people
        self._access = access
        self._claim_links = claim_links

    def by_name(self) -> Mapping[str, Operation]:
        """Return the operations by name."""
        return {
            "pair_list": self.pair_list,
            "pair_approve": self.pair_approve,
            "pair_revoke": self.pair_revoke,
            "pair_claim": self.pair_claim,
        }

    async def pair_list(self) -> list[dict[str, object]]:
        """Return open pairing requests and people with access."""
        return self._people.describe_people()

    async def pair_approve(self, code: str) -> dict[str, str]:
        """Give access to the person with this pairing code or stable id."""
        try:
            person = await self._access.pair_approve(code)
        except CodeDelayed as error:
            raise OperationRefused(str(error)) from error
        if person is None:
            msg = (
                "No open request has this code or id; “holdfast pair list” shows the open requests, "
                "and who has access already."
            )
            raise OperationRefused(msg)
        return {"principal": person[0], "name": person[1]}

    async def pair_revoke(self, principal: str) -> dict[str, str]:
        """Revoke the access that a person got by pairing."""
        if not await self._access.pair_revoke(principal):
            msg = f"{principal} is not paired; see access.allow in the configuration."
            raise OperationRefused(msg)
        return {"principal": principal}

    async def pair_claim(self) -> dict[str, object]:
        """Create a claim code for the first admin, and links that submit the code."""
        code = await self._people.create_claim_code()
        return {"code": code, "links": self._claim_links(code)}


class KeyOperations:
    """API keys."""

    def __init__(self, keys: ApiKeys, enforce_access: Callable[[], Awaitable[None]]) -> None:
        self._keys = keys
        self._enforce_access = enforce_access

    def by_name(self) -> Mapping[str, Operation]:
        """Return the operations by name."""
        return {
            "keys_add": self.keys_add,
            "keys_list": self.keys_list,
            "keys_revoke": self.keys_revoke,
        }

    async def keys_add(
        self,
        name: str,
        person: str = "",
        role: str = KeyRole.MEMBER,
        limits: Mapping[str, float | None] | None = None,
    ) -> dict[str, object]:
        """Add a key; `key` in the result is its text, which cannot be read again."""
        if role not in set(KeyRole):
            msg = f"The role is one of {', '.join(KeyRole)}."
            raise OperationRefused(msg)
        try:
            wanted = msgspec.convert(limits or {}, KeyLimits)
            added = await self._keys.add(name, person=person, role=KeyRole(role), limits=wanted)
        except (KeyRefused, msgspec.ValidationError) as error:
            raise OperationRefused(str(error)) from error
        return {**self._keys.describe(added.key), "key": added.text}

    async def keys_list(self) -> list[dict[str, object]]:
        """Return the keys, without their texts."""
        return self._keys.describe_all()

    async def keys_revoke(self, name: str) -> dict[str, object]:
        """Delete a key, and stop the running and queued work of its clients."""
        key = await self._keys.revoke(name)
        if key is None:
            msg = f"There is no key “{name}”; see holdfast keys list."
            raise OperationRefused(msg)
        await self._enforce_access()
        return {"name": key.name, "id": key.id, "person": key.person}


class RestartOperations:
    """Restarts of the gateway."""

    def __init__(self, restart: Restarter) -> None:
        self._restart = restart

    def by_name(self) -> Mapping[str, Operation]:
        """Return the operations by name."""
        return {
            "restart": self._restart.restart,
            "restart_list": self.restart_list,
            "restart_state": self.restart_state,
            "restart_cancel": self.restart_cancel,
        }

    async def restart_list(self) -> list[dict[str, object]]:
        """Return the turns that a restart would interrupt."""
        return self._restart.list_running_tasks()

    async def restart_state(self, restart: str) -> dict[str, object]:
        """Return the state of a restart."""
        return self._restart.state(restart)

    async def restart_cancel(self, restart: str) -> dict[str, object]:
        """Cancel a restart that waits for the gateway to become idle."""
        return self._restart.cancel(restart)
