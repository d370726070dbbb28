"""All adapters in use: where each is found, how they stand, and what they offer besides messages."""

from collections.abc import Callable, Iterator, Sequence

from starlette.routing import BaseRoute, Route

from gateway.connections.supervision import SupervisedAdapter
from gateway.delivery.outbox import Delivery
from platforms.core.contract import (
    Adapter,
    Address,
    Capabilities,
    OffersClaims,
    OffersHosts,
    OffersRoutes,
    capabilities_in,
)


class AdapterDirectory:
    """Each runs under a supervision of its own."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change  # told when one stands otherwise than before
        self._supervised: dict[tuple[str, str], SupervisedAdapter] = {}

    def __iter__(self) -> Iterator[SupervisedAdapter]:
        return iter(self._supervised.values())

    def add(self, adapter: Adapter, delivery: Delivery) -> None:
        """Supervise an adapter, and let it deliver while it is connected."""
        delivery.attach(adapter)
        self._supervised[adapter.name, adapter.account] = SupervisedAdapter(
            adapter,
            on_connected=lambda each: delivery.on_connected(each.name, each.account),
            on_disconnected=lambda each: delivery.on_disconnected(each.name, each.account),
            on_change=self._on_change,
        )

    def get(self, name: str, account: str = "") -> Adapter | None:
        """Find one of them."""
        found = self._supervised.get((name, account))
        return found.adapter if found else None

    def capabilities(self, address: Address) -> Capabilities | None:
        """What can be done there; None while nothing of ours reaches it."""
        found = self.get(address.platform, address.account)
        return capabilities_in(found, address) if found else None

    async def wait_first_attempts(self) -> None:
        """Wait until each was connected, or could not be, for the first time."""
        for each in self:
            await each.first_attempt_done.wait()

    # --- what they learn about themselves -------------------------------------------------------

    def on_credentials_refused(self, adapter: Adapter) -> None:
        """A platform did not take its credentials while something was delivered."""
        self._supervised[adapter.name, adapter.account].on_credentials_refused()

    def set_warning(self, platform: str, text: str) -> None:
        """Something disturbs a platform that is connected; no text: not any more."""
        for each in self:
            if each.adapter.name == platform:
                each.set_warning(text)

    # --- what they offer ------------------------------------------------------------------------

    def routes(self) -> Sequence[BaseRoute]:
        """Paths of theirs at the daemon's HTTP port."""
        return [
            route
            for each in self
            if isinstance(each.adapter, OffersRoutes)
            for route in each.adapter.routes()
        ]

    def hosts_by_path(self) -> dict[str, Sequence[str]]:
        """Under which names services reach these, by path."""
        return {
            route.path: each.adapter.hosts()
            for each in self
            if isinstance(each.adapter, OffersRoutes) and isinstance(each.adapter, OffersHosts)
            for route in each.adapter.routes()
            if isinstance(route, Route)
        }

    def claim_links(self, code: str) -> dict[str, str]:
        """Links that hand a claim code in, by platform; where there is none, people say it."""
        links = {
            each.name: each.adapter.claim_link(code)
            for each in self
            if isinstance(each.adapter, OffersClaims)
        }
        return {name: link for name, link in links.items() if link}
