from pathlib import Path

import pytest

from gateway.cli.run import greeting, not_installed, own_name
from gateway.config import Options, load

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
def test_commands_are_named_so_that_they_work_where_it_was_started(
    started_as: str, on_path: bool, name: str
) -> None:
    assert own_name(started_as, HOME, lambda word: word if on_path else None) == name


def test_a_newcomer_is_told_where_the_page_is_and_what_is_missing(tmp_path: Path) -> None:
    loaded = load(Options(None, ()), {"HOME": str(tmp_path)}, {})
    text = "\n".join(greeting(loaded, "http://there/enter/x", "ABCD2345", ".venv/bin/holdfast"))
    assert "http://there/enter/x" in text
    assert ".venv/bin/holdfast chat" in text
    assert "For a real one set OPENAI_API_KEY" in text
    assert "claim ABCD2345" in text


def test_with_a_model_and_no_page_the_greeting_is_short(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "OPENAI_API_KEY": "sk-none"}
    loaded = load(Options(None, ("http.ui=false",)), environ, {})
    first, second, platforms = greeting(loaded, None, None)
    assert first.startswith("Holdfast is running")
    assert "holdfast chat" in second
    assert "TELEGRAM_BOT_TOKEN" in platforms


def test_a_token_that_nothing_can_use_is_not_passed_over_in_silence() -> None:
    environ = {"TELEGRAM_BOT_TOKEN": "1:abc", "SLACK_APP_TOKEN": ""}
    (line,) = not_installed(environ, {"discord", "slack"})
    assert line.startswith("  TELEGRAM_BOT_TOKEN is set, but what speaks to Telegram is not")
    assert line.endswith("install holdfast[telegram].")
    assert not_installed(environ, {"telegram"}) == []
