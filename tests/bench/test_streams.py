"""The measurement of many streams at once works; its numbers are for `make bench` to judge."""

from pathlib import Path

import pytest

from tests.bench.streams import Load, stream
from tests.fakes.dialects.steps import PROTOCOLS, ProtocolName


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_every_token_of_every_stream_is_measured(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    load = Load(streams=20, interval=0.02, seconds=0.4, protocol=protocol)
    outcome = await stream(load, tmp_path)
    assert len(outcome.delays) == outcome.service.tokens == load.streams * load.times
    assert all(0 < delay < 5 for delay in outcome.delays)
    assert outcome.cpu > 0
    assert f"{protocol}: 20 turns" in outcome.words()
