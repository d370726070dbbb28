"""For all tests: what was skipped is said loudly, and in CI it is a failure."""

import asyncio
import gc
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import hypothesis
import pytest
from pytest_asyncio.plugin import LoopFactory

from tests.fakes.compiled_statements import compile_once
from tests.fakes.patient_time import PatientLoop
from tests.fakes.quick_time import QuickLoop

MEMORY = Path("/dev/shm")  # noqa: S108 - pytest makes a folder of its own in it
ENOUGH = 4 * 1024**3

# The machine may be busy: no deadline, and each run draws others of so many examples.
hypothesis.settings.register_profile("holdfast", deadline=None, max_examples=60)
hypothesis.settings.load_profile("holdfast")


def pytest_configure() -> None:
    """The test runner makes a loop for the first test that is not async, and never closes it."""
    asyncio.set_event_loop(None)
    _keep_files_in_memory()
    compile_once()
    gc.disable()  # until the tests are collected


def pytest_collection_finish() -> None:
    """Exclude modules and collected tests from every later garbage collection: 10 % of the CPU."""
    gc.freeze()
    gc.set_threshold(10_000)  # of 700: another 5 %
    gc.enable()


def _keep_files_in_memory() -> None:
    """What is synced to a disk takes as long as whatever else writes there; no test is about that."""
    if (
        "TMPDIR" not in os.environ  # noqa: TID251 - not our configuration
        and os.access(MEMORY, os.W_OK)
        and shutil.disk_usage(MEMORY).free > ENOUGH
    ):
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)  # noqa: TID251 - as above


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, LoopFactory]:
    """No test is hurried by a busy machine; those with the mark `quick` do not wait either."""
    quick = item.get_closest_marker("quick")
    return {"quick": QuickLoop} if quick else {"patient": PatientLoop}


@pytest.fixture
def patient_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool server may take longer to start on a busy machine than a daemon waits for it."""
    from agent.tools.mcp.servers import McpServers  # noqa: PLC0415 - few tests have servers

    defaults = McpServers.__init__.__kwdefaults__
    assert defaults
    monkeypatch.setitem(defaults, "start_seconds", 25.0)


def _skipped(config: pytest.Config) -> list[pytest.TestReport | pytest.CollectReport]:
    reporter: pytest.TerminalReporter | None = config.pluginmanager.get_plugin("terminalreporter")
    return list(reporter.stats.get("skipped", [])) if reporter else []


def _in_ci() -> bool:
    return os.environ.get("CI", "").lower() in {"1", "true"}  # noqa: TID251 - not our configuration


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    skipped = _skipped(config)
    if not skipped:
        return
    verdict = "a failure in CI" if _in_ci() else "install what is missing to have all of it tested"
    terminalreporter.section(f"NOT TESTED: {len(skipped)} skipped", sep="!", red=True, bold=True)
    for report in skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        terminalreporter.write_line(f"{report.nodeid}: {reason}", red=True)
    terminalreporter.write_line(f"({verdict})", red=True)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if _in_ci() and _skipped(session.config) and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
