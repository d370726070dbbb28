from pathlib import Path

import pytest

from gateway.config import credentials
from gateway.config.loader import Options
from gateway.operate.setup.places import SYSTEM, Place, place_of


def test_a_user_has_their_own_place_and_root_the_machines(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    own = place_of(Options(), environ, 1000)
    assert own.path == tmp_path / ".config/holdfast/holdfast.toml"
    assert own.mode == 0o600
    if not (SYSTEM / "holdfast.toml").exists():
        machine = place_of(Options(), environ, 0)
        assert (machine.path, machine.mode) == (SYSTEM / "holdfast.toml", 0o644)
        assert machine.credentials == credentials.OF_MACHINE


def test_without_a_home_the_users_entry_tells_it() -> None:
    assert place_of(Options(), {}, 1).path.name == "holdfast.toml"


def test_the_file_that_is_read_is_the_one_that_is_written(tmp_path: Path) -> None:
    own = tmp_path / ".config/holdfast/holdfast.toml"
    own.parent.mkdir(parents=True)
    own.touch()
    environ = {"HOME": str(tmp_path)}
    assert place_of(Options(), environ, 0).path == own
    named = tmp_path / "named.toml"
    assert place_of(Options(named), environ, 0).path == named
    assert place_of(Options(), {**environ, "HOLDFAST_CONFIG": str(named)}, 0).path == named


@pytest.mark.parametrize(
    ("path", "reference"),
    [
        pytest.param(".config/holdfast/holdfast.toml", "credential:X", id="where it is looked for"),
        pytest.param("elsewhere/holdfast.toml", "file:credentials/X", id="anywhere else"),
    ],
)
def test_secrets_are_named_so_that_they_are_found(
    tmp_path: Path, path: str, reference: str
) -> None:
    place = Place(tmp_path / path, {"HOME": str(tmp_path)}, 1000)
    assert place.reference("X") == reference


def test_the_machines_secrets_are_found_by_its_service(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    place = Place(SYSTEM / "holdfast.toml", environ, 0)
    assert place.reference("X") == "credential:X"
    (tmp_path / credentials.OF_USER).mkdir(parents=True)  # which would be looked into first
    assert place.reference("X") == "file:credentials/X"


def test_commands_find_only_a_usual_file_by_themselves(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    path = tmp_path / ".config/holdfast/holdfast.toml"
    assert not Place(path, environ, 1000).is_usual
    path.parent.mkdir(parents=True)
    path.touch()
    assert Place(path, environ, 1000).is_usual
    assert not Place(tmp_path / "x.toml", environ, 1000).is_usual
