"""`AccessRequests`: people without access, and the commands that give and revoke access."""

import logging
from collections.abc import Awaitable, Callable

from gateway.access.people import People, StrangerNotices
from gateway.access.policy import Stranger, admin_addresses
from gateway.notices.sender import NoticeSender
from platforms.core.contract import Address, Capabilities, InboundMessage
from sessions.changes import PutItem
from sessions.values.notices import NoticeId
from sessions.values.visible_text import escape_markdown

log = logging.getLogger(__name__)


class AccessRequests:
    """Implements `gateway.commands.contract.AccessCommands`, and greets strangers."""

    def __init__(
        self,
        people: People,
        notices: NoticeSender,
        capabilities: Callable[[Address], Capabilities | None],
        *,
        enforce_access: Callable[[], Awaitable[None]],
    ) -> None:
        self._people = people
        self._notices = notices
        self._capabilities = capabilities
        self._enforce_access = enforce_access

    async def greet_stranger(
        self, message: InboundMessage, stranger: Stranger, origin: str
    ) -> None:
        """Reply to a person without access, and notify all reachable admins of the request."""
        committed: list[PutItem] = []

        def changes_of(greeting: StrangerNotices) -> list[PutItem]:
            committed[:] = self._compose(greeting, message.address, origin)
            return committed

        greeting = await self._people.handle_stranger(
            message, stranger.principal, direct=stranger.direct, changes_of=changes_of
        )
        if greeting.stored:
            self._notices.on_committed(committed)
        else:
            await self._notices.put(self._compose(greeting, message.address, origin))
        if greeting.admin_notice:
            log.info(
                "%s: %s notified admins of %s",
                message.address.platform,
                greeting.admin_notice,
                greeting.admin_fields.get("principal"),
            )

    def _compose(self, greeting: StrangerNotices, address: Address, origin: str) -> list[PutItem]:
        """Return the notices for the person, and for all reachable admins."""
        changes = []
        if greeting.notice:
            compose = self._notices.compose
            changes.append(compose(greeting.notice, address, greeting.fields, origin=origin))
        if greeting.admin_notice:
            changes += [
                self._notices.compose(
                    greeting.admin_notice, place, greeting.admin_fields, deferred=True
                )
                for place in admin_addresses(self._people.admins())
                if self._capabilities(place)
            ]
        return changes

    async def claim(self, principal: str, name: str, code: str) -> bool:
        """Make a person the first admin; False if the code is not valid."""
        return await self._people.claim(principal, name, code)

    async def pair_list(self) -> str:
        """Return open requests and people with access, one per line."""
        lines = []
        for person in self._people.describe_people():
            name = escape_markdown(str(person["name"] or ""))
            who = f"{person['principal']} {name}".rstrip()
            lines.append(f"{who}: {person['state']}")
        return "\n".join(lines) or "No one has access yet, and no one has asked for it."

    async def pair_approve(self, code: str) -> tuple[str, str] | None:
        """Give access to the person with this code or stable id, and notify the person.

        Returns None if no open request matches.
        """
        committed: list[PutItem] = []

        def changes_of(principal: str) -> list[PutItem]:
            platform, _, chat = principal.partition(":")
            address = Address(platform=platform, chat=chat)
            if self._capabilities(address):
                committed.append(self._notices.compose(NoticeId.PAIRED, address, {}))
            return committed

        approved = await self._people.approve(code, changes_of)
        self._notices.on_committed(committed)
        return approved

    async def pair_revoke(self, principal: str) -> bool:
        """Remove a person's access and stop their work; False if it was not given by pairing."""
        revoked = await self._people.revoke(principal)
        if revoked:
            await self._enforce_access()
        return revoked
