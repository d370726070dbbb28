"""Operations that the command line can run in the daemon, by name."""

import asyncio
from collections.abc import Awaitable, Callable

from gateway.access.people import People
from gateway.commands.dispatch import Dispatcher
from gateway.delivery.outbox import Delivery
from gateway.delivery.view import ItemBody, write_address, write_body
from gateway.errors import HoldfastError
from gateway.process.restart import Restarter
from platforms.core.contract import Address, Capabilities
from sessions.changes import PutItem
from sessions.conversation.events import (
    CommandContext,
    DeleteSession,
    ResumeSession,
    StopTurn,
)
from sessions.key import parse_key
from sessions.records import ItemState, OutboxItem, Session, SessionState
from sessions.store.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.ids import Ids

Operation = Callable[..., Awaitable[object]]

_OPERATOR = "console:owner"
_SEND_TIMEOUT_SECONDS = 60.0


class OperationRefused(HoldfastError):
    """The operation cannot be carried out as requested."""


class Operations:
    """Operations of the daemon; each public coroutine is one, and `by_name` lists them."""

    def __init__(
        self,
        *,
        store: SessionStore,
        clock: Clock,
        ids: Ids,
        dispatcher: Dispatcher,
        people: People,
        delivery: Delivery,
        capabilities: Callable[[Address], Capabilities | None],
        read_status: Callable[[], dict[str, object]],
        read_usage_today: Callable[[], Awaitable[list[dict[str, object]]]],
        create_link: Callable[[str | None], Awaitable[str]],
        claim_links: Callable[[str], dict[str, str]],
        erase_text: Callable[[str], Awaitable[None]],
        restart: Restarter,
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._dispatcher = dispatcher
        self._people = people
        self._delivery = delivery
        self._capabilities = capabilities
        self._read_status = read_status
        self._read_usage_today = read_usage_today
        self._create_link = create_link
        self._claim_links = claim_links
        self._erase_text = erase_text
        self._restart = restart

    def by_name(self) -> dict[str, Operation]:
        """Return the operations by the name that the command line uses."""
        return {
            "status": self.status,
            "link": self.link,
            "send": self.send,
            "stop": self.stop,
            "stop_all": self.stop_all,
            "resume": self.resume,
            "delete": self.delete,
            "pair_list": self.pair_list,
            "pair_approve": self.pair_approve,
            "pair_revoke": self.pair_revoke,
            "pair_claim": self.pair_claim,
            "restart": self._restart.restart,
            "restart_list": self.restart_list,
            "restart_state": self.restart_state,
            "restart_cancel": self.restart_cancel,
        }

    async def status(self) -> dict[str, object]:
        """Return the state of the daemon and today's usage."""
        today = await self._read_usage_today()
        return self._read_status() | ({"today": today} if today else {})

    async def link(self, base_url: str | None = None) -> str:
        """Create a one-time link to the web page."""
        return await self._create_link(base_url)

    async def send(self, chat: str, text: str) -> dict[str, str]:
        """Post a text to a chat and wait until it is delivered, for a minute at most."""
        try:
            key = parse_key(chat)
        except ValueError as error:
            msg = f"{error}."
            raise OperationRefused(msg) from error
        address = Address(key.platform, key.chat, key.account, key.thread)
        if self._capabilities(address) is None:
            msg = f"The platform {key.platform} is not running here; is it configured?"
            raise OperationRefused(msg)
        item = OutboxItem(
            id=self._ids.new("m"),
            address=write_address(address),
            kind="answer",
            state=ItemState.PENDING,
            body=write_body(ItemBody(text=text)),
            created_at=self._clock.now(),
        )
        await self._delivery.put(PutItem(item))
        try:
            async with asyncio.timeout(_SEND_TIMEOUT_SECONDS):
                state = await self._delivery.wait_sent(item.id)
        except TimeoutError:
            state = ItemState.PENDING
        return {"state": state.value, "id": item.id}

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
        return {
            "stopped": await self._dispatcher.stop_all(
                CommandContext(address="", person=_OPERATOR, admin=True)
            )
        }

    async def resume(self, session: str) -> dict[str, str]:
        """Make a suspended session the active one of its conversation."""
        target = await self._find_session(session)
        if target.state is not SessionState.SUSPENDED:
            msg = f"{target.id} is {target.state.value}; only a suspended session can be resumed."
            raise OperationRefused(msg)
        await self._dispatcher.ask(
            target.key, ResumeSession(context=self._operator_context(target), session=target.id)
        )
        return {"id": target.id, "state": (await self._find_session(target.id)).state.value}

    async def delete(self, session: str) -> dict[str, str]:
        """Close a session permanently, and erase its text from the store."""
        target = await self._find_session(session)
        await self._dispatcher.ask(
            target.key, DeleteSession(self._operator_context(target), target.id)
        )
        await self._erase_text(target.id)
        return {"id": target.id, "state": (await self._find_session(target.id)).state.value}

    async def pair_list(self) -> list[dict[str, str]]:
        """Return open pairing requests and paired people."""
        return self._people.list_people()

    async def pair_approve(self, code: str) -> dict[str, str]:
        """Give access to the person with this pairing code."""
        person = await self._dispatcher.pair_approve(code)
        if person is None:
            msg = "No open request has this code; “holdfast pair list” shows the open requests."
            raise OperationRefused(msg)
        return {"principal": person[0], "name": person[1]}

    async def pair_revoke(self, principal: str) -> dict[str, str]:
        """Revoke the access that a person got by pairing."""
        if not await self._dispatcher.pair_revoke(principal):
            msg = f"{principal} is not paired; see access.allow in the configuration."
            raise OperationRefused(msg)
        return {"principal": principal}

    async def pair_claim(self) -> dict[str, object]:
        """Create a claim code for the first admin, and links that submit the code."""
        code = await self._people.create_claim_code()
        return {"code": code, "links": self._claim_links(code)}

    async def restart_list(self) -> list[dict[str, object]]:
        """Return the turns that a restart would interrupt."""
        return self._restart.list_running_tasks()

    async def restart_state(self, restart: str) -> dict[str, object]:
        """Return the state of a restart."""
        return self._restart.state(restart)

    async def restart_cancel(self, restart: str) -> dict[str, object]:
        """Cancel a restart that waits for the gateway to become idle."""
        return self._restart.cancel(restart)

    async def _find_session(self, text: str) -> Session:
        found = await self._store.sessions.find(text)
        if found is None:
            msg = f"No session has the id {text}; “holdfast sessions list” shows them."
            raise OperationRefused(msg)
        return found

    def _operator_context(self, session: Session) -> CommandContext:
        return CommandContext(address=session.address, person=_OPERATOR, admin=True)
