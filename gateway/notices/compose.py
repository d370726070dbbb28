"""Turns notices into things to be shown, in the words of the platform they go to."""

from collections.abc import Callable, Iterable

from gateway.delivery.view import Body, read_address, write_body
from gateway.notices.catalogue import BUTTONS, Fields, render
from platforms.core.contract import Address, Button, Capabilities
from sessions.changes import Change, PutItem
from sessions.conversation.events import Say
from sessions.records import Item, ItemState
from sessions.values.clock import Clock
from sessions.values.ids import Ids


def command_form(can: Capabilities | None) -> str:
    """How a platform writes a command; the usual way while it is not there."""
    return can.command if can else "/{word}"


class Announcer:
    """Writes notices; shows nothing by itself."""

    def __init__(
        self, ids: Ids, clock: Clock, capabilities: Callable[[Address], Capabilities | None]
    ) -> None:
        self._ids = ids
        self._clock = clock
        self._capabilities = capabilities

    def capabilities(self, address: str) -> Capabilities | None:
        """What the platform can do that this address belongs to; None while it is not there."""
        return self._capabilities(read_address(address))

    def item(
        self,
        notice: str,
        address: str,
        fields: Fields,
        *,
        urgent: bool = False,
        name: str = "",
        turn: str | None = None,
        origin: str = "",
    ) -> Item:
        """Write one notice; under a name that was used before it takes the older one's place.

        `origin` is of what it answers, see `gateway.inbound.reader.origin_of`.
        """
        if origin and not name:
            name = f"n_{origin}.{notice}"
        can = self._capabilities(read_address(address))
        most = can.buttons if can else 0
        buttons = tuple(
            Button(label, f"{action}:{turn}" if turn else action)
            for label, action in BUTTONS.get(notice, ())[:most]
        )
        text = render(notice, fields, command_form(can))
        return Item(
            id=name or self._ids.new("n"),
            address=address,
            kind="notice",
            state=ItemState.PENDING,
            body=write_body(Body(text=text, buttons=buttons, urgent=urgent)),
            created_at=self._clock.now(),
            turn_id=turn,
        )

    def say(self, says: Iterable[Say]) -> tuple[Change, ...]:
        """Write what the session machine wants people to be told."""
        return tuple(
            PutItem(
                self.item(
                    say.notice,
                    say.address,
                    say.fields,
                    urgent=say.urgent,
                    name=say.item,
                    turn=say.turn,
                    origin=say.origin,
                )
            )
            for say in says
        )
