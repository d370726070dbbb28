"""Fixtures for tests of whole turns."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.agent.turn_kit import Play


@pytest.fixture
async def play(tmp_path: Path) -> AsyncIterator[Play]:
    stages = Play(tmp_path)
    yield stages
    for stage in stages.stages:
        for target in stage.targets:
            await target.provider.aclose()
        for server in stage.servers:
            await server.__aexit__(None, None, None)
