"""Metrics, readiness and the API key over HTTP."""

import asyncio
import contextlib
import json
import os
import platform
import re
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.config.loader import ConfigOptions, check
from gateway.observe import disk
from gateway.observe.metrics import Metrics
from gateway.observe.metrics_page import GAUGES
from gateway.settings import GatewaySettings, HttpSettings
from platforms.core.contract import Inbox, Live, Post, Repeat, Sender
from platforms.core.errors import Unavailable
from sessions.values.secret import Secret
from sessions.values.size import Size
from tests.e2e.daemon import Daemon
from tests.e2e.gateway_kit import GatewayKit, Screen, gateway
from tests.fakes.memory import rate_limited
from tests.fakes.model_script import Script
from tests.fakes.model_server import ModelServer

ROOT = Path(__file__).parents[2]
CHAT = "1001"
SERVED: dict[str, Any] = {"served": True, "http": HttpSettings(port=0)}

Figures = dict[tuple[str, frozenset[tuple[str, str]]], float]


def address(kit: GatewayKit) -> str:
    assert kit.runner._http_server
    return kit.runner._http_server.url


async def get(url: str, **headers: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as response:
        return response.status, await response.text()


def key_header(kit: GatewayKit) -> dict[str, str]:
    """Return the header with the API key: the configured one, or that of the first start."""
    configured = kit.runner._settings.http.api_key
    created = kit.runner._home / "api_key"
    key = configured.reveal() if configured else created.read_text().strip()
    return {"authorization": f"Bearer {key}"}


async def figures(kit: GatewayKit) -> Figures:
    status, page = await get(f"{address(kit)}metrics", **key_header(kit))
    assert status == 200
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def value(found: Figures, name: str, **labels: str) -> float:
    return found.get((f"holdfast_{name}", frozenset(labels.items())), 0.0)


async def until(kit: GatewayKit, enough: Callable[[Figures], bool]) -> Figures:
    """Wait for the metrics, which are updated shortly after a delivery."""
    async with asyncio.timeout(8):
        found = await figures(kit)
        while not enough(found):
            found = await figures(kit)
    return found


def scripted(body: dict[str, Any]) -> Script:
    """One answer is interrupted and continued; one fails."""
    said = [each["content"] for each in body["messages"] if each["role"] == "user"]
    if "fail" in said[-1]:
        return "S400"
    if "hang" in said[-1]:
        return 'H T"so far " HANG'
    return 'H T"the " T"answer" F stop U(10,100,60) D EOF'


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer(scripted) as server:
        yield server


# --- metrics --------------------------------------------------------------------------------------


async def test_events_are_counted_in_metrics(tmp_path: Path, model: ModelServer) -> None:
    async with gateway(tmp_path, model, **SERVED) as kit:
        screen = kit.screen
        screen.fail(rate_limited(0.01), Post)
        await screen.say(CHAT, "hello", event="one")
        await screen.say(CHAT, "hello", event="one")  # the platform delivers it again
        await screen.say("7777", "let me in", sender=Sender(id="7777", name="A stranger"))
        await screen.say(CHAT, "/whoami")
        await screen.shows(CHAT, "the answer", "1001")
        await screen.say(CHAT, "fail")
        await screen.shows(CHAT, "❌")
        found = await until(
            kit, lambda each: value(each, "turns_total", platform="memory", state="failed") == 1
        )
    inbound = {
        dict(labels)["decision"]: count
        for (name, labels), count in found.items()
        if name == "holdfast_inbound_total"
    }
    assert inbound == {"message": 2, "duplicate": 1, "command": 1, "not_allowed": 1}
    assert value(found, "duplicates_suppressed_total", platform="memory") == 1
    assert value(found, "turns_total", platform="memory", state="done") == 1
    for each in ("queue_wait_seconds", "turn_seconds"):
        assert value(found, f"{each}_count", platform="memory") == 2
    assert value(found, "first_text_seconds_count", platform="memory") == 1
    assert value(found, "turn_seconds_sum", platform="memory") < 8
    (label,) = {dict(labels).get("model") for _, labels in found} - {None}
    assert label is not None
    assert "scripted" in label
    assert value(found, "model_requests_total", model=label, verdict="complete") == 1
    assert value(found, "tokens_total", model=label, kind="input") == 100
    assert value(found, "tokens_total", model=label, kind="output") == 10
    assert value(found, "cached_tokens_total", model=label) == 60
    assert value(found, "rate_limited_total", platform="memory") == 1
    assert value(found, "outbound_total", platform="memory", kind="post", result="limited") == 1
    assert value(found, "outbound_total", platform="memory", kind="post", result="sent") >= 3
    assert value(found, "platform_connected", platform="memory") == 1
    assert value(found, "sessions", state="active") == 1
    assert value(found, "sessions", state="closed") == 0
    assert value(found, "process_resident_memory_bytes") > 10_000_000
    assert value(found, "process_open_fds") > 5
    assert value(found, "disk_free_bytes") > 0
    what = {"version": metadata.version("holdfast"), "python": platform.python_version()}
    assert value(found, "build_info", **what) == 1


async def test_an_interrupted_answer_counts_as_a_recovery_and_a_running_turn_is_visible(
    tmp_path: Path,
) -> None:
    scripts = ['H T"The beginning, " RST', 'H T"and the end." F stop D', 'H T"so far " HANG']
    async with ModelServer(*scripts) as model, gateway(tmp_path, model, **SERVED) as kit:
        await kit.screen.say(CHAT, "tell me")
        await kit.screen.shows(CHAT, "and the end.")
        await kit.screen.say(CHAT, "more")
        await kit.screen.shows(CHAT, "so far")
        found = await figures(kit)
        assert value(found, "recoveries_total", cause="cut-text") == 1
        assert value(found, "running_turns") == 1
        await kit.screen.say(CHAT, "/stop")
        await kit.screen.shows(CHAT, "⏹")
        found = await until(kit, lambda each: value(each, "running_turns") == 0)
        assert value(found, "sessions_suspended_total", reason="stop") == 1


async def test_sessions_are_not_counted_on_every_scrape(tmp_path: Path, model: ModelServer) -> None:
    async with gateway(tmp_path, model, **SERVED) as kit:
        assert value(await figures(kit), "sessions", state="active") == 0
        await kit.screen.say(CHAT, "hello")
        await kit.screen.shows(CHAT, "the answer")
        assert value(await figures(kit), "sessions", state="active") == 0


async def test_event_loop_lag_is_measured(tmp_path: Path, model: ModelServer) -> None:
    async with gateway(tmp_path, model, **SERVED) as kit:
        found = await until(kit, lambda each: value(each, "loop_lag_seconds_count") > 0)
    assert value(found, "loop_lag_seconds_sum") < 8


async def test_dashboard_and_rules_use_only_existing_metrics(
    tmp_path: Path, model: ModelServer
) -> None:
    async with gateway(tmp_path, model, **SERVED) as kit:
        await kit.screen.say(CHAT, "hello")
        await kit.screen.shows(CHAT, "the answer")
        _, page = await get(f"{address(kit)}metrics", **key_header(kit))
    names = {
        f"{family.name}{ending}"
        for family in text_string_to_metric_families(page)
        for ending in _ENDINGS[family.type]
    }
    labels = {each.name: {*each.labels} for each in _ours()}
    asked = [*_rules(), *_panels()]
    assert len(asked) > 40
    for expression in asked:
        used = set(re.findall(r"\bholdfast_\w+", expression))
        assert used or expression == 'up{job="holdfast"} == 0', expression
        assert used <= names, f"{used - names} in {expression}"
        known = set().union(
            {"instance", "job", "le"},
            *(labels.get(re.sub(r"_(bucket|count|sum)$", "", name), ()) for name in used),
        )
        written = set(re.findall(r"(\w+)=~?\"", expression))
        for by in re.findall(r"\bby \(([^)]*)\)", expression):
            written |= {each.strip() for each in by.split(",")}
        assert written <= known, f"{written - known} in {expression}"


_ENDINGS = {
    "counter": ("_total",),
    "gauge": ("",),
    "histogram": ("_bucket", "_count", "_sum"),
    "unknown": ("",),
}


def _ours() -> list[Any]:
    ledger = Metrics()
    return [*ledger.counters, *ledger.histograms, *GAUGES]


def _rules() -> Iterator[str]:
    text = (ROOT / "deploy/prometheus/holdfast.rules.yml").read_text(encoding="utf-8")
    for folded, line in re.findall(r"expr: (?:\|\n((?:          .*\n)+)|(.+))", text):
        yield (folded or line).strip()


def _panels() -> Iterator[str]:
    board = json.loads((ROOT / "deploy/grafana/holdfast.json").read_text(encoding="utf-8"))
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]
    for note in board["annotations"]["list"]:
        yield note["expr"]


def test_every_rule_and_metric_is_documented() -> None:
    page = (ROOT / "docs/operating-http.md").read_text(encoding="utf-8")
    for figure in _ours():
        assert f"`{figure.name}`" in page, figure.name
        for label in figure.labels:
            assert f"`{label}`" in page, (figure.name, label)
    rules = (ROOT / "deploy/prometheus/holdfast.rules.yml").read_text(encoding="utf-8")
    alerts = re.findall(r"alert: (\w+)", rules)
    assert len(alerts) == len(set(alerts)) == len(list(_rules())) > 10
    for alert in alerts:
        assert f"`{alert}`" in page, alert
    named = set(re.findall(r"`(holdfast_\w+)`", page))
    process = {each for each in named if each.startswith("holdfast_process_")}
    assert named - process == {each.name for each in _ours()}
    assert len(process) >= 3


# --- readiness ------------------------------------------------------------------------------------


async def not_ready(kit: GatewayKit) -> list[str]:
    status, body = await get(f"{address(kit)}readyz")
    told = json.loads(body)
    assert status == (503 if told["not_ready"] else 200)
    assert told["ready"] == (not told["not_ready"])
    found: list[str] = told["not_ready"]
    return found


class Slow(Screen):
    """A platform that connects slowly and may disconnect."""

    def __init__(self) -> None:
        super().__init__(live=Live.EDIT, repeat=Repeat.ALWAYS, live_interval=0.01, burst=1000)
        self.connect = asyncio.Event()
        self.broken = asyncio.Event()

    async def run(self, inbox: Inbox, ready: Callable[[], None]) -> None:
        await self.connect.wait()
        ready()
        await self.broken.wait()
        self.broken.clear()
        self.connect.clear()
        msg = "it is silent although connected"
        raise Unavailable(msg)


async def test_a_platform_is_reported_until_it_connects(
    tmp_path: Path, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.runner.FIRST_CONNECT_SECONDS", 0.01)
    monkeypatch.setattr("gateway.connections.supervision.FIRST_PAUSE_SECONDS", 0.01)
    slow = Slow()
    async with gateway(tmp_path, model, slow, **SERVED) as kit:
        assert await not_ready(kit) == ["memory: connecting, no answer so far"]
        assert value(await figures(kit), "platform_connected", platform="memory") == 0
        slow.connect.set()
        await ready_again(kit)
        slow.broken.set()  # connected, but without receiving
        await until_named(kit, "memory: it is silent although connected")
        slow.connect.set()
        await ready_again(kit)


async def ready_again(kit: GatewayKit) -> None:
    async with asyncio.timeout(8):
        while await not_ready(kit):
            pass


async def until_named(kit: GatewayKit, problem: str) -> None:
    async with asyncio.timeout(8):
        while problem not in await not_ready(kit):
            pass


async def test_a_warning_of_a_connected_platform_is_reported_while_it_lasts(
    tmp_path: Path, model: ModelServer
) -> None:
    async with gateway(tmp_path, model, **SERVED) as kit:
        kit.runner._report_problem("memory", "another program polls with this token")
        assert await not_ready(kit) == ["memory: another program polls with this token"]
        assert value(await figures(kit), "platform_connected", platform="memory") == 0
        kit.runner._report_problem("memory", "")
        assert await not_ready(kit) == []


async def test_a_stopping_daemon_refuses_new_turns_and_reports_it(
    tmp_path: Path, model: ModelServer
) -> None:
    patient = GatewaySettings(drain_seconds=60)
    async with gateway(tmp_path, model, gateway=patient, **SERVED) as kit:
        await kit.screen.say(CHAT, "hang")
        await kit.screen.shows(CHAT, "so far")
        kit.runner.stopping.set()
        assert await not_ready(kit) == ["gateway: stopping, no new turns begin"]
        assert (await get(f"{address(kit)}livez")) == (200, "ok\n")


async def test_a_store_that_cannot_write_is_reported_while_the_loop_is_alive(
    tmp_path: Path, model: ModelServer
) -> None:
    async with gateway(tmp_path, model, **SERVED) as kit:
        assert await not_ready(kit) == []
        kit.runner._store.database.stop()  # type: ignore[union-attr]  # it runs
        (problem,) = await not_ready(kit)
        assert problem.startswith("store: ")
        assert (await get(f"{address(kit)}livez")) == (200, "ok\n")
        found = await figures(kit)
        assert not [name for name, _ in found if name == "holdfast_sessions"]
        assert value(found, "platform_connected", platform="memory") == 1


async def test_low_disk_space_is_reported(tmp_path: Path, model: ModelServer) -> None:
    much = GatewaySettings(drain_seconds=0, disk_low=Size(2**60))
    async with gateway(tmp_path, model, gateway=much, **SERVED) as kit:
        (problem,) = await not_ready(kit)
        assert problem.startswith("disk: nearly full, ")
        assert f"left in {tmp_path}" in problem
    never = GatewaySettings(drain_seconds=0, disk_low=Size(0))
    async with gateway(tmp_path, model, gateway=never, **SERVED) as kit:
        assert await not_ready(kit) == []


async def test_a_full_disk_is_reported_until_space_is_free(
    tmp_path: Path, model: ModelServer
) -> None:
    with roomy(tmp_path / "state") as folder:
        margin = min(disk.free_bytes(folder) // 4, 300_000_000)
        low = GatewaySettings(drain_seconds=0, disk_low=Size(disk.free_bytes(folder) - margin))
        async with gateway(folder, model, gateway=low, **SERVED) as kit:
            assert await not_ready(kit) == []
            with (folder / "ballast").open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, 2 * margin)
            (problem,) = await not_ready(kit)
            assert problem.startswith("disk: nearly full")
            assert (await get(f"{address(kit)}livez")) == (200, "ok\n")
            (folder / "ballast").unlink()
            assert await not_ready(kit) == []


@contextlib.contextmanager
def roomy(folder: Path) -> Iterator[Path]:
    """Yield a separate disk if one can be mounted, else an ordinary folder."""
    folder.mkdir()
    mounted = os.geteuid() == 0 and not os.system(  # noqa: S605 - a path of pytest's
        f"mount -t tmpfs -o size=64m tmpfs {folder} 2>/dev/null"
    )
    try:
        yield folder
    finally:
        if mounted:
            os.system(f"umount {folder}")  # noqa: S605


# --- the key --------------------------------------------------------------------------------------


async def test_the_api_key_is_created_at_the_first_start_announced_once_and_never_shown(
    tmp_path: Path,
) -> None:
    async with Daemon(tmp_path, warm=True) as daemon:
        key = (tmp_path / "api_key").read_text().strip()
        assert re.fullmatch(r"hf-[\w-]{43}", key)
        assert stat.S_IMODE((tmp_path / "api_key").stat().st_mode) == 0o600
        assert f'api_key = "{key}"' in await daemon.run("config", "show", "--secrets")
        assert key not in await daemon.run("config", "show")
        elsewhere = {"x-forwarded-for": "203.0.113.9"}
        for path, headers, status in (
            ("metrics", {}, 401),
            ("metrics", {"authorization": f"Bearer {key}"}, 200),
            ("metrics", elsewhere, 401),
            ("metrics", {**elsewhere, "authorization": f"Bearer {key[:-1]}"}, 401),
            ("metrics", {**elsewhere, "authorization": f"Bearer {key}"}, 200),
        ):
            assert (await get(f"{daemon.url}/{path}", **headers))[0] == status, headers
        await daemon.stop()
        said = [line for line in daemon.said if "API key was created" in line]
        assert len(said) == 1
        assert "config show --secrets` prints it" in said[0]
        await daemon.start()
        assert len([line for line in daemon.said if "API key was created" in line]) == 1
        assert (tmp_path / "api_key").read_text().strip() == key
        assert key not in "\n".join(daemon.said)


async def test_a_created_api_key_is_redacted(tmp_path: Path) -> None:
    def telling(_: dict[str, Any]) -> Script:
        return f'H T"it is {(tmp_path / "api_key").read_text().strip()}, keep it" F stop D'

    async with ModelServer(telling) as model, gateway(tmp_path, model, **SERVED) as kit:
        await kit.screen.say(CHAT, "what is the key?")
        await kit.screen.shows(CHAT, "it is ***, keep it")


async def test_a_configured_api_key_is_used_and_none_is_created(
    tmp_path: Path, model: ModelServer
) -> None:
    http = HttpSettings(port=0, api_key=Secret("configured-key-of-mine"))
    async with gateway(tmp_path, model, served=True, http=http) as kit:
        assert not kit.runner.created_api_key
        for key, status in (("configured-key-of-mine", 200), ("another", 401)):
            headers = {"via": "1.1 proxy", "authorization": f"Bearer {key}"}
            assert (await get(f"{address(kit)}metrics", **headers))[0] == status
    assert not (tmp_path / "api_key").exists()


async def test_without_http_no_api_key_is_created(tmp_path: Path, model: ModelServer) -> None:
    async with gateway(tmp_path, model):
        pass
    assert not (tmp_path / "api_key").exists()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])  # noqa: S104 - nothing is bound
def test_a_created_api_key_does_not_give_access_to_others(tmp_path: Path, host: str) -> None:
    (tmp_path / "api_key").write_text("hf-" + "k" * 43)
    environ = {"HOLDFAST_HOME": str(tmp_path), "HOME": str(tmp_path)}
    report = check(ConfigOptions(None, (f'http.host="{host}"',)), environ, {})
    assert any("set http.api_key" in problem for problem in report.problems)
