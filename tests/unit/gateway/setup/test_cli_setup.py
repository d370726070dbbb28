"""`holdfast setup` as scripts call it."""

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
    """Run the command with no other variables than `environ`."""
    given: dict[str, str | None] = {
        "HOME": str(folder),
        "PATH": str(folder / "programs"),  # without npx, so that servers of it are not offered
        "HOLDFAST_HOME": str(folder / "state"),
        "HOLDFAST_CONFIG": str(folder / "holdfast.toml"),
        "CREDENTIALS_DIRECTORY": str(
            folder / "nothing"
        ),  # or root would use this machine's credentials
        **dict.fromkeys(
            ("TELEGRAM_BOT_TOKEN", "OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY")
        ),
        **environ,
    }
    return CliRunner().invoke(setup, words, env=given, input=said)


def told(found: Result, kind: type[Exception]) -> str:
    assert isinstance(found.exception, kind), found.output
    return str(found.exception)


def test_a_script_configures_everything_and_reads_the_result(tmp_path: Path) -> None:
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


def test_a_config_file_at_an_unusual_path_is_named_in_the_next_command(tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    words = ("--platform", "none", "--provider", "demo", "--config", str(other))
    found = give(tmp_path, *ALONE, *words)
    assert found.exit_code == 0, found.output
    assert f"run --config {other}" in found.stderr
    assert found.stdout == ""


def test_running_setup_twice_changes_nothing(tmp_path: Path) -> None:
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
    assert "is unchanged and valid" in again.stderr
    assert (tmp_path / "holdfast.toml").read_bytes() == before
    assert not (tmp_path / "holdfast.toml.bak").exists()


@pytest.mark.parametrize(
    ("words", "sentences"),
    [
        pytest.param(
            (),
            ["No platform is given: use --platform", "No model is given: use --model-key"],
            id="nothing at all",
        ),
        pytest.param(
            ("--platform", "telegram", "--provider", "demo"),
            ["Telegram needs its bot token: use --telegram-token env:NAME"],
            id="no token",
        ),
        pytest.param(
            ("--telegram-token", TELEGRAM),
            ["--telegram-token takes env:NAME, file:PATH or -"],
            id="a token on the command line",
        ),
        pytest.param(
            ("--telegram-token", "-", "--model-key", "-"),
            ["--model-key and --telegram-token cannot both be read from standard input."],
            id="two from the input",
        ),
        pytest.param(
            ("--base-url", "10.0.0.5:8000"), ["--base-url must be a URL"], id="no address"
        ),
        pytest.param(
            ("--platform", "irc", "--provider", "demo"),
            ["There is no platform 'irc'"],
            id="no such platform",
        ),
    ],
)
def test_each_missing_answer_is_reported_and_nothing_changes(
    tmp_path: Path, words: tuple[str, ...], sentences: list[str]
) -> None:
    found = give(tmp_path, *ALONE, *words, said=TELEGRAM)
    lines = told(found, AnswerError).split("\n")
    assert [line[: len(start)] for line, start in zip(lines, sentences, strict=True)] == sentences
    assert TELEGRAM not in found.output
    assert list(tmp_path.iterdir()) == []


def test_a_daily_limit_is_written_if_this_version_supports_it(tmp_path: Path) -> None:
    words = ("--platform", "none", "--model-key", "env:KEY", "--daily-usd", "5")
    found = give(tmp_path, *ALONE, *words, KEY="sk-0123456789")
    assert (found.exit_code == 0) == is_supported()
    text = (tmp_path / "holdfast.toml").read_text() if is_supported() else "usd_per_day = 5"
    assert "usd_per_day = 5" in text


def test_piped_input_answers_the_questions(tmp_path: Path) -> None:
    found = give(tmp_path, "--no-check", "--no-service", "--provider", "demo", said="none\nno\n")
    assert found.exit_code == 0, found.output
    assert "Platforms (telegram, discord, slack, or none) [telegram]: \n" in found.stdout
    assert "Start Holdfast with: " in found.stdout


def test_input_that_ends_too_early_changes_nothing(
    tmp_path: Path,
) -> None:
    found = give(tmp_path, "--no-check", said="telegram\n")
    assert "Nothing was changed" in told(found, InputEnded)
    assert list(tmp_path.iterdir()) == []


def test_a_configuration_that_is_not_toml_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text("[http\n")
    found = give(tmp_path, *ALONE, "--platform", "none", "--provider", "demo")
    assert "is not TOML" in told(found, ConfigError)
    assert (tmp_path / "holdfast.toml").read_text() == "[http\n"


def test_a_problem_that_stays_is_named_after_the_answers_are_saved(tmp_path: Path) -> None:
    before = "[http]\nprot = 1\n"
    (tmp_path / "holdfast.toml").write_text(before)
    words = ("--no-check", "--no-service", "--platform", "none", "--model-key", "env:KEY")
    found = give(tmp_path, *words, said="yes\n\nno\n", KEY="sk-0123456789")
    assert "still has these problems; the answers are saved" in told(found, ConfigError)
    text = (tmp_path / "holdfast.toml").read_text()
    assert text.startswith(before)
    assert 'provider = "openai"' in text


def test_the_help_lists_all_flags(tmp_path: Path) -> None:
    found = give(tmp_path, "--help")
    for flag in ("--telegram-token", "--model-key", "--base-url", "--daily-usd", "--no-check"):
        assert flag in found.output
