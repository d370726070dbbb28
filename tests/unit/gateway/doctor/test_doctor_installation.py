"""Doctor checks of the installed packages and plugins."""

import base64
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.operate.doctor.installation import (
    _package_findings,
    _sqlite_findings,
    check_packages,
    check_plugins,
    check_sqlite,
)
from sessions.settings import StoreSettings
from sessions.store.inspect import has_wal_bug
from sessions.values.secret import Secret
from tests.fakes.case import case_of, only, told

ROOT = Path(__file__).parents[4]


async def test_the_packages_of_this_distribution_are_recognized(tmp_path: Path) -> None:
    (found,) = await check_packages(case_of(tmp_path))
    assert (found.level, "0.1.0" in found.text or "Holdfast" in found.text) == ("ok", True)


def test_a_foreign_package_that_shadows_one_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "intruder").mkdir()
    (tmp_path / "intruder" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    (found,) = _package_findings(("intruder", "agent"))
    assert found.level == "fail"
    assert f"intruder is loaded from {tmp_path / 'intruder'}" in found.text
    assert "its own environment" in found.fix


SAID = """
import json, sys
sys.path[:0] = [{place!r}]
from gateway.operate.doctor.installation import _package_findings
print(json.dumps([[each.level, each.text] for each in _package_findings()]))
"""


def wheel_like(folder: Path) -> Path:
    """Build an installation from a wheel, limited to the files the check reads."""
    place = folder / "site"
    place.mkdir()
    rows = []
    for name in ("gateway", "platforms", "agent", "sessions"):
        subprocess.run(["cp", "-r", str(ROOT / name), str(place)], check=True)
        content = (place / name / "__init__.py").read_bytes()
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.append(f"{name}/__init__.py,sha256={digest},{len(content)}")
    about = place / "holdfast-9.9.9.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: holdfast\nVersion: 9.9.9\n")
    (about / "RECORD").write_text("\n".join(rows))
    return place


def said_of(place: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SAID.format(place=str(place))],
        capture_output=True,
        text=True,
        cwd="/",
        check=True,
        env={"PATH": os.defpath},
    )
    return done.stdout


@pytest.mark.process
def test_an_overwritten_file_of_a_wheel_installation_is_found(tmp_path: Path) -> None:
    place = wheel_like(tmp_path)
    assert '["ok", "Holdfast 9.9.9;' in said_of(place)
    with (place / "agent" / "__init__.py").open("a") as file:
        file.write("# another agent\n")
    assert "another program has installed a package named agent over Holdfast's own" in said_of(
        place
    )
    other = place / "other-1.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (other / "top_level.txt").write_text("agent\n")
    (other / "RECORD").write_text("agent/__init__.py,,\n")
    assert "other installs a package named agent" in said_of(place)


@pytest.mark.process
def test_running_from_files_without_installation_is_reported(tmp_path: Path) -> None:
    place = wheel_like(tmp_path)
    subprocess.run(["rm", "-r", str(place / "holdfast-9.9.9.dist-info")], check=True)
    script = SAID.format(place=str(place)).replace(
        "from gateway",
        "import importlib.metadata as m\n"
        "m.Distribution.from_name = classmethod(lambda *_: (_ for _ in ()).throw(m.PackageNotFoundError()))\n"
        "from gateway",
        1,
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd="/",
        check=True,
        env={"PATH": os.defpath},
    )
    assert "is not installed as a package" in done.stdout


def offered(folder: Path, group: str, name: str, code: str) -> None:
    (folder / f"{name}_of_others.py").write_text(code)
    about = folder / f"{name}-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-others\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[{group}]\n{name} = {name}_of_others:IT\n")


async def test_plugins_are_loaded_and_broken_ones_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await check_plugins(case_of(tmp_path)) == []
    monkeypatch.syspath_prepend(tmp_path)
    offered(tmp_path, "holdfast.tools", "fine", "IT = object()\n")
    assert told(await check_plugins(case_of(tmp_path))) == [("ok", "additions")]
    offered(tmp_path, "holdfast.providers", "broken", "raise RuntimeError('oh no')\n")
    found = only(await check_plugins(case_of(tmp_path)), "additions")
    assert found.level == "fail"
    assert (
        "providers: broken from broken-others cannot be loaded: RuntimeError: oh no" in found.text
    )
    assert "uninstall" in found.fix


@pytest.mark.parametrize(
    ("version", "bad"),
    [
        ((3, 6, 9), False),
        ((3, 7, 0), True),
        ((3, 40, 1), True),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
    ],
)
def test_sqlite_versions_with_the_wal_bug_are_reported(version: tuple[int, ...], bad: bool) -> None:
    assert has_wal_bug(version) is bad
    (found,) = _sqlite_findings(version)
    assert (found.level == "warn") is bad


async def test_without_sqlite_its_version_is_not_checked(tmp_path: Path) -> None:
    assert len(await check_sqlite(case_of(tmp_path))) == 1
    store = StoreSettings(url=Secret("postgresql://h/n"))
    assert await check_sqlite(case_of(tmp_path, store=store)) == []
