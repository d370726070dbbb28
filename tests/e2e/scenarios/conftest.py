"""Event loop for scenarios: everything runs in one process, so waits can be skipped."""

from collections.abc import Mapping

from pytest_asyncio.plugin import LoopFactory

from tests.fakes.quick_time import QuickLoop


def pytest_asyncio_loop_factories() -> Mapping[str, LoopFactory]:
    """Run the scenarios on `QuickLoop`."""
    return {"quick": QuickLoop}
