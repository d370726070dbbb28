"""The wheel that `make wheel` builds is complete; `make first-run` installs it with pip, pipx and uv."""

import asyncio
import email
import subprocess
import sys
import zipfile
from pathlib import Path

from scripts.man_page import PAGE
from tests.docs.pages import ROOT
from tests.faults.first_run import wheel
from tests.faults.installing import SUPPORTED, WAYS, documented


async def test_the_wheel_works_alone_and_has_every_file(tmp_path: Path) -> None:
    built = await wheel(tmp_path)
    with zipfile.ZipFile(built) as archive:
        names = {*archive.namelist()}
        data = next(each for each in names if each.endswith(".data/data/share/man/man1/holdfast.1"))
        assert archive.read(data) == PAGE.read_bytes()
        metadata = email.message_from_bytes(
            archive.read(next(each for each in names if each.endswith("/METADATA")))
        )
    assert {
        each.rpartition(" ")[2]
        for each in metadata.get_all("Classifier", ())
        if each.startswith("Programming Language :: Python :: 3.")
    } == {*SUPPORTED}
    source = {
        str(each.relative_to(ROOT))
        for package in ("agent", "gateway", "platforms", "sessions")
        for each in (ROOT / package).rglob("*")
        if each.is_file() and "__pycache__" not in each.parts
    }
    assert source <= names
    alone = tmp_path / "alone"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-qq")
    offline = ("--no-index", "--no-deps", "--no-compile", "--target", str(alone), str(built))
    await asyncio.to_thread(subprocess.run, (*pip, *offline), check=True, timeout=50)
    shown = await asyncio.to_thread(
        subprocess.run,
        (sys.executable, alone / "bin/holdfast", "--version"),
        env={"PYTHONPATH": str(alone)},
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    assert shown.stdout.startswith("holdfast ")


def test_the_page_has_the_commands_for_every_way_of_installing() -> None:
    for way in WAYS:
        assert documented("A program of its own", way)[0] == "make wheel"
        assert documented("Upgrade", way)[0] == "git pull && make wheel"
        (removal,) = documented("Uninstall", way)
        assert removal.startswith((way, "rm -r ~/"))
