"""`holdfast setup`: from a bot token and a model key to a running gateway."""

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from agent.settings import SERVICES, TargetSettings
from gateway.config.loader import ConfigOptions, LoadedConfig, load, read_environment
from gateway.errors import ConfigError
from gateway.operate.cli.common import ask_daemon, control_socket, json_option, print_json
from gateway.operate.cli.found_config import confirm_found_config, remember_found_config
from gateway.operate.cli.run import command_name, configured_platforms, run_daemon
from gateway.operate.cli.service import ServiceNotInstalled
from gateway.operate.cli.service import service as service_command
from gateway.operate.setup.asking import AnswerError
from gateway.operate.setup.budget import is_supported
from gateway.operate.setup.checks import LiveChecks, NoChecks, SetupChecks
from gateway.operate.setup.files import block_signals
from gateway.operate.setup.flags import FlagPrompter, read_secret
from gateway.operate.setup.model import ChosenModel, RequestedModel
from gateway.operate.setup.owner import owner_greeting, wait_for_owner, watch_for_owner
from gateway.operate.setup.places import ConfigTarget, choose_target
from gateway.operate.setup.services import is_url
from gateway.operate.setup.start import StartMode, ask_start_mode, no_service_reason, start_gateway
from gateway.operate.setup.terminal import TerminalPrompter
from gateway.operate.setup.wizard import (
    SetupAnswers,
    WriteResult,
    ask_all,
    read_draft,
    write_config,
)
from gateway.operate.systemd.manager import SYSTEMD_RUNTIME_FOLDER
from gateway.process.control_socket import NotRunning
from gateway.runner import GatewayRunner
from platforms.core.registry import load_specs
from sessions.values.clock import SystemClock

_SECRET_SOURCES = "env:NAME, file:PATH or - (standard input)"  # noqa: S105 - how to give one
_SECRET_FLAGS = {
    "telegram_token": "telegram.token",
    "discord_token": "discord.token",
    "slack_bot_token": "slack.bot_token",
    "slack_app_token": "slack.app_token",
}
"""Flags that take tokens, and the questions they answer."""

_INTERRUPTED_EXIT_CODE = 130


@click.command(help="Ask for everything needed, check each answer, and write the configuration.")
@click.option(
    "--config", type=click.Path(path_type=Path, dir_okay=False), help="Configuration file to write."
)
@click.option("--non-interactive", is_flag=True, help="Ask nothing; a missing answer is an error.")
@click.option(
    "--platform", multiple=True, metavar="NAME", help="Platform to set up; repeatable, or none."
)
@click.option("--telegram-token", metavar="FROM", help=f"Telegram bot token, as {_SECRET_SOURCES}.")
@click.option("--discord-token", metavar="FROM", help="Discord bot token, given likewise.")
@click.option("--slack-bot-token", metavar="FROM", help="Slack bot token, given likewise.")
@click.option("--slack-app-token", metavar="FROM", help="Slack app token, given likewise.")
@click.option("--model-key", metavar="FROM", help="API key of the model service, given likewise.")
@click.option("--base-url", metavar="URL", help="Address of a model server.")
@click.option(
    "--provider", type=click.Choice(tuple(SERVICES)), help="Protocol of the model service."
)
@click.option("--model", metavar="NAME", help="Model to use.")
@click.option(
    "--daily-usd", metavar="AMOUNT", help="Daily limit in dollars for all people; none: no limit."
)
@click.option(
    "--service/--no-service", default=None, help="Install as a service, or not, without asking."
)
@click.option("--no-check", is_flag=True, help="Accept tokens and keys without testing them.")
@json_option
def setup(
    config: Path | None,
    *,
    non_interactive: bool,
    no_check: bool,
    as_json: bool,
    service: bool | None,
    **flags: Any,  # noqa: ANN401 - each option has its own type
) -> None:
    """See the help."""
    environ = read_environment()
    confirm_found_config(ConfigOptions(config))  # before a key is tried at an address of the file
    target = choose_target(ConfigOptions(config), environ, os.geteuid())
    terminal = TerminalPrompter(sys.stdin, sys.stderr if as_json or non_interactive else sys.stdout)
    answers, requested = _read_flags(flags, environ)
    asker = FlagPrompter(answers, terminal.say, None if non_interactive else terminal)
    clock = SystemClock()
    checks = NoChecks() if no_check else LiveChecks(clock)
    run = _SetupRun(
        asker,
        target,
        checks,
        ConfigOptions(config),
        as_json=as_json,
        non_interactive=non_interactive,
    )
    try:
        run.decide(requested, service=service)
        run.write()
        run.start()
    except KeyboardInterrupt:
        terminal.say(f"\n{run.status}")
        sys.exit(_INTERRUPTED_EXIT_CODE)


def _read_flags(
    flags: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[dict[str, str], RequestedModel]:
    """Return answers to questions and the requested model from the command line."""
    read = _stdin_reader()

    def secret(name: str) -> str:
        flag = f"--{name.replace('_', '-')}"
        return read_secret(flag, flags[name], environ, lambda: read(flag)) if flags[name] else ""

    answers = {
        question: found for name, question in _SECRET_FLAGS.items() if (found := secret(name))
    }
    named = flags["platform"] or tuple(dict.fromkeys(key.partition(".")[0] for key in answers))
    if named:
        answers["platforms"] = " ".join(named)
    if flags["daily_usd"] is not None:
        if not is_supported():
            msg = "--daily-usd: this version has no limit for all people together."
            raise AnswerError(msg)
        answers["usd"] = flags["daily_usd"]
    key = secret("model_key")
    if flags["base_url"] and not is_url(flags["base_url"]):
        msg = "--base-url must be a URL, such as http://127.0.0.1:11434/v1."
        raise AnswerError(msg)
    parts = {"provider": flags["provider"], "base_url": flags["base_url"], "name": flags["model"]}
    return answers, RequestedModel(key=key, **{name: text or "" for name, text in parts.items()})


def _stdin_reader() -> Callable[[str], str]:
    """Return a reader of standard input that refuses to serve two flags."""
    taken: list[str] = []

    def read(flag: str) -> str:
        if taken:
            msg = f"{flag} and {taken[0]} cannot both be read from standard input."
            raise AnswerError(msg)
        taken.append(flag)
        return sys.stdin.read()

    return read


class _SetupRun:
    """One run of the command: questions, writing, starting."""

    def __init__(
        self,
        prompter: FlagPrompter,
        target: ConfigTarget,
        checks: SetupChecks,
        options: ConfigOptions,
        *,
        as_json: bool,
        non_interactive: bool,
    ) -> None:
        self._prompter = prompter
        self._target = target
        self._checks = checks
        self._options = options
        self._as_json = as_json
        self._non_interactive = non_interactive  # no person at this terminal
        self._specs = load_specs()
        self._draft = read_draft(target, self._specs)
        self._start_mode = StartMode.LATER
        self._answers = SetupAnswers((), ChosenModel(TargetSettings()))
        self._written = WriteResult(changed=False)
        self.status = "Nothing was changed."

    def decide(self, requested: RequestedModel, *, service: bool | None) -> None:
        """Ask all questions; change nothing yet."""
        self._answers = ask_all(
            self._prompter, self._target, self._draft, self._checks, self._specs, requested
        )
        if not self.is_running():
            self._start_mode = ask_start_mode(
                self._prompter,
                no_service_reason(SYSTEMD_RUNTIME_FOLDER),
                wanted=service,
                non_interactive=self._non_interactive,
            )

    def write(self) -> None:
        """Write and verify the configuration; on failure the previous one is restored."""
        with block_signals():
            known = () if self._non_interactive else self._answers.known_problems
            self._written = write_config(self._target, self._draft, self._specs, known)
            remember_found_config(self._options)
            self.status = f"The configuration is written ({self._target.path})."
        if self._written.problems:
            raise ConfigError(
                *self._written.problems,
                f"{self._target.path} still has these problems; the answers are saved. "
                "Holdfast starts once the problems are corrected.",
            )
        if self._written.changed:
            before = f"; previous version: {self._written.backup}" if self._written.backup else ""
            self._say(f"✓ {self._target.path} is written and valid{before}.")
        else:
            self._say(f"✓ {self._target.path} is unchanged and valid.")
        for warning in self._written.warnings:
            self._prompter.warn(warning)

    def start(self) -> None:
        """Start the gateway as chosen, and wait for the owner."""
        if self._as_json:
            print_json(self._result_data())
        changed = self._written.changed
        start_gateway(
            self._prompter,
            self,
            self._start_mode,
            no_service_reason(SYSTEMD_RUNTIME_FOLDER),
            changed=changed,
            non_interactive=self._non_interactive,
        )

    # --- implementation of `SetupActions`

    def is_running(self) -> bool:
        """See `SetupActions`."""
        try:
            ask_daemon("status")
        except NotRunning:
            return False
        return True

    def install_service(self) -> None:
        """See `SetupActions`."""
        self._run_service_command("install", *self._config_arguments())

    def restart_service(self) -> bool:
        """See `SetupActions`."""
        try:
            self._run_service_command("restart")
        except ServiceNotInstalled:
            return False
        return True

    def run_gateway(self) -> None:
        """See `SetupActions`."""
        words = (sys.argv[0], "run", *self._config_arguments())
        loaded = self._load_config()
        confirm_found_config(self._options)
        run_daemon(ConfigOptions(self._target.path), loaded, words, self._watch_for_owner)

    def wait_for_owner(self) -> None:
        """See `SetupActions`."""
        loaded = self._load_config()
        platforms = configured_platforms(loaded)
        if platforms and not loaded.settings.access.admins:
            source = None if self._non_interactive else sys.stdin
            wait_for_owner(control_socket(), platforms, self._command_name(), self._say, source)

    def run_command(self) -> str:
        """See `SetupActions`."""
        return " ".join([self._command_name(), "run", *self._config_arguments()])

    def _run_service_command(self, *words: str) -> None:
        """Run a `holdfast service` command."""
        arguments = [*words, *(["--user"] if os.geteuid() else [])]
        with contextlib.redirect_stdout(sys.stderr if self._as_json else sys.stdout):
            service_command.main(arguments, prog_name="holdfast service", standalone_mode=False)

    async def _watch_for_owner(self, runner: GatewayRunner) -> None:
        loaded = self._load_config()
        if not configured_platforms(loaded) or runner.has_admin:
            return
        owner = await watch_for_owner(runner.operations["pair_list"], runner.stopping)
        if owner:
            self._say(owner_greeting(owner))

    def _result_data(self) -> dict[str, object]:
        """Return the result as JSON data."""
        model = self._answers.model.settings
        return {
            "config": str(self._target.path),
            "changed": self._written.changed,
            "backup": self._written.backup or None,
            "platforms": {
                bot.platform: bot.probed and {"handle": bot.probed.handle, "link": bot.probed.link}
                for bot in self._answers.bots
            },
            "model": {
                "provider": model.provider,
                "name": model.name,
                "base_url": model.base_url,
                "checked": self._answers.model.checked,
            },
            "warnings": self._prompter.warnings,
            "next": None if self._start_mode is StartMode.SERVICE else self.run_command(),
        }

    def _load_config(self) -> LoadedConfig:
        return load(ConfigOptions(self._target.path), self._target.environ, self._specs)

    def _config_arguments(self) -> list[str]:
        return [] if self._target.is_default_path else ["--config", str(self._target.path)]

    def _command_name(self) -> str:
        return command_name(sys.argv[0], Path.cwd(), shutil.which)

    def _say(self, text: str) -> None:
        self._prompter.say(text)
