"""What the doctor says of the program itself and of what others add to it."""

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


async def test_our_own_packages_are_recognised(tmp_path: Path) -> None:
    (found,) = await check_packages(case_of(tmp_path))
    assert (found.level, "0.1.0" in found.text or "Holdfast" in found.text) == ("ok", True)


def test_a_package_of_another_that_hides_ours_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "intruder").mkdir()
    (tmp_path / "intruder" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    (found,) = _package_findings(("intruder", "agent"))
    assert found.level == "fail"
    assert f"intruder is loaded from {tmp_path / 'intruder'}" in found.text
    assert "environment of its own" in found.fix


SAID = """
import json, sys
sys.path[:0] = [{place!r}]
from gateway.operate.doctor.installation import _package_findings
print(json.dumps([[each.level, each.text] for each in _package_findings()]))
"""


def wheel_like(folder: Path) -> Path:
    """An installation from a wheel, of as much as is looked at."""
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


def test_in_an_installation_from_a_wheel_what_was_overwritten_is_found(tmp_path: Path) -> None:
    place = wheel_like(tmp_path)
    assert '["ok", "Holdfast 9.9.9;' in said_of(place)
    with (place / "agent" / "__init__.py").open("a") as file:
        file.write("# another agent\n")
    assert "something has put a package called agent in the place of ours" in said_of(place)
    other = place / "other-1.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (other / "top_level.txt").write_text("agent\n")
    (other / "RECORD").write_text("agent/__init__.py,,\n")
    assert "other brings a package called agent" in said_of(place)


def test_without_an_installation_it_is_said(tmp_path: Path) -> None:
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
    assert "was not installed" in done.stdout


def offered(folder: Path, group: str, name: str, code: str) -> None:
    (folder / f"{name}_of_others.py").write_text(code)
    about = folder / f"{name}-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-others\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[{group}]\n{name} = {name}_of_others:IT\n")


async def test_what_others_offer_is_loaded_and_what_breaks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await check_plugins(case_of(tmp_path)) == []
    monkeypatch.syspath_prepend(tmp_path)
    offered(tmp_path, "holdfast.tools", "fine", "IT = object()\n")
    assert told(await check_plugins(case_of(tmp_path))) == [("ok", "additions")]
    offered(tmp_path, "holdfast.providers", "broken", "raise RuntimeError('oh no')\n")
    found = only(await check_plugins(case_of(tmp_path)), "additions")
    assert found.level == "fail"
    assert "providers: broken of broken-others cannot be loaded: RuntimeError: oh no" in found.text
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
def test_versions_of_sqlite_with_the_fault_are_named(version: tuple[int, ...], bad: bool) -> None:
    assert has_wal_bug(version) is bad
    (found,) = _sqlite_findings(version)
    assert (found.level == "warn") is bad


async def test_who_does_not_use_sqlite_hears_nothing_of_it(tmp_path: Path) -> None:
    assert len(await check_sqlite(case_of(tmp_path))) == 1
    store = StoreSettings(url=Secret("postgresql://h/n"))
    assert await check_sqlite(case_of(tmp_path, store=store)) == []
