"""`NoticeComposer`: outbox items of notices, with the commands and buttons of each platform."""

from collections.abc import Callable, Iterable

from gateway.delivery.view import ItemBody, write_body
from gateway.notices.catalogue import BUTTONS, render_notice
from platforms.core.actions import write_action
from platforms.core.contract import Address, Button, Capabilities
from sessions.changes import Change, PutItem
from sessions.conversation.events import SendNotice
from sessions.records import ItemKind, ItemState, OutboxItem
from sessions.values.clock import Clock
from sessions.values.ids import Ids
from sessions.values.item_ids import ItemType, notice_id
from sessions.values.notices import NoticeFields, NoticeId


def command_template(capabilities: Capabilities | None) -> str:
    """Return the platform's form of a command, or `/{word}` while the platform is not connected."""
    return capabilities.command if capabilities else "/{word}"


class NoticeComposer:
    """Builds outbox items of notices; the caller commits and delivers them."""

    def __init__(
        self, ids: Ids, clock: Clock, capabilities: Callable[[Address], Capabilities | None]
    ) -> None:
        self._ids = ids
        self._clock = clock
        self._capabilities = capabilities

    def capabilities(self, address: Address) -> Capabilities | None:
        """Return the capabilities of an address's platform, or None if it is not connected."""
        return self._capabilities(address)

    def notice_item(
        self,
        notice: NoticeId,
        address: Address,
        fields: NoticeFields,
        *,
        urgent: bool = False,
        deferred: bool = False,
        name: str = "",
        turn: str | None = None,
        origin: str = "",
    ) -> OutboxItem:
        """Return the item of a notice; a `name` that exists replaces the older item.

        `origin` names the message that the notice answers, see `gateway.inbound.reader.origin_of`.
        """
        if origin and not name:
            name = notice_id(origin, notice)
        can = self._capabilities(address)
        most = can.buttons if can else 0
        buttons = tuple(
            Button(label, write_action(action, turn))
            for label, action in BUTTONS.get(notice, ())[:most]
        )
        text = render_notice(notice, fields, command_template(can))
        return OutboxItem(
            id=name or self._ids.new(ItemType.NOTICE),
            address=address,
            kind=ItemKind.NOTICE,
            state=ItemState.PENDING,
            body=write_body(ItemBody(text=text, buttons=buttons, urgent=urgent, deferred=deferred)),
            created_at=self._clock.now(),
            turn_id=turn,
        )

    def notice_changes(self, says: Iterable[SendNotice]) -> tuple[Change, ...]:
        """Return the changes that store the notices of a state machine step."""
        return tuple(
            PutItem(
                self.notice_item(
                    say.notice,
                    say.address,
                    say.fields,
                    urgent=say.urgent,
                    name=say.item_id,
                    turn=say.turn,
                    origin=say.origin,
                )
            )
            for say in says
        )
