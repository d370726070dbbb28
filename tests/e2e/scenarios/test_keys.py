"""Key rotation through a key file while the gateway runs, on three protocols."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from agent.providers.registry import SupportsListModels, build_provider
from gateway.config.values import ConfigValues
from gateway.observe.redact import Redactor
from sessions.records import TurnState
from sessions.values.secret import Secret
from tests.e2e.scenarios.scenario_kit import CHAT, UNHURRIED, Stage, stage
from tests.fakes.agent_kit import settings_for
from tests.fakes.dialects.steps import PROTOCOLS, ProtocolName
from tests.fakes.model_script import Script, calls
from tests.fakes.model_server import ModelServer

OK = 'H T"done" F stop U D EOF'
each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


def ok(_: object) -> Script:
    return OK


class KeyFile:
    """API key in a file that the configuration refers to."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "key"
        self.path.write_text("sk-first\n")
        values = ConfigValues({}, folder, lambda _value, _path: None)
        self.secret = values.read_secret("file:key", ("model", "api_key"))

    def becomes(self, scene: Stage, key: str, *, known: bool = True) -> None:
        """Rotate the key at the service, and in the file if `known`."""
        scene.kit.model.key = key
        if known:
            self.path.write_text(f"{key}\n")


@pytest.fixture
def key(tmp_path: Path) -> KeyFile:
    return KeyFile(tmp_path)


def shown(scene: Stage) -> list[str]:
    """Return the keys that the service received, in order."""
    headers = [each.headers for each in scene.requests]
    return [
        (h.get("x-api-key") or h.get("authorization", "")).removeprefix("Bearer ") for h in headers
    ]


@each_protocol
@pytest.mark.parametrize("status", [401, 403])
async def test_a_rotated_key_is_picked_up_silently(
    tmp_path: Path, key: KeyFile, protocol: ProtocolName, status: int
) -> None:
    redactor = Redactor([key.secret])
    async with stage(
        tmp_path, protocol, ok, model={"api_key": key.secret}, timeouts=UNHURRIED
    ) as scene:
        scene.kit.model.refusal = status
        await scene.go("one")
        key.becomes(scene, "sk-second")
        turn = await scene.go("two")
        assert turn.state is TurnState.DONE
        assert turn.attempts == 1  # no retry
        await scene.go("three")
        assert shown(scene) == ["sk-first", "sk-first", "sk-second", "sk-second"]
        key.becomes(scene, "sk-third")
        await scene.go("four")
        assert shown(scene)[-2:] == ["sk-second", "sk-third"]
        assert scene.told.ids == []
        assert redactor.redact("sk-first sk-second sk-third") == "*** *** ***"
        await scene.check()


@each_protocol
async def test_a_rejected_unchanged_key_switches_to_the_fallback(
    tmp_path: Path, key: KeyFile, protocol: ProtocolName
) -> None:
    async with (
        ModelServer(OK) as f1,
        stage(tmp_path, protocol, ok, fallbacks=[f1], model={"api_key": key.secret}) as scene,
    ):
        key.becomes(scene, "sk-second", known=False)
        turn = await scene.go()
        assert turn.state is TurnState.DONE
        assert shown(scene) == ["sk-first"]
        assert len(f1.requests) == 1
        assert "N5" in scene.told.ids
        await scene.check()


@each_protocol
async def test_a_rejected_new_key_is_not_retried(
    tmp_path: Path, key: KeyFile, protocol: ProtocolName
) -> None:
    async with stage(tmp_path, protocol, ok, model={"api_key": key.secret}) as scene:
        scene.kit.model.key = "sk-other"
        key.path.write_text("sk-second\n")
        turn = await scene.go()
        assert turn.state is TurnState.FAILED
        assert shown(scene) == ["sk-first", "sk-second"]
        (said,) = scene.shown()
        assert "rejected the API key" in said
        assert "model.api_key" in said
        assert "sk-" not in said
        assert await scene.history() == ["U:go"]
        await scene.check()


@each_protocol
@pytest.mark.parametrize("left", ["", "\n", None], ids=["empty", "blank", "no file"])
async def test_an_empty_key_file_keeps_the_old_key(
    tmp_path: Path, key: KeyFile, protocol: ProtocolName, left: str | None
) -> None:
    async with stage(tmp_path, protocol, ok, model={"api_key": key.secret}) as scene:
        scene.kit.model.key = "sk-second"
        key.path.unlink()
        if left is not None:
            key.path.write_text(left)
        turn = await scene.go()
        assert turn.state is TurnState.FAILED
        assert shown(scene) == ["sk-first"]
        key.becomes(scene, "sk-second")
        assert (await scene.go("again")).state is TurnState.DONE
        await scene.check()


@each_protocol
async def test_a_key_can_be_rotated_in_the_middle_of_a_turn(
    tmp_path: Path, key: KeyFile, protocol: ProtocolName
) -> None:
    asked: list[object] = []

    def pay_then_be_exchanged(body: object) -> Script:
        asked.append(body)
        if len(asked) > 1:
            return OK
        key.becomes(scene, "sk-second")
        return calls(("c1", "pay", '{"amount":5}'))

    async with stage(
        tmp_path, protocol, pay_then_be_exchanged, model={"api_key": key.secret}
    ) as scene:
        await scene.go()
        assert shown(scene) == ["sk-first", "sk-first", "sk-second"]
        assert scene.desk.ran == ["pay 5"]
        assert await scene.history() == ["U:go", "A{pay}", "T:paid 5", "A:done"]
        await scene.check()


@each_protocol
async def test_concurrent_conversations_all_pick_up_the_new_key(
    tmp_path: Path, key: KeyFile, protocol: ProtocolName
) -> None:
    async with stage(tmp_path, protocol, ok, model={"api_key": key.secret}) as scene:
        key.becomes(scene, "sk-second")
        chats = [CHAT, "8", "9", "10"]
        async with asyncio.TaskGroup() as group:
            for chat in chats:
                group.create_task(scene.say("go", chat=chat))
        for chat in chats:
            assert (await scene.ends(chat=chat)).state is TurnState.DONE
        assert shown(scene).count("sk-second") == len(chats)
        await scene.check()


@each_protocol
async def test_models_are_listed_with_the_new_key(key: KeyFile, protocol: ProtocolName) -> None:
    async with ModelServer(ok, models=("one", "two")) as server:
        settings = msgspec.structs.replace(settings_for(protocol, server.url), api_key=key.secret)
        provider = build_provider(settings)
        server.key = "sk-second"
        key.path.write_text("sk-second\n")
        assert isinstance(provider, SupportsListModels)
        assert await provider.list_models() == ("one", "two")
        await provider.aclose()


async def test_a_key_from_the_configuration_is_sent_once(tmp_path: Path) -> None:
    async with stage(tmp_path, "chat", ok, model={"api_key": Secret("sk-first")}) as scene:
        scene.kit.model.key = "sk-second"
        assert (await scene.go()).state is TurnState.FAILED
        assert shown(scene) == ["sk-first"]
        await scene.check()
