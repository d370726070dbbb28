"""A model or an MCP server that does not work is visible, and leaves the gateway ready."""

import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from aiohttp import web

from agent.settings import McpSettings
from gateway.access.settings import AccessSettings
from gateway.settings import HttpSettings
from platforms.core.contract import Sender
from tests.e2e.gateway_kit import ME, GatewayKit, Nothing, gateway, talkative
from tests.fakes.gateway_settings import scripted, scripted_model
from tests.fakes.model_script import Script
from tests.fakes.model_server import ModelServer

MEMBER = Sender("1002")


@contextlib.asynccontextmanager
async def refusing(status: int) -> AsyncIterator[str]:
    """Serve this status at every address."""

    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=status)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", refuse)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    finally:
        await runner.cleanup()


def degraded(kit: GatewayKit) -> dict[str, str]:
    found = kit.runner._read_status()["degraded"]
    assert isinstance(found, dict)
    return found


async def readiness(kit: GatewayKit) -> tuple[int, dict[str, Any]]:
    async with httpx2.AsyncClient(trust_env=False) as client:
        answer = await client.get(f"{kit.runner.url}readyz")
    return answer.status_code, answer.json()


@pytest.mark.parametrize("script", ["S401", "S503"])
async def test_a_failing_model_is_degraded_until_it_answers(tmp_path: Path, script: Script) -> None:
    works = False

    def answer(body: dict[str, Any]) -> Script:
        return talkative(body) if works else script

    async with (
        ModelServer(answer) as model,
        gateway(
            tmp_path,
            model,
            served=True,
            http=HttpSettings(port=0),
            admins=(f"memory:{ME}",),
            allow=("memory:1002",),
        ) as kit,
    ):
        assert degraded(kit) == {}
        await kit.screen.say("1002", "Hello", sender=MEMBER)
        await kit.screen.until("1002", lambda _: degraded(kit) != {}, 30.0)
        ((name, cause),) = degraded(kit).items()
        assert name.startswith("model ")
        status, body = await readiness(kit)
        assert (status, body["ready"], body["degraded"]) == (200, True, [name])
        await kit.screen.say(ME, "/status")
        await kit.screen.shows(ME, f"⚠️ {name}: {cause}")
        await kit.screen.say("1002", "/status", sender=MEMBER)
        await kit.screen.shows("1002", "No active task")
        assert not any(name in text for text in kit.screen.screen("1002"))
        works = True
        await kit.screen.say("1002", "again", sender=MEMBER)
        await kit.screen.shows("1002", "echo: again")
        await kit.screen.until("1002", lambda _: degraded(kit) == {})
        assert "degraded" not in (await readiness(kit))[1]


async def test_a_failing_model_is_degraded_after_a_restart_until_it_answers(tmp_path: Path) -> None:
    works = False

    def answer(body: dict[str, Any]) -> Script:
        return talkative(body) if works else "S401"

    async with ModelServer(answer) as model:
        async with gateway(tmp_path, model, admins=("memory:9",)) as kit:
            await kit.screen.say(ME, "Hello")
            await kit.screen.until(ME, lambda _: degraded(kit) != {}, 30.0)
            before = degraded(kit)
        asked = len(model.requests)
        async with gateway(tmp_path, model, admins=("memory:9",)) as kit:
            assert degraded(kit) == before
            assert len(model.requests) == asked  # the start asks no model
            works = True
            await kit.screen.say(ME, "again", event="later")
            await kit.screen.shows(ME, "echo: again")
            await kit.screen.until(ME, lambda _: degraded(kit) == {})
        async with gateway(tmp_path, model, admins=("memory:9",)) as kit:
            assert degraded(kit) == {}


async def test_a_failing_model_that_is_no_longer_configured_is_not_shown(tmp_path: Path) -> None:
    async with ModelServer(lambda _: "S401") as model, ModelServer(talkative) as other:
        async with gateway(tmp_path, model, admins=("memory:9",)) as kit:
            await kit.screen.say(ME, "Hello")
            await kit.screen.until(ME, lambda _: degraded(kit) != {}, 30.0)
        renamed = scripted_model(other, name="another")
        settings = scripted(other, {"memory": Nothing()}, AccessSettings(), model=renamed)
        async with gateway(tmp_path, other, settings=settings) as kit:
            assert degraded(kit) == {}


@pytest.mark.usefixtures("patient_start")
@pytest.mark.parametrize("fault", ["401", "405", "no program", "dies"])
async def test_an_mcp_server_that_does_not_work_is_degraded(tmp_path: Path, fault: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        if fault.isdigit():
            url = await stack.enter_async_context(refusing(int(fault)))
            server = McpSettings(name="shop", url=url)
        elif fault == "no program":
            server = McpSettings(name="shop", command=str(tmp_path / "missing"))
        else:
            server = McpSettings(
                name="shop", command=sys.executable, args=("-c", "raise SystemExit(3)")
            )
        model = await stack.enter_async_context(ModelServer(talkative))
        kit = await stack.enter_async_context(
            gateway(
                tmp_path,
                model,
                served=True,
                http=HttpSettings(port=0),
                mcp=(server,),
                admins=(f"memory:{ME}",),
            )
        )
        assert degraded(kit)["MCP server shop"].startswith("not connected: ")
        status, body = await readiness(kit)
        assert (status, body["degraded"]) == (200, ["MCP server shop"])
        await kit.screen.say(ME, "/status")
        await kit.screen.shows(ME, "⚠️ MCP server shop: not connected")
