"""Reload of the configuration while the gateway runs: completely or not at all."""

import signal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from agent.settings import ModelSettings
from gateway.access.settings import AccessSettings
from gateway.errors import ConfigError
from gateway.settings import GatewaySettings, LimitSettings, Settings
from platforms.core.contract import Sender
from sessions.values.secret import Secret
from tests.e2e.daemon import Daemon, Page
from tests.e2e.gateway_kit import Nothing, gateway, talkative
from tests.fakes.model_server import ModelServer, always

CHAT, OTHER = "1001", "1002"
EVE = Sender("1002", "Eve")


class ChangeableConfig:
    """A configuration that a test can change."""

    def __init__(self, model: ModelServer) -> None:
        self.settings = Settings(
            gateway=GatewaySettings(drain_seconds=0),
            model=_model(model.url, "first"),
            access=AccessSettings(allow=("memory:1001",)),
            limits=LimitSettings(messages_per_minute=1000),
            platforms={"memory": Nothing()},
        )
        self.wrong = ""

    def __call__(self) -> Settings:
        if self.wrong:
            raise ConfigError(self.wrong)
        return self.settings

    def change(self, **changes: Any) -> None:
        self.settings = replace(self.settings, **changes)


def _model(url: str, name: str) -> ModelSettings:
    return ModelSettings(provider="openai", name=name, base_url=url, api_key=Secret("sk-none"))


async def test_reload_changes_access_and_model_while_running(tmp_path: Path) -> None:
    async with (
        ModelServer(talkative) as model,
        ModelServer(always('H T"by the other" F stop D')) as second,
    ):
        written = ChangeableConfig(model)
        async with gateway(tmp_path, model, settings=written(), reread=written) as kit:
            screen, reload = kit.screen, kit.runner.operations["reload"]
            await screen.say(OTHER, "hello?", sender=EVE)
            await screen.until(OTHER, lambda messages: len(messages) == 1)  # a pairing code
            written.change(
                access=AccessSettings(allow=("memory:1001", "memory:1002"), pairing=False),
                model=_model(second.url, "second"),
            )
            found = await reload()
            assert found == {
                "changed": ["model.name", "model.base_url", "access.allow", "access.pairing"],
                "later": [],
                "summary": "Changed: model.name, model.base_url, access.allow, access.pairing.",
            }
            await screen.say(OTHER, "and now?", sender=EVE)
            await screen.shows(OTHER, "by the other")
            assert second.requests[0].body["model"] == "second"
            assert model.requests == []
            written.change(access=AccessSettings(allow=("memory:1002",), pairing=False))
            await reload()
            await screen.say(CHAT, "am I still in?")
            await screen.say(OTHER, "are you?", sender=EVE)
            await screen.until(OTHER, lambda messages: len(messages) == 3)
            assert screen.messages(CHAT) == []


async def test_running_turn_keeps_its_model_after_a_reload(tmp_path: Path) -> None:
    async with (
        ModelServer(always('H T"slow" W.2 T"ly" F stop D')) as model,
        ModelServer(always('H T"second" F stop D')) as other,
    ):
        written = ChangeableConfig(model)
        async with gateway(tmp_path, model, settings=written(), reread=written) as kit:
            await kit.screen.say(CHAT, "go")
            await kit.screen.shows(CHAT, "slow")
            written.change(model=_model(other.url, "second"))
            await kit.runner.operations["reload"]()
            await kit.screen.say(CHAT, "again")
            await kit.screen.shows(CHAT, "slowly", "second")


async def test_invalid_configuration_is_reported_and_not_applied(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model:
        written = ChangeableConfig(model)
        async with gateway(tmp_path, model, settings=written(), reread=written) as kit:
            reload = kit.runner.operations["reload"]
            written.wrong = "holdfast.toml:3: unknown key gateway.bussy (did you mean busy?)"
            with pytest.raises(ConfigError, match="unknown key"):
                await reload()
            written.wrong = ""
            # The model cannot be found, so the other changes do not apply either.
            nameless = ModelSettings(provider="nobody", name="x")
            written.change(access=AccessSettings(), model=nameless)
            with pytest.raises(ConfigError, match="no model provider"):
                await reload()
            await kit.screen.say(CHAT, "still here?")
            await kit.screen.shows(CHAT, "echo: still here?")


async def test_sighup_reloads_and_a_partial_file_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text('[gateway]\nqueue_limit = 5\n[agent]\nsystem_prompt = "One."\n')
    file.chmod(0o600)
    async with ModelServer(talkative) as model:
        sets = ("model.provider=openai", "model.name=scripted", f"model.base_url={model.url}")
        env = {"OPENAI_API_KEY": "sk-none", "HOLDFAST_CONFIG": str(file)}
        async with Daemon(tmp_path, *sets, env=env, warm=True) as daemon, Page(daemon) as page:

            async def hang_up(expected: str) -> None:
                daemon.signal(signal.SIGHUP)
                await daemon.logs(expected)

            async def prompt(number: int) -> str:
                await page.send("chat", f"question {number}", f"message-{number}")
                request = await model.request(number)
                return str(request.body["messages"][0]["content"])

            assert (await prompt(1)).startswith("One.")
            file.write_text('[gateway]\nqueue_limit = 7\n[agent]\nsystem_prompt = "Two')
            await hang_up("configuration not reloaded, the current one stays")
            assert (await prompt(2)).startswith("One.")
            file.write_text('[gateway]\nqueue_limit = 7\n[agent]\nsystem_prompt = "Two."\n')
            await hang_up("Changed: gateway.queue_limit, agent.system_prompt.")
            assert (await prompt(3)).startswith("Two.")
            file.write_text(file.read_text() + "[http]\nsse_keepalive = 3\n")
            await hang_up("Needs a restart: http.sse_keepalive.")
            assert await daemon.stop() == 0
