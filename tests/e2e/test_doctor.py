"""`holdfast doctor` with scripted services, a real daemon and real problems."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gateway.config.loader import read_environment
from gateway.operate.cli.doctor import doctor
from tests.e2e.daemon import Daemon
from tests.fakes.model_script import calls, ok
from tests.fakes.model_server import ModelServer
from tests.fakes.telegram.server import TOKEN, TelegramServer, serving

PROGRAM = Path(sys.executable).with_name("holdfast")
WAITS = "while something waits others are not looked for, which takes seconds"
CALLED = calls(("c1", "report_word", '{"word":"ready"}'))


class Report:
    """Output and exit code."""

    def __init__(self, code: int, text: str, errors: str = "") -> None:
        self.code = code
        self.text = text
        self.errors = errors

    @property
    def findings(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.text)
        return found

    def levels(self, group: str) -> set[str]:
        return {each["level"] for each in self.findings if each["group"] == group}

    def about(self, group: str, subject: str) -> dict[str, Any]:
        (found,) = (
            each for each in self.findings if (each["group"], each["subject"]) == (group, subject)
        )
        return found


def environ_of(home: Path) -> dict[str, str]:
    return {
        "PATH": os.defpath,
        "HOME": str(home),
        "HOLDFAST_HOME": str(home / "state"),
        "LC_ALL": "C.UTF-8",
    }


def run(home: Path, *words: str, charset: str = "utf-8", **environ: str) -> Report:
    """Run the command with only the given environment."""
    ours = {name: None for name in read_environment() if name.startswith(("HOLDFAST", "OPENAI"))}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        found = CliRunner(charset).invoke(
            doctor, words, env={**ours, **environ_of(home), **environ}
        )
    assert isinstance(found.exception, SystemExit | None), found.exception
    return Report(found.exit_code, found.stdout, found.stderr)


async def asked(home: Path, *words: str, **environ: str) -> Report:
    return await asyncio.to_thread(run, home, *words, **environ)


def configured(home: Path, telegram: TelegramServer, model: ModelServer, more: str = "") -> Path:
    file = home / "holdfast.toml"
    file.write_text(
        f'[platforms.telegram]\ntoken = "{TOKEN}"\nbase_url = "{telegram.url}"\n'
        f'[model]\nprovider = "openai"\nname = "scripted"\nbase_url = "{model.url}"\n'
        f'api_key = "sk-none"\n[access]\nadmins = ["telegram:1001"]\n[http]\nport = 0\n{more}'
    )
    file.chmod(0o600)
    return file


def test_without_any_configuration_the_report_works_from_any_folder_and_fits_a_screen(
    tmp_path: Path,
) -> None:
    command = [str(PROGRAM), "doctor", "--set", "http.port=0"]
    done = subprocess.run(
        command, env=environ_of(tmp_path), cwd="/", capture_output=True, check=False, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) <= 25
    assert "✓ configuration" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_an_ascii_terminal_gets_words_instead_of_signs(tmp_path: Path) -> None:
    report = run(tmp_path, "--offline", "--all", "--set", "http.port=0", charset="ascii")
    assert report.code == 0
    assert report.text.isascii()
    assert "ok   configuration" in report.text


async def test_configured_services_are_probed_and_all_checks_pass(tmp_path: Path) -> None:
    async with serving() as telegram, ModelServer(ok("ready"), CALLED) as model:
        file = configured(tmp_path, telegram, model)
        telegram.say(1001, WAITS)
        report = await asked(tmp_path, HOLDFAST_CONFIG=str(file))
        assert model.requests
    assert report.code == 0, report.text
    assert "Telegram knows the bot as Holdfast (@holdfast_bot)" in report.text
    assert "openai/scripted answers in " in report.text
    assert len(report.text.splitlines()) <= 25
    assert "sk-none" not in report.text
    assert TOKEN not in report.text


async def test_a_running_daemon_is_reported_and_not_disturbed(tmp_path: Path) -> None:
    async with serving() as telegram, ModelServer(ok("ready"), CALLED) as model:
        file = configured(tmp_path, telegram, model)
        daemon = Daemon(
            tmp_path / "state", "gateway.drain_seconds=0", env={"HOLDFAST_CONFIG": str(file)}
        )
        await daemon.start()
        try:
            await telegram.until(lambda: bool(telegram.called("getUpdates")))
            report = await asked(tmp_path, "--json", HOLDFAST_CONFIG=str(file))
            assert telegram.violations == []
        finally:
            await daemon.kill()
        assert report.code == 0, report.text
        assert daemon.url in report.about("gateway", "gateway")["text"]
        assert report.levels("gateway") == {"ok"}
        assert report.levels("files") == {"ok"}
        left = await asked(tmp_path, "--offline", "--json", HOLDFAST_CONFIG=str(file))
        assert left.about("gateway", "socket")["mendable"] is True
        mended = await asked(tmp_path, "--offline", "--fix", HOLDFAST_CONFIG=str(file))
        assert "removed" in mended.text
        assert "not running" in mended.text


async def test_fix_repairs_what_it_can_and_reports_the_rest(tmp_path: Path) -> None:
    async with serving() as telegram, ModelServer(ok("ready"), CALLED) as model:
        telegram.webhook = {"url": "https://elsewhere.example/hook"}
        telegram.say(1001, WAITS)
        file = configured(tmp_path, telegram, model)
        file.chmod(0o644)
        state = tmp_path / "state"
        state.mkdir(mode=0o755)
        model.key = "another"
        report = await asked(tmp_path, HOLDFAST_CONFIG=str(file))
        assert report.code == 1
        assert "can fix 3 of them" in report.text
        assert telegram.webhook
        report = await asked(tmp_path, "--fix", HOLDFAST_CONFIG=str(file))
        assert not telegram.webhook
        again = await asked(tmp_path, "--json", HOLDFAST_CONFIG=str(file))
    assert report.code == 1  # the key is still invalid
    assert "telegram: removed the webhook" in report.text
    assert f"{state} now has mode 0700" in report.text
    assert file.stat().st_mode & 0o777 == 0o600
    assert "✗ model" in report.text
    assert "model.api_key or OPENAI_API_KEY" in report.text
    assert again.levels("telegram") == {"ok"}
    assert again.levels("files") == {"ok"}
    assert again.levels("configuration") == {"ok"}


def test_an_invalid_configuration_does_not_hide_other_findings(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text("[gateway]\nbuzy = 1\n")
    report = run(tmp_path, "--json")
    assert report.code == 78
    assert "did you mean busy" in report.about("configuration", "setting")["text"]
    assert report.levels("program") == {"ok"}
    assert "does not work" in report.about("model", "model")["text"]
