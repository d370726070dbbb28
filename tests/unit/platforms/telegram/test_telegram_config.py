"""Tests of Telegram's configuration and of lazy loading of the library."""

import subprocess
import sys

import pytest

from gateway.config.loader import ConfigOptions, load
from gateway.errors import ConfigError
from platforms.core.registry import find_platform
from platforms.telegram import SPEC, TelegramConfig
from sessions.values.secret import Secret

TOKEN = Secret("123:abc")


def test_a_token_from_the_environment_is_enough() -> None:
    specs = {"telegram": SPEC}
    loaded = load(ConfigOptions(), {"TELEGRAM_BOT_TOKEN": "123:abc", "OPENAI_API_KEY": "sk"}, specs)
    assert loaded.settings.platforms["telegram"] == TelegramConfig(token=TOKEN)


def test_a_missing_token_is_reported_with_its_environment_variable() -> None:
    with pytest.raises(ConfigError, match="TELEGRAM_BOT_TOKEN"):
        load(
            ConfigOptions(overrides=("platforms.telegram.require_mention=false",)),
            {},
            {"telegram": SPEC},
        )


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (TelegramConfig(token=TOKEN), ""),
        (TelegramConfig(token=TOKEN, mode="webhook"), "is missing"),
        (TelegramConfig(token=TOKEN, mode="webhook", webhook_url="http://e.org/x"), "https"),
        (TelegramConfig(token=TOKEN, mode="webhook", webhook_url="https://e.org/"), "path"),
        (TelegramConfig(token=TOKEN, mode="webhook", webhook_url="https://e.org/tg"), ""),
        (TelegramConfig(token=TOKEN, mode="webhook", webhook_url="http://127.0.0.1:1/tg"), ""),
        (TelegramConfig(token=TOKEN, webhook_secret=Secret("no spaces")), "letters"),
    ],
)
def test_invalid_combinations_are_reported(config: TelegramConfig, problem: str) -> None:
    found = [text for _, text in config.conflicts()]
    assert len(found) == bool(problem)
    assert all(problem in text for text in found)


@pytest.mark.process
def test_importing_the_package_does_not_import_the_library() -> None:
    assert find_platform("telegram") is SPEC
    program = "import sys, platforms.telegram; sys.exit(1 if 'telegram' in sys.modules else 0)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.process
def test_building_the_adapter_does_not_import_cryptography() -> None:
    code = """
import sys
from platforms.core.contract import Surroundings
from platforms.telegram import SPEC, TelegramConfig
from sessions.values.clock import SystemClock
from sessions.values.ids import Ids
from sessions.values.secret import Secret
from tests.fakes.archive import MemoryArchive, MemoryShelf

clock = SystemClock()
around = Surroundings(clock, Ids(clock), MemoryShelf(), MemoryArchive())
SPEC.build(TelegramConfig(token=Secret("123:abc")), around)
print("telegram" in sys.modules, "cryptography" in sys.modules)
import cryptography
print(cryptography.__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["True", "False", "cryptography"]
