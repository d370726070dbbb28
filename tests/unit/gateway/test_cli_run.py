from pathlib import Path

import pytest

from gateway.access.claim import OwnerClaim
from gateway.access.pairing import find_claim_code
from gateway.config.loader import ConfigOptions, load
from gateway.operate.cli.run import (
    command_name,
    greeting_lines,
    missing_platform_lines,
    owner_command_lines,
)
from platforms.core.registry import load_specs
from tests.fakes.telegram.kit import telegram
from tests.fakes.telegram.server import BOT_NAME, serving

TOKENS = {
    "telegram": {"TELEGRAM_BOT_TOKEN": "1:abc"},
    "discord": {"DISCORD_BOT_TOKEN": "abc"},
    "slack": {"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1"},
}

HOME = Path("/home/ann/holdfast")


@pytest.mark.parametrize(
    ("started_as", "on_path", "name"),
    [
        ("/home/ann/holdfast/.venv/bin/holdfast", False, ".venv/bin/holdfast"),
        ("/opt/holdfast/bin/holdfast", False, "/opt/holdfast/bin/holdfast"),
        ("/opt/holdfast/bin/holdfast", True, "holdfast"),
        (".venv/bin/holdfast", False, ".venv/bin/holdfast"),
    ],
)
def test_printed_commands_work_where_the_gateway_was_started(
    started_as: str, on_path: bool, name: str
) -> None:
    assert command_name(started_as, HOME, lambda word: word if on_path else None) == name


def test_a_service_prints_commands_with_their_full_path() -> None:
    program = "/opt/holdfast/bin/holdfast"
    assert command_name(program, Path("/"), lambda _: None) == program


def test_a_service_does_not_mention_ctrl_c(tmp_path: Path) -> None:
    loaded = load(ConfigOptions(None, ()), {"HOME": str(tmp_path)}, {})
    assert greeting_lines(loaded, None, None)[0] == "Holdfast is running. Ctrl-C stops it."
    assert greeting_lines(loaded, None, None, by_systemd=True)[0] == "Holdfast is running."


def test_a_first_start_prints_the_page_and_the_missing_settings(tmp_path: Path) -> None:
    loaded = load(ConfigOptions(None, ()), {"HOME": str(tmp_path)}, {})
    text = "\n".join(greeting_lines(loaded, "http://there/enter/x", None, ".venv/bin/holdfast"))
    assert "http://there/enter/x" in text
    assert ".venv/bin/holdfast chat" in text
    assert "For a real one set OPENAI_API_KEY" in text
    assert "admin" not in text


@pytest.mark.parametrize(
    ("page", "needs_owner", "lines"),
    [
        (None, False, []),
        (
            "http://127.0.0.1:8420/",
            False,
            ["  Chat in the browser:   http://127.0.0.1:8420/ (`h link` prints a link)"],
        ),
        (None, True, ["  There is no admin yet. `h pair claim` prints how to become the owner."]),
    ],
)
def test_a_journal_gets_the_commands_instead_of_link_and_code(
    page: str | None, needs_owner: bool, lines: list[str]
) -> None:
    assert owner_command_lines("h", page, needs_owner=needs_owner) == lines


def owner(tmp_path: Path, *platforms: str, bot: str = "") -> list[str]:
    """Return the lines that explain how to become the owner."""
    environ = {"HOME": str(tmp_path), "OPENAI_API_KEY": "sk-none"}
    for platform in platforms:
        environ |= TOKENS[platform]
    loaded = load(ConfigOptions(None, ()), environ, load_specs())
    links = {"telegram": f"https://t.me/{bot}?start=ABCD2345"} if bot else {}
    lines = greeting_lines(loaded, None, OwnerClaim("ABCD2345", links), ".venv/bin/holdfast")
    start = next(n for n, line in enumerate(lines) if "There is no admin yet" in line)
    return "\n".join(lines[start + 1 :]).split("\n")


def test_on_telegram_a_link_makes_its_user_the_owner(tmp_path: Path) -> None:
    (line,) = owner(tmp_path, "telegram", bot="ann_bot")
    assert line == "    Telegram:  open https://t.me/ann_bot?start=ABCD2345 and press Start"
    assert find_claim_code("/start ABCD2345") == "ABCD2345"  # as sent by Telegram


def test_a_telegram_bot_without_a_known_name_gets_a_message(tmp_path: Path) -> None:
    (line,) = owner(tmp_path, "telegram")
    assert line == "    Telegram:  send “claim ABCD2345” to the bot in a direct message"


def test_on_discord_the_bot_must_be_invited_first(tmp_path: Path) -> None:
    line, more = owner(tmp_path, "discord")
    assert line.startswith("    Discord:   send “claim ABCD2345” to the bot in a direct message (")
    assert ".venv/bin/holdfast config discord-invite" in line
    assert more.strip().endswith("to your server)")


def test_only_configured_platforms_are_explained(tmp_path: Path) -> None:
    lines = owner(tmp_path, "telegram", "slack", bot="ann_bot")
    assert sorted(line.split(":")[0].strip() for line in lines) == ["Slack", "Telegram"]
    assert "    Slack:     send “claim ABCD2345” to the bot in a direct message" in lines


async def test_the_claim_link_is_known_after_the_bot_connected() -> None:
    async with serving() as server, telegram(server) as adapter:
        assert adapter.claim_link("ABCD2345") == ""
        await adapter._connect()
        assert adapter.claim_link("ABCD2345") == f"https://t.me/{BOT_NAME}?start=ABCD2345"


def test_with_a_model_and_without_the_page_the_greeting_is_short(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "OPENAI_API_KEY": "sk-none"}
    loaded = load(ConfigOptions(None, ("http.ui=false",)), environ, {})
    first, second, platforms = greeting_lines(loaded, None, None)
    assert first.startswith("Holdfast is running")
    assert "holdfast chat" in second
    assert "TELEGRAM_BOT_TOKEN" in platforms


def test_a_token_without_its_platform_package_is_reported() -> None:
    environ = {"TELEGRAM_BOT_TOKEN": "1:abc", "SLACK_APP_TOKEN": ""}
    (line,) = missing_platform_lines(environ, {"discord", "slack"})
    assert line.startswith("  TELEGRAM_BOT_TOKEN is set, but Telegram support is not")
    assert line.endswith("Install holdfast[telegram].")
    assert missing_platform_lines(environ, {"telegram"}) == []
