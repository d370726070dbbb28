"""Doctor checks of file permissions."""

import os
import pwd
import socket
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.operate.doctor.permissions import check_permissions, fix_permissions
from tests.fakes.case import case_of, only, told


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A state folder as the gateway creates it."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    for name in ("holdfast.db", "api_key", "lock"):
        (folder / name).touch(mode=0o600)
    return folder


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def test_the_modes_that_the_gateway_creates_are_ok(home: Path) -> None:
    assert told(await check_permissions(case_of(home))) == [("ok", "modes")]
    assert told(await check_permissions(case_of(home / "not yet"))) == [("ok", "state folder")]


def opened(*paths: Path) -> None:
    for path in paths:
        path.chmod(0o755 if path.is_dir() else 0o644)


async def test_files_accessible_to_others_are_reported_and_fixed(home: Path) -> None:
    opened(home, home / "holdfast.db")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(home / "control.sock"))
        opened(home / "control.sock")
        found = await check_permissions(case_of(home))
        assert told(found) == [("warn", "modes")] * 3
        assert all(each.mend == "modes" for each in found)
        assert f"chmod 700 {home}" in found[0].fix
        done = list(fix_permissions(case_of(home)))
    assert [well for well, _ in done] == [True] * 3
    assert mode(home) == 0o700
    assert mode(home / "holdfast.db") == 0o600
    assert mode(home / "control.sock") == 0o600
    assert told(await check_permissions(case_of(home))) == [("ok", "modes")]
    assert list(fix_permissions(case_of(home))) == []


async def test_a_configuration_with_secrets_is_made_private(home: Path) -> None:
    file = home.parent / "holdfast.toml"
    file.touch()
    file.chmod(0o644)
    os.chown(file, -1, pwd.getpwuid(os.geteuid()).pw_gid)
    case = case_of(home)
    assert case.loaded
    warned = replace(case.loaded, warnings=(f"x is a secret; run: chmod 600 {file}",))
    ((well, said),) = fix_permissions(replace(case, config_path=file, loaded=warned))
    assert (well, mode(file)) == (True, 0o600)
    assert str(file) in said


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
async def test_a_group_given_access_to_the_configuration_keeps_it(home: Path) -> None:
    file = home.parent / "holdfast.toml"
    file.touch()
    os.chown(file, 0, 4242)
    file.chmod(0o644)
    case = case_of(home)
    assert case.loaded
    warned = replace(case.loaded, warnings=(f"x is a secret; run: chmod 600 {file}",))
    ((_, said),) = fix_permissions(replace(case, config_path=file, loaded=warned))
    assert mode(file) == 0o640
    assert "4242 may still read it" in said


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
async def test_files_of_another_owner_are_reported(home: Path) -> None:
    os.chown(home / "holdfast.db", 4242, -1)
    found = only(await check_permissions(case_of(home)), "owner")
    assert found.level == "fail"
    assert found.text.startswith("holdfast.db in ")
    assert "chown -R" in found.fix


async def test_a_file_in_place_of_the_state_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    found = only(await check_permissions(case_of(tmp_path / "state")), "state folder")
    assert "is not a folder" in found.text
    found = only(await check_permissions(case_of(tmp_path / "state" / "below")), "state folder")
    assert "cannot be read" in found.text


async def test_credentials_accessible_to_others_are_reported_and_fixed(home: Path) -> None:
    folder = home.parent / ".config/holdfast/credentials"
    folder.mkdir(parents=True)
    (folder / "TELEGRAM_BOT_TOKEN").write_text("1:secret")
    opened(folder, folder / "TELEGRAM_BOT_TOKEN")
    case = case_of(home, {"HOME": str(home.parent)})
    assert told(await check_permissions(case)) == [("warn", "modes")] * 2
    assert [well for well, _ in fix_permissions(case)] == [True] * 2
    assert mode(folder / "TELEGRAM_BOT_TOKEN") == 0o600
    assert told(await check_permissions(case)) == [("ok", "modes")]
