"""Asks platforms and services whether it all works."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from agent.probe import ProbedModel, probe_model
from agent.settings import TargetSettings
from gateway.operate.setup.local_servers import SERVER_PORTS, LocalModelServer, find_servers
from platforms.core.contract import PlatformSpec
from platforms.core.probed import ProbeResult
from sessions.values.clock import Clock


class SetupChecks(Protocol):
    """What can be found out at once."""

    def probe_bot(self, spec: PlatformSpec, config: Struct) -> ProbeResult | None:
        """See `Probe`; None when it is not asked."""
        ...

    def probe_model(self, settings: TargetSettings, *, answers: bool) -> ProbedModel | None:
        """See `probe_model`; None when it is not asked."""
        ...

    def find_servers(self) -> Sequence[LocalModelServer]:
        """Model servers on this machine."""
        ...


class LiveChecks:
    """Really asks; see `SetupChecks`."""

    def __init__(self, clock: Clock, ports: Mapping[int, str] = SERVER_PORTS) -> None:
        self._clock = clock
        self._ports = ports

    def probe_bot(self, spec: PlatformSpec, config: Struct) -> ProbeResult | None:
        """See `SetupChecks`."""
        return asyncio.run(spec.probe(config)) if spec.probe else None

    def probe_model(self, settings: TargetSettings, *, answers: bool) -> ProbedModel | None:
        """See `SetupChecks`."""
        return asyncio.run(probe_model(settings, clock=self._clock, request_answers=answers))

    def find_servers(self) -> Sequence[LocalModelServer]:
        """See `SetupChecks`."""
        return asyncio.run(find_servers(self._clock, self._ports))


class NoChecks:
    """Asks nobody; see `SetupChecks`."""

    def probe_bot(self, spec: PlatformSpec, config: Struct) -> ProbeResult | None:
        """See `SetupChecks`."""
        del spec, config
        return None

    def probe_model(self, settings: TargetSettings, *, answers: bool) -> ProbedModel | None:
        """See `SetupChecks`."""
        del settings, answers
        return None

    def find_servers(self) -> Sequence[LocalModelServer]:
        """See `SetupChecks`."""
        return ()
