"""The unit files, checked by systemd-analyze."""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]  # comes with a tool of the tests
from msgspec.structs import replace

from gateway.operate.systemd.unit import (
    UNIT_NAME,
    ServiceUnit,
    render_system_unit,
    render_user_unit,
)
from gateway.runner import FLUSH_SECONDS
from gateway.settings import GatewaySettings, max_stop_seconds

ROOT = Path(__file__).parents[4]
ROOMY, TIGHT = 24, 15  # limits of systemd's exposure score, in tenths

Text = Callable[[ServiceUnit], str]

FORMS = [
    pytest.param(render_system_unit, ServiceUnit(), id="machine"),
    pytest.param(render_system_unit, ServiceUnit(uses_sandbox=True), id="machine, with a sandbox"),
    pytest.param(
        render_system_unit,
        ServiceUnit(
            port=443,
            hidden_folders=(Path("/root/hold fast"),),
            writable_folders=(Path('/srv/a"b'),),
            config=Path("/etc/50%/$x.toml"),
        ),
        id="machine, everything",
    ),
    pytest.param(render_user_unit, ServiceUnit(), id="user"),
    pytest.param(
        render_user_unit,
        ServiceUnit(uses_sandbox=True, home=Path("/home/ann/my state")),
        id="user, a home",
    ),
]

needs_checker = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


def values(text: str, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", text, re.MULTILINE)


def analyze(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *words, str(tmp_path / UNIT_NAME)],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path), "LANG": "C"},
    )


@pytest.mark.process
@needs_checker
@pytest.mark.parametrize(("text", "unit"), FORMS)
def test_systemd_analyze_accepts_every_form_of_the_unit(
    tmp_path: Path, text: Text, unit: ServiceUnit
) -> None:
    program = tmp_path / "a 50% $HOME program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (tmp_path / UNIT_NAME).write_text(text(replace(unit, program=program)))
    manager = "--user" if text is render_user_unit else "--system"
    done = analyze(tmp_path, "verify", "--man=no", manager)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.process
@needs_checker
def test_systemd_analyze_finds_errors(tmp_path: Path) -> None:
    text = render_system_unit(ServiceUnit(program=Path("/bin/true"))).replace("KillMode", "KilMode")
    (tmp_path / UNIT_NAME).write_text(text)
    assert "KilMode" in analyze(tmp_path, "verify", "--man=no").stderr


@pytest.mark.process
@needs_checker
@pytest.mark.parametrize(("sandbox", "most"), [(True, ROOMY), (False, TIGHT)])
@pytest.mark.parametrize("hidden", [(), (Path("/root/holdfast"),)], ids=["", "program in a home"])
def test_the_exposure_score_is_low(
    tmp_path: Path, sandbox: bool, most: int, hidden: tuple[Path, ...]
) -> None:
    (tmp_path / UNIT_NAME).write_text(
        render_system_unit(ServiceUnit(uses_sandbox=sandbox, hidden_folders=hidden))
    )
    done = analyze(tmp_path, "security", "--offline=true", "--no-pager", f"--threshold={most}")
    assert done.returncode == 0, done.stdout.splitlines()[-1:]


def test_the_unit_file_in_the_repository_is_up_to_date() -> None:
    kept = (ROOT / "deploy/systemd" / UNIT_NAME).read_text(encoding="utf-8")
    assert kept == render_system_unit(ServiceUnit())
    assert ServiceUnit().drain_seconds == GatewaySettings().drain_seconds


@pytest.mark.parametrize("drain", [0, 60, 3600.5])
def test_the_stop_timeout_exceeds_the_longest_shutdown(drain: float) -> None:
    (within,) = values(render_system_unit(ServiceUnit(drain_seconds=drain)), "TimeoutStopSec")
    assert int(within) == max_stop_seconds(drain)
    assert int(within) >= drain + 5 * FLUSH_SECONDS


def test_the_container_uses_the_same_timeout_and_health_check() -> None:
    compose = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text(encoding="utf-8"))
    holdfast = compose["services"]["holdfast"]
    assert holdfast["stop_grace_period"] == f"{max_stop_seconds(GatewaySettings().drain_seconds)}s"
    assert set(holdfast["secrets"]) == set(compose["secrets"])
    assert (ROOT / "deploy" / holdfast["build"]["context"]).resolve() == ROOT
    image = (ROOT / holdfast["build"]["dockerfile"]).read_text(encoding="utf-8")
    check = holdfast["healthcheck"]
    words = ", ".join(f'"{word}"' for word in check["test"][1:])
    assert f"CMD [{words}]" in image
    for option in ("interval", "timeout", "retries"):
        assert f"--{option}={check[option]}" in image
    assert f"--start-period={check['start_period']}" in image


def test_the_base_of_the_image_can_be_pinned_by_one_argument() -> None:
    image = (ROOT / "deploy/Containerfile").read_text(encoding="utf-8").splitlines()
    bases = [line.split()[1] for line in image if line.startswith("FROM ")]
    assert set(bases) == {"${BASE}"}
    assert image.index("ARG BASE=python:3.13-slim") < image.index("FROM ${BASE} AS build")
    page = (ROOT / "docs/service.md").read_text(encoding="utf-8")
    assert "--build-arg BASE=" in page


def test_the_image_build_finds_every_file_it_copies() -> None:
    image = (ROOT / "deploy/Containerfile").read_text(encoding="utf-8")
    allowed = (ROOT / ".dockerignore").read_text(encoding="utf-8")
    copied = [line.split()[1:-1] for line in image.splitlines() if line.startswith("COPY ")]
    sources = [word for words in copied if not words[0].startswith("--") for word in words]
    assert {"agent", "gateway", "platforms", "sessions"} <= set(sources)
    for source in sources:
        assert (ROOT / source).exists()
        assert f"\n!{source}\n" in allowed
    assert "STOPSIGNAL SIGTERM" in image
    assert re.search(r"^USER (?!root)", image, re.MULTILINE)


def test_restart_pauses_grow_on_newer_systemd() -> None:
    for version, pauses in ((252, {"RestartSec"}), (256, {"RestartSec", "RestartSteps"})):
        text = render_system_unit(ServiceUnit(systemd_version=version))
        assert {each for each in ("RestartSec", "RestartSteps") if values(text, each)} == pauses


def test_a_low_port_gets_only_the_capability_it_needs() -> None:
    assert values(render_system_unit(ServiceUnit(port=443)), "AmbientCapabilities") == [
        "CAP_NET_BIND_SERVICE"
    ]
    for port in (0, 1024):
        assert values(render_system_unit(ServiceUnit(port=port)), "AmbientCapabilities") == [""]


def test_only_a_sandbox_gets_namespaces() -> None:
    for text in (render_system_unit, render_user_unit):
        assert values(text(ServiceUnit()), "RestrictNamespaces") == ["yes"]
        assert not values(text(ServiceUnit(uses_sandbox=True)), "RestrictNamespaces")
