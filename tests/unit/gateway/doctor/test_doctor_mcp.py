"""Doctor checks of MCP servers, by trial connections."""

import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from agent.settings import McpSettings
from gateway.operate.doctor.context import DaemonInfo
from gateway.operate.doctor.mcp import mcp_checks
from gateway.operate.doctor.run import run_checks
from sessions.values.clock import SystemClock
from tests.fakes.case import case_of, only

ODD_SERVER = Path(__file__).parents[3] / "fakes" / "mcp_odd_server.py"
SERVERS = (
    McpSettings(name="odd", command=sys.executable, args=(str(ODD_SERVER), "old")),
    McpSettings(name="gone", command="/no/such/program"),
    McpSettings(name="off", command="/no/such/program", disabled=True),
)


@pytest.mark.process
async def test_each_server_is_tried(tmp_path: Path) -> None:
    case = replace(case_of(tmp_path, mcp=SERVERS), clock=SystemClock())
    (group,) = await run_checks([*mcp_checks(case)], case)
    assert only(group.findings, "odd").text == "3 tools"
    gone = only(group.findings, "gone")
    assert (gone.level, gone.text) == ("warn", "there is no program '/no/such/program'")
    assert len(group.findings) == 2


def test_a_running_gateway_reports_about_its_servers_itself(tmp_path: Path) -> None:
    case = replace(case_of(tmp_path, mcp=SERVERS), daemon=DaemonInfo(running=True))
    assert list(mcp_checks(case)) == []
