"""In a scenario gateway, model and platform live in one process, so nothing is waited for in vain."""

from collections.abc import Mapping

from pytest_asyncio.plugin import LoopFactory

from tests.fakes.quick_time import QuickLoop


def pytest_asyncio_loop_factories() -> Mapping[str, LoopFactory]:
    """See `QuickLoop`."""
    return {"quick": QuickLoop}
