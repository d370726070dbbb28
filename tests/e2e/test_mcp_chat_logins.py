"""Logins at MCP servers by a link in a chat: a real server with OAuth, the whole gateway."""

import contextlib
import json
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import msgspec
import pytest

from agent.settings import McpSettings
from gateway.observe.redact import Redactor
from platforms.core.contract import Address, InboundMessage, Sender, Text
from tests.e2e.gateway_kit import GatewayKit, gateway, talkative
from tests.e2e.test_mcp_turns import a_screen, calling
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.usefixtures("patient_start")

ANN, BEA = Sender("1001", "Ann"), Sender("2002", "Bea")
ADMINS = ("memory:1001",)
BOTH = ("memory:1001", "memory:2002")
SERVER = Path(__file__).parents[1] / "fakes" / "mcp_login_server.py"
OPEN = "H C(0,c1,vault_open_sesame,{}) F tool_calls U D"


@contextlib.contextmanager
def guarded(*options: str, **fields: object) -> Iterator[McpSettings]:
    """Run a server with a login."""
    with subprocess.Popen(
        [sys.executable, str(SERVER), *options], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().decode().strip()
            base = McpSettings(name="vault", url=url, approval="never")
            yield msgspec.structs.replace(base, **fields)  # type: ignore[arg-type]  # its fields
        finally:
            process.kill()


async def link(kit: GatewayKit, chat: str = "1001", sender: Sender = ANN) -> str:
    """Ask for a login and return the address of its page."""
    before = len(kit.screen.messages(chat))
    await kit.screen.say(chat, "/mcp login vault", sender=sender)
    shown = await kit.screen.until(
        chat, lambda messages: any("Log in at vault" in each.text for each in messages[before:])
    )
    text = next(each.text for each in shown[before:] if "Log in at vault" in each.text)
    found = re.search(r"http://\S+authorize\?[^\s>)]+", text)
    assert found, text
    return found[0]


async def redirected(address: str) -> str:
    """Log in on the page; return the address to which the browser is sent."""
    async with httpx2.AsyncClient() as browser:
        page = await browser.get(address, follow_redirects=False)
    return str(page.headers["location"])


async def test_a_login_by_the_link_ends_with_the_redirect_to_this_machine(tmp_path: Path) -> None:
    with guarded() as vault:
        async with (
            ModelServer(calling(OPEN)) as model,
            gateway(tmp_path, model, a_screen(), admins=ADMINS, mcp=(vault,)) as kit,
        ):
            await kit.screen.shows("1001", "The MCP server vault needs a login. /mcp login vault")
            address = await link(kit)
            async with httpx2.AsyncClient() as browser:
                page = await browser.get(address, follow_redirects=True)
            assert "You are logged in" in page.text
            await kit.screen.shows("1001", "🔑 Logged in at vault.")
            await kit.mcp_is_connected()
            await kit.screen.say("1001", "open it", sender=ANN)
            rows = [each for each in await kit.asked(2) if each["role"] == "tool"]
            assert rows[-1]["content"] == "gold"
        file = tmp_path / "mcp-tokens" / "vault.json"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_a_pasted_address_finishes_the_login_and_never_reaches_the_model(
    tmp_path: Path,
) -> None:
    with guarded() as vault:
        async with (
            ModelServer(talkative) as model,
            gateway(tmp_path, model, a_screen(), admins=ADMINS, mcp=(vault,)) as kit,
        ):
            pasted = await redirected(await link(kit))
            assert re.match(r"http://127\.0\.0\.1:\d+/callback\?code=", pasted)
            await kit.screen.say("1001", pasted.replace("state=", "state=x"), sender=ANN)
            await kit.screen.shows("1001", "This doesn't belong to an open login.")
            await kit.screen.say("1001", pasted, sender=ANN)
            await kit.screen.shows("1001", "🔑 Logged in at vault.")
            await kit.screen.say("1001", pasted, sender=ANN)  # once more: the login is over
            assert model.requests == []


async def test_the_code_alone_finishes_the_login(tmp_path: Path) -> None:
    with guarded() as vault:
        async with (
            ModelServer(talkative) as model,
            gateway(tmp_path, model, a_screen(), admins=ADMINS, mcp=(vault,)) as kit,
        ):
            pasted = await redirected(await link(kit))
            code = re.search(r"code=([^&]+)", pasted)
            assert code
            await kit.screen.say("1001", f"/mcp login vault {code[1]}", sender=ANN)
            await kit.screen.shows("1001", "🔑 Logged in at vault.")
            assert model.requests == []


async def test_only_admins_in_private_chats_log_in_for_all(tmp_path: Path) -> None:
    with guarded() as vault:
        async with (
            ModelServer(talkative) as model,
            gateway(tmp_path, model, a_screen(), allow=BOTH, admins=ADMINS, mcp=(vault,)) as kit,
        ):
            await kit.screen.say("2002", "/mcp login vault", sender=BEA)
            await kit.screen.shows("2002", "Only an admin can do that.")
            room = InboundMessage(
                id="m1",
                at=kit.screen._clock.now(),
                address=Address("memory", "-5"),
                sender=ANN,
                parts=(Text("/mcp login vault"),),
                addressed=True,
            )
            await kit.screen.inject(room)
            await kit.screen.shows("-5", "Please log in in a private chat with me")
            pasted = await redirected(await link(kit))
            await kit.screen.say("2002", pasted, sender=BEA)  # the login of another person
            await kit.screen.shows("2002", "This doesn't belong to an open login.")
            await kit.screen.say("1001", "/mcp login nowhere", sender=ANN)
            await kit.screen.shows("1001", "There's no MCP server “nowhere” here.")


async def test_a_refused_login_says_why_and_keeps_the_earlier_one(tmp_path: Path) -> None:
    with guarded() as vault:
        async with (
            ModelServer(talkative) as model,
            gateway(tmp_path, model, a_screen(), admins=ADMINS, mcp=(vault,)) as kit,
        ):
            await kit.screen.say("1001", await redirected(await link(kit)), sender=ANN)
            await kit.screen.shows("1001", "🔑 Logged in at vault.")
            file = tmp_path / "mcp-tokens" / "vault.json"
            earlier = file.read_bytes()
            pasted = await redirected(await link(kit))
            refused = re.sub(r"code=[^&]+", "error=access_denied", pasted)
            await kit.screen.say("1001", refused, sender=ANN)
            await kit.screen.shows(
                "1001", "The login at vault did not succeed: the login was refused: access_denied."
            )
            assert file.read_bytes() == earlier


async def test_an_unused_link_expires(tmp_path: Path) -> None:
    with guarded() as vault:
        async with (
            ModelServer(talkative) as model,
            gateway(tmp_path, model, a_screen(), admins=ADMINS, mcp=(vault,)) as kit,
        ):
            kit.conversations.logins._login_seconds = 1.0
            pasted = await redirected(await link(kit))
            await kit.screen.shows("1001", "The login link for vault has expired.")
            await kit.screen.say("1001", pasted, sender=ANN)
            await kit.screen.shows("1001", "This doesn't belong to an open login.")


async def test_tokens_reach_neither_the_model_nor_the_chat(tmp_path: Path) -> None:
    redactor = Redactor()
    tell = "H C(0,c1,vault_tell,{}) F tool_calls U D"
    with guarded() as vault:
        async with (
            ModelServer(calling(tell)) as model,
            gateway(
                tmp_path, model, a_screen(), admins=ADMINS, mcp=(vault,), redactor=redactor
            ) as kit,
        ):
            await kit.screen.say("1001", await redirected(await link(kit)), sender=ANN)
            await kit.screen.shows("1001", "🔑 Logged in at vault.")
            await kit.mcp_is_connected()
            stored = json.loads((tmp_path / "mcp-tokens" / "vault.json").read_bytes())
            token = stored["tokens"]["access_token"]
            await kit.screen.say("1001", "tell me", sender=ANN)
            rows = [each for each in await kit.asked(2) if each["role"] == "tool"]
            assert rows[-1]["content"]  # a placeholder
            assert token not in json.dumps(model.requests[1].body)
            await kit.screen.say("1001", f"my token is {token}", sender=ANN)
            await kit.screen.shows("1001", "echo: my token is ***")
    assert redactor.redact(f"{stored['tokens']['refresh_token']}!") == "***!"


async def test_the_login_of_a_person_serves_only_that_person(tmp_path: Path) -> None:
    with guarded(login="person") as vault:
        async with (
            ModelServer(calling(OPEN)) as model,
            gateway(tmp_path, model, a_screen(), allow=BOTH, admins=ADMINS, mcp=(vault,)) as kit,
        ):
            await kit.screen.say("2002", "/mcp", sender=BEA)
            await kit.screen.shows("2002", "vault: you can log in: /mcp login vault")
            address = await link(kit, "2002", BEA)
            await kit.screen.say("2002", await redirected(address), sender=BEA)
            await kit.screen.shows("2002", "🔑 Logged in at vault.")
            await kit.mcp_is_connected()
            await kit.screen.say("2002", "open it", sender=BEA)
            rows = [each for each in await kit.asked(2) if each["role"] == "tool"]
            assert rows[-1]["content"] == "gold"
            await kit.screen.say("1001", "open it, too", sender=ANN)
            await kit.asked(3)
            body = model.requests[2].body
            offered = {each["function"]["name"] for each in body.get("tools", ())}
            assert "vault_open_sesame" not in offered
            assert "tell the user to send /mcp login vault" in kit.system(3)
            assert "vault_open_sesame" not in {
                tool.name for tool in kit.mcp_servers.tools("memory:1001")
            }
        folder = tmp_path / "mcp-tokens" / "vault"
        assert [each.name for each in folder.iterdir()] == ["memory%3A2002.json"]
        async with (  # the next process uses the stored login
            ModelServer(calling(OPEN)) as model,
            gateway(tmp_path, model, a_screen(), allow=BOTH, admins=ADMINS, mcp=(vault,)) as kit,
        ):
            await kit.mcp_is_connected()
            await kit.screen.say("2002", "open it", sender=BEA, event="later")
            rows = [each for each in await kit.asked(2) if each["role"] == "tool"]
            assert rows[-1]["content"] == "gold"
