"""Confinement and ledger of a run, and its table at the end."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

from tests.attack.ledger import Ledger
from tests.mutants.confine import can_confine, confine_writes

LEDGER = Ledger()
_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
_DANGER = pytest.StashKey[str]()  # the reason why nothing limits the writes of this run


@pytest.fixture(scope="session", autouse=True)
def confinement(
    pytestconfig: pytest.Config,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[None]:
    """Limit the writes of this process and its children, so that a hole does not damage the machine.

    The limit is permanent, and other tests in this process would fail under it.
    """
    if not can_confine():
        danger = "this kernel has no Landlock 3 (Linux 6.2)"
    elif not all(each.path.is_relative_to(_HERE) for each in request.session.items):
        danger = "the same process runs other tests"
    else:
        danger = ""
    if danger:
        pytestconfig.stash[_DANGER] = danger
        yield
        return
    folder = tmp_path_factory.getbasetemp()
    cache = _ROOT / ".pytest_cache"
    cache.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        patch.setenv("TMPDIR", str(folder))
        patch.setenv("npm_config_cache", str(folder / "npm"))
        patch.setenv("PIP_CACHE_DIR", str(folder / "pip"))
        # Coverage writes a file for each process into the checkout.
        confine_writes(folder, _ROOT if coverage.Coverage.current() else cache)
        yield


@pytest.fixture
def confined(pytestconfig: pytest.Config) -> None:
    """Skip the test if nothing limits the writes of this run."""
    if danger := pytestconfig.stash.get(_DANGER, ""):
        pytest.skip(danger)


@pytest.fixture
def ledger() -> Ledger:
    """Return the ledger of this run."""
    return LEDGER


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the table, and a warning if the run was not confined."""
    if LEDGER.tried:
        terminalreporter.section("attacks")
        terminalreporter.write_line(LEDGER.table())
    if danger := config.stash.get(_DANGER, ""):
        terminalreporter.section("NOT CONFINED", sep="!", red=True, bold=True)
        terminalreporter.write_line(
            f"A hole could have changed files of this machine, because {danger}.", red=True
        )
