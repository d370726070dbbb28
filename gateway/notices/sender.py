"""`NoticeSender`: notices outside of turns, committed and delivered."""

from collections.abc import Iterable

import msgspec

from gateway.delivery.outbox import Delivery
from gateway.delivery.view import read_body, write_body
from gateway.notices.compose import NoticeComposer
from platforms.core.contract import Address, InboundMessage
from sessions.changes import Change, PutItem
from sessions.values.notices import NoticeFields, NoticeId


class NoticeSender:
    """Sends notices to chats."""

    def __init__(self, composer: NoticeComposer, delivery: Delivery) -> None:
        self._composer = composer
        self._delivery = delivery

    async def send(
        self,
        notice: NoticeId,
        address: Address,
        fields: NoticeFields,
        *changes: Change,
        origin: str = "",
        name: str = "",
        urgent: bool = False,
        deferred: bool = False,
    ) -> None:
        """Commit a notice together with other changes, and deliver it.

        See `NoticeComposer.notice_item` for `origin` and `name`, and `gateway.delivery.view.ItemBody`
        for `urgent` and `deferred`.
        """
        item = self._composer.notice_item(
            notice,
            address,
            fields,
            origin=origin,
            name=name,
            urgent=urgent,
            deferred=deferred,
        )
        await self._delivery.put(*changes, PutItem(item))

    def compose(
        self,
        notice: NoticeId,
        address: Address,
        fields: NoticeFields,
        *,
        origin: str = "",
        deferred: bool = False,
    ) -> PutItem:
        """Return the change that stores a notice; after the commit call `on_committed`."""
        return PutItem(
            self._composer.notice_item(notice, address, fields, origin=origin, deferred=deferred)
        )

    async def put(self, changes: Iterable[PutItem]) -> None:
        """Commit and deliver composed notices."""
        if changes := tuple(changes):
            await self._delivery.put(*changes)

    def on_committed(self, changes: Iterable[PutItem]) -> None:
        """Deliver notices that were just committed."""
        self._delivery.enqueue([change.item for change in changes])

    async def answer_privately(
        self,
        notice: NoticeId,
        command: InboundMessage,
        fields: NoticeFields,
        *changes: Change,
        origin: str,
    ) -> None:
        """Answer a command in a room with a notice that is only for its sender."""
        item = self._composer.notice_item(
            notice, command.address, fields, origin=origin, deferred=True
        )
        body = msgspec.structs.replace(read_body(item), only_for=command.sender.id)
        item = msgspec.structs.replace(item, body=write_body(body), reply_to=command.id)
        await self._delivery.put(*changes, PutItem(item))
