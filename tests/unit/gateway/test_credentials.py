"""Secrets as files in a folder, from systemd, compose or people."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.config import credentials
from gateway.config.loader import (
    ConfigOptions,
    is_service_home,
    load,
    read_environment,
    state_folder,
)
from gateway.errors import ConfigError
from platforms.core.registry import load_specs

Kept = Callable[..., Path]


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    def keep(**files: str) -> Path:
        folder = tmp_path / "credentials"
        folder.mkdir(exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text)
        return folder

    return keep


def test_files_named_like_variables_count_as_variables(kept: Kept) -> None:
    folder = kept(TELEGRAM_BOT_TOKEN="1:abc\n", holdfast_OPENAI_API_KEY="sk-x", key="other")
    (folder / "A_FOLDER").mkdir()
    found = credentials.read_variables(folder)
    assert found == {"TELEGRAM_BOT_TOKEN": "1:abc", "OPENAI_API_KEY": "sk-x"}


def test_token_passed_by_systemd_configures_its_platform(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = kept(
        holdfast_TELEGRAM_BOT_TOKEN="1:abc",
        holdfast_HOLDFAST_HTTP__PORT="9000",
        holdfast_OPENAI_API_KEY="sk-of-systemd",
        holdfast_key="named",
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(folder))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-environment")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    options = ConfigOptions(overrides=("http.api_key=credential:key",))
    settings = load(options, read_environment(), load_specs()).settings
    assert "telegram" in settings.platforms
    assert settings.http.port == 9000
    assert settings.model.api_key
    assert settings.model.api_key.reveal() == "sk-of-the-environment"  # a set variable wins
    assert settings.http.api_key
    assert settings.http.api_key.reveal() == "named"


def test_folder_of_the_user_is_used_without_systemd(tmp_path: Path) -> None:
    own = tmp_path / ".config/holdfast/credentials"
    own.mkdir(parents=True)
    assert credentials.find_folder({"HOME": str(tmp_path)}) == own
    assert credentials.find_folder({"HOME": str(tmp_path), "CREDENTIALS_DIRECTORY": "/c"}) == Path(
        "/c"
    )
    assert credentials.find_folder({"HOME": str(tmp_path / "nobody")}) in {
        None,
        credentials.MACHINE_FOLDER,
    }


def test_missing_named_folder_counts_as_empty(tmp_path: Path) -> None:
    assert credentials.read_variables(tmp_path / "none") == {}


def test_unreadable_credential_is_reported(kept: Kept) -> None:
    folder = kept()
    (folder / "A_TOKEN").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"A_TOKEN is not UTF-8"):
        credentials.read_variables(folder)
    with pytest.raises(ConfigError, match="cannot be read: Not a directory"):
        credentials.read_variables(folder / "A_TOKEN")
    (folder / "A_TOKEN").unlink()
    (folder / "MEMORY").symlink_to("/proc/self/mem")  # unreadable at its beginning
    with pytest.raises(ConfigError, match="MEMORY cannot be read"):
        credentials.read_variables(folder)


# --- choice of the state folder ----------------------------------------------------------------


def test_root_uses_the_folder_of_the_system_service_by_default(
    tmp_path: Path,
) -> None:
    service, home = tmp_path / "service", tmp_path / "root"
    own = home / ".local/share/holdfast"

    def found(*, root: bool) -> Path:
        return state_folder({"HOME": str(home)}, service_home=service, is_root=root)

    assert found(root=True) == own
    service.mkdir()
    (service / "lock").touch()
    assert found(root=True) == service
    assert found(root=False) == own
    own.mkdir(parents=True)
    assert found(root=True) == own


def test_chosen_folder_is_not_the_service_default(tmp_path: Path) -> None:
    assert not is_service_home({"HOLDFAST_HOME": "/var/lib/holdfast"})
    assert not is_service_home({"STATE_DIRECTORY": "/var/lib/holdfast"})
    assert not is_service_home({"HOME": str(tmp_path)}) or os.path.lexists("/var/lib/holdfast")
