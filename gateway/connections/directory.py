"""All adapters in use: lookup, state, and the features they offer besides messages."""

from collections.abc import Callable, Iterator, Sequence

from starlette.routing import BaseRoute, Route

from gateway.connections.supervision import ConnectionState, SupervisedAdapter
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
from platforms.core.errors import Unauthorized


class AdapterDirectory:
    """The adapters, each under its own supervision."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change  # called after a connection's state has changed
        self._supervised: dict[tuple[str, str], SupervisedAdapter] = {}

    def __iter__(self) -> Iterator[SupervisedAdapter]:
        return iter(self._supervised.values())

    def add(self, adapter: Adapter, delivery: Delivery) -> None:
        """Supervise an adapter, and deliver through the adapter while connected."""
        delivery.attach(adapter)
        self._supervised[adapter.name, adapter.account] = SupervisedAdapter(
            adapter,
            on_connected=lambda supervised: delivery.on_connected(
                supervised.name, supervised.account
            ),
            on_disconnected=lambda supervised: delivery.on_disconnected(
                supervised.name, supervised.account
            ),
            on_change=self._on_change,
        )

    def get(self, name: str, account: str = "") -> Adapter | None:
        """Return an adapter."""
        found = self._supervised.get((name, account))
        return found.adapter if found else None

    def capabilities(self, address: Address) -> Capabilities | None:
        """Return the capabilities of a chat; None without an adapter."""
        found = self.get(address.platform, address.account)
        return capabilities_in(found, address) if found else None

    def disconnection(self, name: str, account: str = "") -> str:
        """Return why an adapter is not connected; empty while it is."""
        found = self._supervised.get((name, account))
        if found is None or found.state is ConnectionState.CONNECTED:
            return ""
        return found.problem

    async def wait_first_attempts(self) -> None:
        """Wait until every adapter has connected or failed for the first time."""
        for supervised in self:
            await supervised.first_attempt_done.wait()

    # --- state reported by others ---------------------------------------------------------------

    def on_credentials_refused(self, adapter: Adapter, error: Unauthorized) -> None:
        """Mark an adapter whose credentials were refused during a delivery."""
        self._supervised[adapter.name, adapter.account].on_credentials_refused(error)

    def set_warning(self, platform: str, text: str) -> None:
        """Set the warning of a connected platform; an empty text clears it."""
        for supervised in self:
            if supervised.adapter.name == platform:
                supervised.set_warning(text)

    # --- optional features ----------------------------------------------------------------------

    def routes(self) -> Sequence[BaseRoute]:
        """Return the adapters' routes on the daemon's HTTP port."""
        return [
            route
            for supervised in self
            if isinstance(supervised.adapter, OffersRoutes)
            for route in supervised.adapter.routes()
        ]

    def hosts_by_path(self) -> dict[str, Sequence[str]]:
        """Return the host names under which services reach the adapters' routes, by path."""
        return {
            route.path: supervised.adapter.hosts()
            for supervised in self
            if isinstance(supervised.adapter, OffersRoutes)
            and isinstance(supervised.adapter, OffersHosts)
            for route in supervised.adapter.routes()
            if isinstance(route, Route)
        }

    def claim_links(self, code: str) -> dict[str, str]:
        """Return links that submit a claim code, for the platforms that have them."""
        links = {
            supervised.name: supervised.adapter.claim_link(code)
            for supervised in self
            if isinstance(supervised.adapter, OffersClaims)
        }
        return {name: link for name, link in links.items() if link}
