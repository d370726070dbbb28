"""Live checks of tokens, keys and model servers."""

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
    """Checks that the set-up makes right after each answer."""

    def probe_bot(self, spec: PlatformSpec, config: Struct) -> ProbeResult | None:
        """See `Probe`; returns None if checks are off or impossible."""
        ...

    def probe_model(self, settings: TargetSettings, *, answers: bool) -> ProbedModel | None:
        """See `probe_model`; returns None if checks are off."""
        ...

    def find_servers(self) -> Sequence[LocalModelServer]:
        """Find model servers on this machine."""
        ...


class LiveChecks:
    """Checks against the real services; see `SetupChecks`."""

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
    """Checks nothing, for `--no-check`; see `SetupChecks`."""

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
