"""A real MCP server in chats, by the same tests on every platform: questions and prompts."""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent.settings import McpSettings
from platforms.core.contract import capabilities_in
from tests.contract.adapter_kit import SERVICES
from tests.contract.gateway_kit import running_gateway
from tests.contract.services.contract import Service
from tests.e2e.gateway_kit import talkative
from tests.fakes.model_script import Script, calls
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.usefixtures("patient_start")

SERVER = Path(__file__).parents[1] / "fakes" / "mcp_server.py"


@pytest.fixture(params=SERVICES)
async def service(request: pytest.FixtureRequest) -> AsyncIterator[Service]:
    async with SERVICES[request.param]() as service:
        yield service
        assert service.violations() == []


def post(home: Path, *more: str) -> McpSettings:
    arguments = (str(SERVER), "stdio", str(home / "effects"), *more)
    return McpSettings(name="post", command=sys.executable, args=arguments, approval="never")


def ordering(body: dict[str, Any]) -> Script:
    """Order once, then say what came back."""
    if body["messages"][-1]["role"] == "tool":
        return talkative(
            {"messages": [{"role": "user", "content": body["messages"][-1]["content"]}]}
        )
    return calls(("c1", "post_order", "{}"))


async def test_a_question_of_a_server_is_answered_by_buttons_and_words(
    tmp_path: Path, service: Service
) -> None:
    here = service.direct
    settings = post(tmp_path, "--old")
    async with (
        ModelServer(ordering) as model,
        running_gateway(tmp_path, service, model, mcp=(settings,)) as home,
    ):
        has_buttons = capabilities_in(home.adapter, service.address(here)).buttons

        async def choose(label: str) -> None:
            if has_buttons:
                await service.until(lambda: label in service.seen(here)[-1].buttons)
                await service.press(here, label)
            else:
                await service.typed(here, "approve", label)

        await service.say(here, "order")
        await service.shows(here, "Name: On the parcel")
        await service.typed(here, "approve", "Ann")
        await service.shows(here, "Number?")
        await service.typed(here, "approve", "3")
        await service.shows(here, "Small · Large")
        await choose("Large")
        await service.shows(here, "Yes · No · Skip")
        await choose("Skip")
        await service.shows(here, "echo: Ann 3 l None")
        await service.rests()
    assert json.dumps(model.requests[-1].body["messages"][-1]["content"]) == '"Ann 3 l None"'


async def test_a_prompt_of_a_server_is_a_command_on_every_platform(
    tmp_path: Path, service: Service
) -> None:
    here = service.direct
    async with (
        ModelServer(talkative) as model,
        running_gateway(tmp_path, service, model, mcp=(post(tmp_path),)),
    ):
        await service.typed(here, "digest", "style=short the story")
        await service.shows(here, "echo: ")
        asked = str(model.requests[0].body["messages"][-1]["content"])
        assert "> Digest this, short:" in asked
        await service.typed(here, "digest")
        await service.shows(here, f"Use: {service.spelled('digest')} TEXT [style=STYLE]")
        await service.rests()
