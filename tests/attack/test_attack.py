"""The short form of `make attack`: every row of the tables, in a few gateways."""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.attack import alone, answers, insiders, port, servers, strangers, wires
from tests.attack.chats import HOOK_DOORS, SOCKET_DOORS
from tests.attack.ledger import Ledger, Row, attack
from tests.attack.stage import Gate, gate, prepare

pytestmark = pytest.mark.timeout(300)  # a test has hundreds of rows, each with its own deadline


@pytest.mark.usefixtures("confined")
def test_this_process_cannot_change_files_of_the_machine(tmp_path: Path) -> None:
    for path in ("/etc/passwd", os.fspath(tmp_path.parents[1] / "other")):
        with pytest.raises(PermissionError):
            os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    (tmp_path / "own").write_text("kept")


@pytest.mark.quick
async def test_no_stranger_gets_in(tmp_path: Path, ledger: Ledger) -> None:
    async with gate(tmp_path) as stage:
        bait = await prepare(stage)
        rows = [*strangers.rows(stage, SOCKET_DOORS, bait), *wires.repeated(), *wires.unreadable()]
        await held_against(stage, rows, ledger)


@pytest.mark.quick
async def test_no_member_gets_the_authority_of_others(tmp_path: Path, ledger: Ledger) -> None:
    async with gate(tmp_path) as stage:
        bait = await prepare(stage)
        await held_against(
            stage, [*insiders.rows(bait), *insiders.injected(), *insiders.framed()], ledger
        )


@pytest.mark.quick
async def test_answers_show_nothing_harmful(tmp_path: Path, ledger: Ledger) -> None:
    async with gate(tmp_path) as stage:
        await prepare(stage)
        owner = await port.sign_in(stage)
        await held_against(
            stage, [*answers.rows(), *answers.page_rows(owner.path, owner.all)], ledger
        )


@pytest.mark.quick
async def test_webhooks_hold(tmp_path: Path, ledger: Ledger) -> None:
    async with gate(tmp_path, webhooks=True) as stage:
        bait = await prepare(stage)
        rows = [
            *strangers.rows(stage, HOOK_DOORS, bait),
            *wires.forged_telegram(),
            *wires.forged_slack(bait),
        ]
        await held_against(stage, rows, ledger)


async def held_against(stage: Gate, rows: Iterable[Row], ledger: Ledger) -> None:
    """Try all rows; nothing may get through, or change what only an admin may change."""
    before = await stage.standing()
    assert await attack(stage, rows, ledger) == []
    assert await stage.standing() == before


@pytest.mark.quick
async def test_the_port_holds(tmp_path: Path, ledger: Ledger) -> None:
    async with gate(tmp_path) as stage:
        await prepare(stage)
        link = str(await stage.runner.operations["link"](base_url=None))
        async with stage.http.get(link, allow_redirects=False) as answer:
            assert answer.status == 303
        stage.http.cookie_jar.clear()
        owner, other = await port.sign_in(stage), await port.sign_in(stage)
        status, _ = await port.ask(stage, "GET", "/web/chats", headers=owner.cookie)
        assert status == 200
        rows = [
            *port.without_a_key(stage),
            *port.across_sites(stage, owner, other),
            *port.sessions(owner, link),
            *port.downloads(owner),
            *port.bodies(owner),
            *port.conversations(),
            *port.unattended(),
            *port.smuggled(),
        ]
        await held_against(stage, rows, ledger)


@pytest.mark.quick
async def test_no_tool_leaves_its_workspace(tmp_path: Path, ledger: Ledger) -> None:
    (tmp_path / "names").mkdir()
    rows = [*await alone.workspace_rows(tmp_path), *await alone.name_rows(tmp_path / "names")]
    assert await attack(alone.Alone(), rows, ledger) == []


async def test_no_fetch_reaches_a_private_address(ledger: Ledger) -> None:
    assert await attack(alone.Alone(), await alone.fetch_rows(), ledger) == []


async def test_the_control_socket_holds(tmp_path: Path, ledger: Ledger) -> None:
    assert await attack(alone.Alone(), await alone.control_rows(tmp_path), ledger) == []


async def test_no_found_configuration_takes_over(tmp_path: Path, ledger: Ledger) -> None:
    assert await attack(alone.Alone(), await alone.config_rows(tmp_path), ledger) == []


@pytest.mark.usefixtures("patient_start")
async def test_no_tool_server_gets_more_than_its_calls(tmp_path: Path, ledger: Ledger) -> None:
    servers.furnish(tmp_path)
    servers.script(tmp_path)
    async with servers.household(tmp_path, servers.program(tmp_path)) as house:
        assert await attack(house, servers.rows(house.name), ledger) == []
    pulls = tmp_path / "pulls"
    pulls.mkdir()
    assert await attack(house, await servers.rug_pull_rows(pulls), ledger) == []


async def test_no_tool_server_by_http_gets_more_than_its_calls(
    tmp_path: Path, ledger: Ledger
) -> None:
    servers.furnish(tmp_path)
    servers.script(tmp_path)
    async with (
        servers.HttpServer(tmp_path).open() as server,
        servers.household(tmp_path, server.settings()) as house,
    ):
        rows = [each for each in servers.rows(house.name) if "requests" not in each.trick]
        assert await attack(house, rows, ledger) == []
        assert await attack(house, [await servers.redirect_row(house, server)], ledger) == []
