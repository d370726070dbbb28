import os
from pathlib import Path

import pytest

from gateway.config import credentials
from gateway.config.loader import ConfigOptions
from gateway.errors import CannotStart
from gateway.operate.setup.places import SYSTEM_FOLDER, ConfigTarget, choose_target


def test_users_and_root_have_different_default_paths(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    own = choose_target(ConfigOptions(), environ, 1000)
    assert own.path == tmp_path / ".config/holdfast/holdfast.toml"
    assert own.file_mode == 0o600
    if not (SYSTEM_FOLDER / "holdfast.toml").exists():
        machine = choose_target(ConfigOptions(), environ, 0)
        assert (machine.path, machine.file_mode) == (SYSTEM_FOLDER / "holdfast.toml", 0o644)
        assert machine.credentials_folder == credentials.MACHINE_FOLDER


def test_without_home_the_user_database_is_used() -> None:
    assert choose_target(ConfigOptions(), {}, 1).path.name == "holdfast.toml"


def test_the_configuration_in_use_is_the_one_written(tmp_path: Path) -> None:
    own = tmp_path / ".config/holdfast/holdfast.toml"
    own.parent.mkdir(parents=True)
    own.touch()
    environ = {"HOME": str(tmp_path)}
    assert choose_target(ConfigOptions(), environ, 0).path == own
    named = tmp_path / "named.toml"
    assert choose_target(ConfigOptions(named), environ, 0).path == named
    assert (
        choose_target(ConfigOptions(), {**environ, "HOLDFAST_CONFIG": str(named)}, 0).path == named
    )


def test_a_device_or_a_folder_is_not_replaced_by_the_configuration(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        with pytest.raises(CannotStart, match="is not a regular file"):
            choose_target(ConfigOptions(path), {}, 0)


@pytest.mark.parametrize(
    ("path", "reference"),
    [
        pytest.param(".config/holdfast/holdfast.toml", "credential:X", id="where it is looked for"),
        pytest.param("elsewhere/holdfast.toml", "file:credentials/X", id="anywhere else"),
    ],
)
def test_secret_references_can_be_resolved(tmp_path: Path, path: str, reference: str) -> None:
    place = ConfigTarget(tmp_path / path, {"HOME": str(tmp_path)}, 1000)
    assert place.secret_reference("X") == reference


def test_the_machines_secrets_can_be_resolved_by_its_service(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    place = ConfigTarget(SYSTEM_FOLDER / "holdfast.toml", environ, 0)
    assert place.secret_reference("X") == "credential:X"
    (tmp_path / credentials.USER_FOLDER).mkdir(parents=True)  # searched first
    assert place.secret_reference("X") == "file:credentials/X"


def test_only_a_default_path_needs_no_config_option(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    path = tmp_path / ".config/holdfast/holdfast.toml"
    assert not ConfigTarget(path, environ, 1000).is_default_path
    path.parent.mkdir(parents=True)
    path.touch()
    assert ConfigTarget(path, environ, 1000).is_default_path
    assert not ConfigTarget(tmp_path / "x.toml", environ, 1000).is_default_path
