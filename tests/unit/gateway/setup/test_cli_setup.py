"""The command itself, as scripts give it."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.errors import ConfigError
from gateway.operate.cli.setup import setup
from gateway.operate.setup.asking import AnswerError, InputEnded
from gateway.operate.setup.budget import is_supported
from tests.unit.gateway.setup.setup_kit import TELEGRAM

ALONE = ("--non-interactive", "--no-check", "--no-service")


def give(folder: Path, *words: str, said: str = "", **environ: str) -> Result:
    """Give the command as somebody does who has set nothing but `environ`."""
    given: dict[str, str | None] = {
        "HOME": str(folder),
        "HOLDFAST_HOME": str(folder / "state"),
        "HOLDFAST_CONFIG": str(folder / "holdfast.toml"),
        "CREDENTIALS_DIRECTORY": str(folder / "nothing"),  # or this machine's would count for root
        **dict.fromkeys(
            ("TELEGRAM_BOT_TOKEN", "OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY")
        ),
        **environ,
    }
    return CliRunner().invoke(setup, words, env=given, input=said)


def told(found: Result, kind: type[Exception]) -> str:
    assert isinstance(found.exception, kind), found.output
    return str(found.exception)


def test_a_script_sets_everything_up_and_reads_what_became_of_it(tmp_path: Path) -> None:
    found = give(
        tmp_path,
        *(*ALONE, "--json", "--telegram-token", "-", "--model-key", "env:KEY", "--model", "m"),
        said=f"{TELEGRAM}\n",
        KEY="sk-ant-0123456789",
    )
    assert found.exit_code == 0, found.output
    report: dict[str, Any] = json.loads(found.stdout)
    assert report == {
        "config": str(tmp_path / "holdfast.toml"),
        "changed": True,
        "backup": None,
        "platforms": {"telegram": None},
        "model": {"provider": "anthropic", "name": "m", "base_url": None, "checked": False},
        "warnings": [],
        "next": report["next"],
    }
    assert report["next"].endswith(" run")
    secrets = tmp_path / "credentials"
    assert {each.name: each.read_text().strip() for each in secrets.iterdir()} == {
        "TELEGRAM_BOT_TOKEN": TELEGRAM,
        "ANTHROPIC_API_KEY": "sk-ant-0123456789",
    }
    assert TELEGRAM not in found.output
    assert stat.S_IMODE((tmp_path / "holdfast.toml").stat().st_mode) == 0o600


def test_a_file_that_commands_do_not_find_is_named_in_what_comes_next(tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    words = ("--platform", "none", "--provider", "demo", "--config", str(other))
    found = give(tmp_path, *ALONE, *words)
    assert found.exit_code == 0, found.output
    assert f"run --config {other}" in found.stderr
    assert found.stdout == ""


def test_twice_is_the_same_as_once(tmp_path: Path) -> None:
    words = (
        *ALONE,
        "--telegram-token",
        "env:T",
        "--base-url",
        "http://10.0.0.5:8000",
        "--model",
        "m",
    )
    assert give(tmp_path, *words, T=TELEGRAM).exit_code == 0
    before = (tmp_path / "holdfast.toml").read_bytes()
    again = give(tmp_path, *words, T=TELEGRAM)
    assert "is as it was, and works" in again.stderr
    assert (tmp_path / "holdfast.toml").read_bytes() == before
    assert not (tmp_path / "holdfast.toml.bak").exists()


@pytest.mark.parametrize(
    ("words", "sentences"),
    [
        pytest.param(
            (),
            ["No platform is named: give --platform", "No model is named: give --model-key"],
            id="nothing at all",
        ),
        pytest.param(
            ("--platform", "telegram", "--provider", "demo"),
            ["Telegram needs its bot token: give --telegram-token env:NAME"],
            id="no token",
        ),
        pytest.param(
            ("--telegram-token", TELEGRAM),
            ["--telegram-token takes env:NAME, file:PATH or -"],
            id="a token on the command line",
        ),
        pytest.param(
            ("--telegram-token", "-", "--model-key", "-"),
            ["--model-key and --telegram-token cannot both come from the standard input."],
            id="two from the input",
        ),
        pytest.param(
            ("--base-url", "10.0.0.5:8000"), ["--base-url must be an address"], id="no address"
        ),
        pytest.param(
            ("--platform", "irc", "--provider", "demo"),
            ["There is no platform 'irc'"],
            id="no such platform",
        ),
    ],
)
def test_what_is_missing_is_a_sentence_each_and_changes_nothing(
    tmp_path: Path, words: tuple[str, ...], sentences: list[str]
) -> None:
    found = give(tmp_path, *ALONE, *words, said=TELEGRAM)
    lines = told(found, AnswerError).split("\n")
    assert [line[: len(start)] for line, start in zip(lines, sentences, strict=True)] == sentences
    assert TELEGRAM not in found.output
    assert list(tmp_path.iterdir()) == []


def test_a_daily_limit_is_written_where_this_version_knows_one(tmp_path: Path) -> None:
    words = ("--platform", "none", "--model-key", "env:KEY", "--daily-usd", "5")
    found = give(tmp_path, *ALONE, *words, KEY="sk-0123456789")
    assert (found.exit_code == 0) == is_supported()
    text = (tmp_path / "holdfast.toml").read_text() if is_supported() else "usd_per_day = 5"
    assert "usd_per_day = 5" in text


def test_what_is_piped_in_answers_the_questions(tmp_path: Path) -> None:
    found = give(tmp_path, "--no-check", "--no-service", "--provider", "demo", said="none\nno\n")
    assert found.exit_code == 0, found.output
    assert "Platforms (telegram, discord, slack, or none) [telegram]: \n" in found.stdout
    assert "Start it: " in found.stdout


def test_an_input_that_ends_before_the_last_answer_that_matters_changes_nothing(
    tmp_path: Path,
) -> None:
    found = give(tmp_path, "--no-check", said="telegram\n")
    assert "nothing was changed" in told(found, InputEnded)
    assert list(tmp_path.iterdir()) == []


def test_a_configuration_that_is_no_toml_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text("[http\n")
    found = give(tmp_path, *ALONE, "--platform", "none", "--provider", "demo")
    assert "is not TOML" in told(found, ConfigError)
    assert (tmp_path / "holdfast.toml").read_text() == "[http\n"


def test_the_help_has_all_flags(tmp_path: Path) -> None:
    found = give(tmp_path, "--help")
    for flag in ("--telegram-token", "--model-key", "--base-url", "--daily-usd", "--no-check"):
        assert flag in found.output
