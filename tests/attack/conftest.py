"""The ledger of one run, and its table at the end."""

import pytest

from tests.attack.ledger import Ledger

LEDGER = Ledger()


@pytest.fixture
def ledger() -> Ledger:
    """Return the ledger of this run."""
    return LEDGER


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table."""
    if LEDGER.tried:
        terminalreporter.section("attacks")
        terminalreporter.write_line(LEDGER.table())
