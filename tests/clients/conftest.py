"""Tests with third-party programs: long time limits, and nothing of this run's own tools."""

import pytest

MINUTES = 20 * 60


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test time for an installation."""
    for item in items:
        if "tests/clients" in item.path.as_posix():
            item.add_marker(pytest.mark.timeout(MINUTES))
