"""Every key of `[model.timeouts]`, from the text of the file to its effect for the user.

Each test runs two gateways with the same silence or failure, side by side. Only one has the key in
its file; when that one has acted, the other is still waiting.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.model.contract import ModelRequest
from agent.providers.registry import build_provider
from agent.settings import Timeouts
from gateway.config.loader import ConfigOptions, load
from gateway.operate.cli import root
from platforms.core.contract import Live, PlatformSpec, Repeat
from sessions.records import Message
from tests.e2e.gateway_kit import GatewayKit, Nothing, Screen, gateway
from tests.fakes.agent_kit import settings_for
from tests.fakes.deaf import deaf
from tests.fakes.memory import MemoryAdapter
from tests.fakes.model_script import Script
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.quick

CHAT = "7"
PATIENCE = 5.0
OK = 'H T"done" F stop U D EOF'

SPECS = {"memory": PlatformSpec("memory", Nothing, lambda _config, _given: MemoryAdapter())}

FILE = """
[gateway]
drain_seconds = 0

[platforms.memory]

[access]
allow = ["memory:1001"]

[model]
provider = "openai"
name = "scripted"
base_url = "{url}"
api_key = "sk-test"

[model.timeouts]
{clocks}
"""

FALLBACK = """
[[model.fallback]]
provider = "openai"
name = "other"
base_url = "{url}"
api_key = "sk-test"

[model.fallback.timeouts]
{clocks}
"""


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """Load the SDK before the first request, because loading would count against its timeouts."""

    async def once() -> None:
        async with ModelServer(OK) as server:
            provider = build_provider(settings_for("chat", server.url))
            async with provider.stream(ModelRequest("m", "", (Message("user", "go"),))) as chunks:
                assert [chunk async for chunk in chunks]
            await provider.aclose()

    asyncio.run(once())


def written(home: Path, text: str) -> Path:
    """Write the text to a configuration file that only the owner can read."""
    home.mkdir(parents=True, exist_ok=True)
    file = home / "holdfast.toml"
    file.write_text(text, encoding="utf-8")
    file.chmod(0o600)
    return file


@contextlib.asynccontextmanager
async def configured(home: Path, model: ModelServer, text: str) -> AsyncIterator[GatewayKit]:
    """Run a gateway with this file, and send it `go`."""
    file = written(home, text)
    loaded = load(ConfigOptions(config=file), {"HOLDFAST_HOME": str(home)}, SPECS)
    assert loaded.warnings == ()
    screen = Screen(live=Live.EDIT, repeat=Repeat.ALWAYS, live_interval=0.01, burst=1000)
    async with gateway(home, model, screen, settings=loaded.settings) as kit:
        await screen.say(CHAT, "go")
        yield kit


@contextlib.asynccontextmanager
async def twins(
    home: Path, script: Script, clocks: str, usual: str = ""
) -> AsyncIterator[tuple[GatewayKit, GatewayKit]]:
    """Run two gateways with the same script; only the first has the timeouts, the other the defaults."""
    rest = (OK,) * 3
    async with (
        ModelServer(script, *rest) as server,
        ModelServer(script, *rest) as other,
        configured(home / "usual", other, FILE.format(url=other.url, clocks=usual)) as patient,
    ):
        await asked(other, 1)  # the one with default timeouts is still waiting
        text = FILE.format(url=server.url, clocks=clocks)
        async with configured(home / "set", server, text) as kit:
            yield kit, patient


async def asked(model: ModelServer, number: int) -> float:
    """Wait for the n-th request, and return its arrival time."""
    async with asyncio.timeout(PATIENCE):
        return (await model.request(number)).at


KILLS = [
    ("first_token", "first_token = 0.4", "", "HANG", 0.4),
    ("first_token", "first_token = 0.4", "", "H HANG", 0.4),
    ("gap_text", "gap_text = 0.4", "", 'H T"so far " HANG', 0.4),
    ("gap_tool", "gap_tool = 0.4", "", "H C(0,c1,read_file,'{\"pa') HANG", 0.4),
    ("gap_reasoning", "gap_reasoning = 0.4", "", 'H R"well" HANG', 0.4),
    ("wire_dead", "wire_dead = 0.4", "", 'H T"so far " W.1 P HANG', 0.5),
    ("lifetime", "lifetime = 0.5", "", 'H [T"so on " W.05]*', 0.5),
    (
        "min_rate",
        "min_rate = 50\nmin_rate_window = 0.4",
        "min_rate_window = 0.4",
        'H [T"so" W.1]*',
        0.45,
    ),
    ("min_rate_window", "min_rate = 50\nmin_rate_window = 0.4", "min_rate = 50", 'H [T"so" W.1]*', 0.45),
]  # fmt: skip


@pytest.mark.parametrize(
    ("clocks", "usual", "script", "killed_after"),
    [each[1:] for each in KILLS],
    ids=[f"{each[0]}: {each[3]}" for each in KILLS],
)
async def test_a_request_is_cancelled_after_the_configured_timeout(
    tmp_path: Path, clocks: str, usual: str, script: Script, killed_after: float
) -> None:
    async with twins(tmp_path, script, clocks, usual) as (kit, patient):
        lived = await asked(kit.model, 2) - await asked(kit.model, 1)
        # The timeout starts before the request is sent.
        assert killed_after - 0.2 <= lived <= killed_after + 0.8
        assert len(patient.model.requests) == 1
        assert not patient.model.requests[0].closed.is_set()


NOTICES = [
    ("first_token_soft = 0.5", "H HANG"),
    ("notice_after = 0.5", "H HANG"),
    ("notice_after = 0.5", 'H T"so far " HANG'),
]


@pytest.mark.parametrize(("clocks", "script"), NOTICES, ids=[f"{c}: {s}" for c, s in NOTICES])
async def test_the_silence_notice_appears_after_the_configured_time(
    tmp_path: Path, clocks: str, script: Script
) -> None:
    async with twins(tmp_path, script, clocks) as (kit, patient):
        began = await asked(kit.model, 1)
        await kit.screen.shows(CHAT, "⏳ scripted: no output")
        waited = asyncio.get_running_loop().time() - began
        assert 0.3 <= waited <= 1.3
        assert len(kit.model.requests) == 1
        assert not any("⏳" in line for line in patient.screen.screen(CHAT))


async def test_a_slow_start_and_later_silence_have_different_notice_times(
    tmp_path: Path,
) -> None:
    clocks = "first_token_soft = 20\nnotice_after = 0.4"
    async with twins(tmp_path, 'H T"so far " HANG', clocks) as (kit, _):
        await kit.screen.shows(CHAT, "⏳ scripted: no output")
    async with twins(tmp_path / "b", "H HANG", clocks, "first_token_soft = 0.4") as (kit, other):
        await other.screen.shows(CHAT, "⏳ scripted: no output")
        assert not any("⏳" in line for line in kit.screen.screen(CHAT))


async def test_a_recovery_notice_appears_after_a_sixth_of_notice_after(tmp_path: Path) -> None:
    script = 'H T"so far " RST'
    async with twins(tmp_path, script, "notice_after = 0.6\nbackoff = 2", "backoff = 2") as (
        kit,
        patient,
    ):
        await kit.screen.shows(CHAT, "↻ Reply was cut off")
        assert not any("↻" in line for line in patient.screen.screen(CHAT))


async def test_the_first_retry_waits_for_the_configured_backoff(tmp_path: Path) -> None:
    async with twins(tmp_path, "S500", "backoff = 0.1") as (kit, patient):
        waited = await asked(kit.model, 2) - await asked(kit.model, 1)
        assert 0.04 <= waited <= 0.45
        assert len(patient.model.requests) == 1


async def test_the_backoff_doubles_with_each_retry(tmp_path: Path) -> None:
    async with (
        ModelServer("S500", "S500", OK) as server,
        configured(tmp_path, server, FILE.format(url=server.url, clocks="backoff = 0.2")),
    ):
        first, second, third = [await asked(server, number) for number in (1, 2, 3)]
        assert 0.08 <= second - first <= 0.5
        assert 0.18 <= third - second <= 0.8


async def test_a_connection_attempt_ends_after_the_configured_timeout(
    tmp_path: Path,
) -> None:
    def text(clocks: str, fallback: ModelServer) -> str:
        url = f"http://127.0.0.1:{port}/v1"
        first = FILE.format(url=url, clocks=f"backoff = 0.01\n{clocks}")
        return first + FALLBACK.format(url=fallback.url, clocks="")

    with deaf() as port:
        async with (
            ModelServer(OK) as server,
            ModelServer(OK) as other,
            configured(tmp_path / "usual", other, text("", other)) as patient,
            configured(tmp_path / "set", server, text("connect = 0.2", server)) as kit,
        ):
            began = asyncio.get_running_loop().time()
            waited = await asked(kit.model, 1) - began
            assert 0.5 <= waited <= 1.8  # three attempts
            assert patient.model.requests == []


# --- fallbacks --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "patient"),
    [
        ("", False),
        ("first_token = 0.4", False),
        ("first_token = 5", True),
        ("gap_text = 50", False),  # missing keys come from the model
        ("first_token = 0.4\nlifetime = 1800", False),
    ],
    ids=lambda value: str(value).replace("\n", ", ") or "none of its own",
)
async def test_fallbacks_use_the_models_timeouts_unless_they_have_their_own(
    tmp_path: Path, own: str, patient: bool
) -> None:
    async with ModelServer(*["S401"] * 9) as primary, ModelServer("H HANG", OK, OK) as second:
        text = FILE.format(url=primary.url, clocks="first_token = 0.4")
        text += FALLBACK.format(url=second.url, clocks=own)
        async with configured(tmp_path / "set", second, text):
            began = await asked(second, 1)
            if patient:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.8):
                        await second.request(2)
            else:
                lived = await asked(second, 2) - began
                assert 0.2 <= lived <= 1.2


async def test_a_fallback_may_set_a_timeout_back_to_the_default(tmp_path: Path) -> None:
    async with ModelServer(*["S401"] * 9) as primary, ModelServer("H HANG", OK) as second:
        text = FILE.format(url=primary.url, clocks="lifetime = 0.4")
        text += FALLBACK.format(url=second.url, clocks="lifetime = 1800")
        async with configured(tmp_path / "set", second, text):
            await asked(second, 1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.8):
                    await second.request(2)


async def test_timeouts_of_a_fallback_do_not_apply_to_the_model(tmp_path: Path) -> None:
    async with ModelServer("H HANG", OK) as primary, ModelServer(OK) as second:
        text = FILE.format(url=primary.url, clocks="")
        text += FALLBACK.format(url=second.url, clocks="first_token = 0.2")
        async with configured(tmp_path / "set", second, text):
            await asked(primary, 1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.6):
                    await primary.request(2)
            assert second.requests == []


def test_every_timeout_key_is_tested_here() -> None:
    tested = {each[0] for each in KILLS} | {each[0].partition(" ")[0] for each in NOTICES}
    assert tested | {"backoff", "connect"} == set(Timeouts.__struct_fields__)


# --- keys without an effect ------------------------------------------------------------------

TO_COME = {
    "bus.url": '[bus]\nurl = "nats://127.0.0.1:4222"',
    "tools.shell.sandbox": '[tools.shell]\nsandbox = "none"',
    "voice.api_key": '[voice]\napi_key = "sk-test"',
    "voice.transcription_model": '[voice]\ntranscription_model = "ear"',
    "voice.speech_url": '[voice]\nspeech_url = "http://127.0.0.1:1"',
    "voice.speech_model": '[voice]\nspeech_model = "mouth"',
    **{
        f"tools.enabled: {family}": f'[tools]\nenabled = ["files", "{family}"]'
        for family in ("shell", "web", "memory", "schedule")
    },
}


@pytest.mark.parametrize("key", TO_COME)
def test_a_key_that_cannot_take_effect_is_refused(tmp_path: Path, key: str) -> None:
    file = written(tmp_path, f'[model]\nprovider = "demo"\n\n{TO_COME[key]}\n')
    ran = CliRunner().invoke(
        root,
        ["config", "check", "--config", str(file)],
        env={"HOLDFAST_HOME": str(tmp_path / "state")},
    )
    assert ran.exit_code == 78, ran.output
    assert key.partition(":")[0] in ran.output
    assert "has no effect" in ran.output or "not available in this version" in ran.output
