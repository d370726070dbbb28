"""Asks platforms and services whether it all works."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from agent.probe import ProbedModel, probe_model
from agent.settings import TargetSettings
from gateway.operate.setup.servers import PORTS, Server, look
from platforms.core.contract import PlatformSpec
from platforms.core.probed import Probed
from sessions.values.clock import Clock


class Checks(Protocol):
    """What can be found out at once."""

    def bot(self, spec: PlatformSpec, config: Struct) -> Probed | None:
        """See `Probe`; None when it is not asked."""
        ...

    def model(self, settings: TargetSettings, *, answers: bool) -> ProbedModel | None:
        """See `probe_model`; None when it is not asked."""
        ...

    def servers(self) -> Sequence[Server]:
        """Model servers on this machine."""
        ...


class Live:
    """Really asks; see `Checks`."""

    def __init__(self, clock: Clock, ports: Mapping[int, str] = PORTS) -> None:
        self._clock = clock
        self._ports = ports

    def bot(self, spec: PlatformSpec, config: Struct) -> Probed | None:
        """See `Checks`."""
        return asyncio.run(spec.probe(config)) if spec.probe else None

    def model(self, settings: TargetSettings, *, answers: bool) -> ProbedModel | None:
        """See `Checks`."""
        return asyncio.run(probe_model(settings, clock=self._clock, answers=answers))

    def servers(self) -> Sequence[Server]:
        """See `Checks`."""
        return asyncio.run(look(self._clock, self._ports))


class Unchecked:
    """Asks nobody; see `Checks`."""

    def bot(self, spec: PlatformSpec, config: Struct) -> Probed | None:
        """See `Checks`."""
        del spec, config
        return None

    def model(self, settings: TargetSettings, *, answers: bool) -> ProbedModel | None:
        """See `Checks`."""
        del settings, answers
        return None

    def servers(self) -> Sequence[Server]:
        """See `Checks`."""
        return ()
