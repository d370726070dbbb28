"""`holdfast chat` without a running gateway."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.config.loader import ConfigOptions, load, read_environment
from gateway.operate.cli.chat import console_only, standalone_notice
from platforms.core.registry import load_specs

ROOT = Path(__file__).parents[3]
HOME = Path("/state")


def test_only_the_terminal_is_left_of_the_platforms(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "TELEGRAM_BOT_TOKEN": "1:abc"}
    settings = load(ConfigOptions(), environ, load_specs()).settings
    assert set(settings.platforms) == {"telegram"}
    assert console_only(settings).platforms == {}


@pytest.mark.parametrize(
    ("platforms", "connected", "notice"),
    [
        ((), False, ""),
        ((), True, ""),
        (
            ("telegram",),
            False,
            (
                "Holdfast is not running on /state. This chat does not connect telegram; "
                "`holdfast run` does, or this chat with --platforms."
            ),
        ),
        (
            ("discord", "slack", "telegram"),
            True,
            "Holdfast is not running on /state. This chat also connects discord, slack and telegram.",
        ),
    ],
)
def test_the_chat_says_which_platforms_it_connects(
    platforms: tuple[str, ...], connected: bool, notice: str
) -> None:
    assert standalone_notice(platforms, HOME, connected=connected) == notice


def test_a_chat_with_its_own_state_folder_leaves_the_bots_alone(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as telegram:
        telegram.setblocking(False)  # noqa: FBT003 - as the standard library has it
        url = f"http://127.0.0.1:{telegram.getsockname()[1]}"
        ended = subprocess.run(
            [sys.executable, "-c", "from gateway.operate.cli import main; main()", "chat"],
            env={
                "PATH": read_environment()["PATH"],
                "PYTHONPATH": str(ROOT),
                "HOME": str(tmp_path),
                "HOLDFAST_HOME": str(tmp_path / "state"),
                "HOLDFAST_PLATFORMS__TELEGRAM__BASE_URL": url,
                "TELEGRAM_BOT_TOKEN": "123456789:AAE-a_token_of-a_telegram_bot",
            },
            cwd=tmp_path,
            input="hello\n",
            text=True,
            capture_output=True,
            timeout=60,
            check=True,
        )
        with pytest.raises(BlockingIOError):
            telegram.accept()
    assert "This chat does not connect telegram" in ended.stderr
    assert ended.stdout.strip()
