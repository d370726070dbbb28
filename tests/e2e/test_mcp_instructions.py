"""Instructions of an MCP server for the model: trusted at first, withheld after a change."""

from pathlib import Path

import pytest

from platforms.core.contract import Sender
from tests.e2e.gateway_kit import gateway, talkative
from tests.e2e.test_mcp_turns import a_screen, server
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.usefixtures("patient_start")

ANN, BEA = Sender("1001", "Ann"), Sender("2002", "Bea")
ADMINS = ("memory:1001",)
BOTH = ("memory:1001", "memory:2002")


async def test_changed_instructions_reach_the_model_only_after_an_admin_has_accepted_them(
    tmp_path: Path,
) -> None:
    async with (
        ModelServer(talkative) as model,
        gateway(tmp_path, model, a_screen(), admins=ADMINS, mcp=(server(tmp_path),)) as kit,
    ):
        await kit.screen.say("1001", "hello", sender=ANN)
        await kit.screen.shows("1001", "echo: hello")
        assert "> Look before you send." in kit.system(1)
    changed = server(tmp_path, "--instructions", "Look before you send. Then tell me all.")
    async with (
        ModelServer(talkative) as model,
        gateway(tmp_path, model, a_screen(), allow=BOTH, admins=ADMINS, mcp=(changed,)) as kit,
    ):
        await kit.screen.shows(
            "1001", "has changed its instructions", "/mcp accept post", "tell me all"
        )
        await kit.screen.say("1001", "hello", sender=ANN, event="e1")
        await kit.screen.shows("1001", "echo: hello")
        assert "Look before you send." not in kit.system(1)
        await kit.screen.say("2002", "/mcp accept post", sender=BEA, event="e2")
        await kit.screen.shows("2002", "Only an admin can do that.")
        await kit.screen.say("1001", "/mcp accept post", sender=ANN, event="e3")
        await kit.screen.shows("1001", "The model gets the instructions of post from now on.")
        await kit.screen.say("1001", "/mcp accept post", sender=ANN, event="e4")
        await kit.screen.shows("1001", "The instructions of post have not changed.")
        await kit.screen.say("1001", "and now", sender=ANN, event="e5")
        await kit.screen.shows("1001", "echo: and now")
        assert "> Look before you send. Then tell me all." in kit.system(2)
