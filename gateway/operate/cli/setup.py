"""`holdfast setup`: from a token and a key to a gateway that answers."""

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from agent.settings import SERVICES, TargetSettings
from gateway.config.loader import Loaded, Options, environment, load
from gateway.operate.cli.common import as_json, control_socket, print_json
from gateway.operate.cli.run import own_name, run_here, used
from gateway.operate.cli.service import NotInstalled
from gateway.operate.cli.service import service as service_command
from gateway.operate.setup.asking import Unanswered
from gateway.operate.setup.budget import is_known
from gateway.operate.setup.checks import Checks, Live, Unchecked
from gateway.operate.setup.files import undisturbed
from gateway.operate.setup.flags import Flags, secret_of
from gateway.operate.setup.model import Chosen, Wanted
from gateway.operate.setup.owner import greeted, until_owned, wait_for_owner
from gateway.operate.setup.places import Place, place_of
from gateway.operate.setup.services import is_address
from gateway.operate.setup.start import How, ask_how, begin, no_service
from gateway.operate.setup.terminal import Terminal
from gateway.operate.setup.wizard import Answers, Written, converse, read_draft, write
from gateway.operate.systemd.manager import BOOTED
from gateway.process.control_socket import NotRunning, ask
from gateway.runner import GatewayRunner
from platforms.core.registry import specs
from sessions.values.clock import SystemClock

_FROM = "env:NAME, file:PATH or - (standard input)"
_SECRETS = {
    "telegram_token": "telegram.token",
    "discord_token": "discord.token",
    "slack_bot_token": "slack.bot_token",
    "slack_app_token": "slack.app_token",
}
"""Flags that hold tokens, and the questions that they answer."""

_INTERRUPTED = 130


@click.command(
    help="Set it up: asks for what it needs, checks it at once, writes the configuration."
)
@click.option("--config", type=click.Path(path_type=Path, dir_okay=False), help="File to write.")
@click.option("--non-interactive", is_flag=True, help="Ask nothing; what is missing is an error.")
@click.option("--platform", multiple=True, metavar="NAME", help="Set this up; repeatable, or none.")
@click.option("--telegram-token", metavar="FROM", help=f"Secrets come from {_FROM}.")
@click.option("--discord-token", metavar="FROM")
@click.option("--slack-bot-token", metavar="FROM")
@click.option("--slack-app-token", metavar="FROM")
@click.option("--model-key", metavar="FROM", help="Key of the model service.")
@click.option("--base-url", metavar="URL", help="Address of a model server.")
@click.option("--provider", type=click.Choice(tuple(SERVICES)), help="Which protocol it speaks.")
@click.option("--model", metavar="NAME", help="Which of its models answers.")
@click.option("--daily-usd", metavar="AMOUNT", help="Dollars a day for all people; none: no limit.")
@click.option(
    "--service/--no-service", default=None, help="Install it as a service, or do not ask."
)
@click.option(
    "--no-check", is_flag=True, help="Take tokens and keys without asking whether they work."
)
@as_json
def setup(
    config: Path | None,
    *,
    non_interactive: bool,
    no_check: bool,
    as_json: bool,
    service: bool | None,
    **flags: Any,  # noqa: ANN401 - click gives each of its own kind
) -> None:
    """See the help."""
    environ = environment()
    place = place_of(Options(config), environ, os.geteuid())
    terminal = Terminal(sys.stdin, sys.stderr if as_json or non_interactive else sys.stdout)
    answers, wanted = _read_flags(flags, environ)
    asker = Flags(answers, terminal.say, None if non_interactive else terminal)
    clock = SystemClock()
    checks = Unchecked() if no_check else Live(clock)
    way = _Way(asker, place, checks, as_json=as_json, alone=non_interactive)
    try:
        way.decide(wanted, service=service)
        way.write()
        way.begin()
    except KeyboardInterrupt:
        terminal.say(f"\n{way.standing}")
        sys.exit(_INTERRUPTED)


def _read_flags(
    flags: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[dict[str, str], Wanted]:
    """What the command line says: answers to questions, and wishes for the model."""
    read = _standard_input()

    def secret(name: str) -> str:
        flag = f"--{name.replace('_', '-')}"
        return secret_of(flag, flags[name], environ, lambda: read(flag)) if flags[name] else ""

    answers = {question: found for name, question in _SECRETS.items() if (found := secret(name))}
    named = flags["platform"] or tuple(dict.fromkeys(key.partition(".")[0] for key in answers))
    if named:
        answers["platforms"] = " ".join(named)
    if flags["daily_usd"] is not None:
        if not is_known():
            msg = "--daily-usd: this version has no limit for all people together."
            raise Unanswered(msg)
        answers["usd"] = flags["daily_usd"]
    key = secret("model_key")
    if flags["base_url"] and not is_address(flags["base_url"]):
        msg = "--base-url must be an address, such as http://127.0.0.1:11434/v1."
        raise Unanswered(msg)
    parts = {"provider": flags["provider"], "base_url": flags["base_url"], "name": flags["model"]}
    return answers, Wanted(key=key, **{name: text or "" for name, text in parts.items()})


def _standard_input() -> Callable[[str], str]:
    """Read it for one flag; it cannot be read for another one as well."""
    taken: list[str] = []

    def read(flag: str) -> str:
        if taken:
            msg = f"{flag} and {taken[0]} cannot both come from the standard input."
            raise Unanswered(msg)
        taken.append(flag)
        return sys.stdin.read()

    return read


class _Way:
    """From the questions to a gateway that runs."""

    def __init__(
        self, asker: Flags, place: Place, checks: Checks, *, as_json: bool, alone: bool
    ) -> None:
        self._asker = asker
        self._place = place
        self._checks = checks
        self._as_json = as_json
        self._alone = alone  # nobody looks at this terminal
        self._specs = specs()
        self._how = How.LATER
        self._answers = Answers((), Chosen(TargetSettings()))
        self._written = Written(changed=False)
        self.standing = "Nothing was changed."

    def decide(self, wanted: Wanted, *, service: bool | None) -> None:
        """Ask everything; nothing is changed yet."""
        self._draft = read_draft(self._place, self._specs)
        self._answers = converse(
            self._asker, self._place, self._draft, self._checks, self._specs, wanted
        )
        if not self.running():
            self._how = ask_how(self._asker, no_service(BOOTED), wanted=service, alone=self._alone)

    def write(self) -> None:
        """Write it; it works, or all stays as it was."""
        with undisturbed():
            self._written = write(self._place, self._draft, self._specs)
            self.standing = f"The configuration is written ({self._place.path})."
        if not self._written.changed:
            self._say(f"✓ {self._place.path} is as it was, and works.")
            return
        before = f"; the one before: {self._written.backup}" if self._written.backup else ""
        self._say(f"✓ {self._place.path} is written, and works{before}.")
        for warning in self._written.warnings:
            self._say(f"  ! {warning}")

    def begin(self) -> None:
        """Start what was wished for, and wait for the owner."""
        if self._as_json:
            print_json(self._told())
        changed = self._written.changed
        begin(self._asker, self, self._how, no_service(BOOTED), changed=changed, alone=self._alone)

    # --- what can be done here: see `Machine`

    def running(self) -> bool:
        """See `Machine`."""
        try:
            ask(control_socket(), "status")
        except NotRunning:
            return False
        return True

    def install(self) -> None:
        """See `Machine`."""
        self._service("install", *self._config_words())

    def restart(self) -> bool:
        """See `Machine`."""
        try:
            self._service("restart")
        except NotInstalled:
            return False
        return True

    def run(self) -> None:
        """See `Machine`."""
        words = (sys.argv[0], "run", *self._config_words())
        run_here(Options(self._place.path), self._loaded(), words, self._greet_owner)

    def greet_owner(self) -> None:
        """See `Machine`."""
        loaded = self._loaded()
        platforms = used(loaded)
        if platforms and not loaded.settings.access.admins:
            source = None if self._alone else sys.stdin
            wait_for_owner(control_socket(), platforms, self._name(), self._say, source)

    def how_to_run(self) -> str:
        """See `Machine`."""
        return " ".join([self._name(), "run", *self._config_words()])

    def _service(self, *words: str) -> None:
        """Do what `holdfast service` does."""
        arguments = [*words, *(["--user"] if os.geteuid() else [])]
        with contextlib.redirect_stdout(sys.stderr if self._as_json else sys.stdout):
            service_command.main(arguments, prog_name="holdfast service", standalone_mode=False)

    async def _greet_owner(self, runner: GatewayRunner) -> None:
        loaded = self._loaded()
        if not used(loaded) or runner.has_admin:
            return
        owner = await until_owned(runner.operations["pair_list"], runner.stopping)
        if owner:
            self._say(greeted(owner))

    def _told(self) -> dict[str, object]:
        """For programs."""
        model = self._answers.model.settings
        return {
            "config": str(self._place.path),
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
            "warnings": self._written.warnings,
            "next": None if self._how is How.SERVICE else self.how_to_run(),
        }

    def _loaded(self) -> Loaded:
        return load(Options(self._place.path), self._place.environ, self._specs)

    def _config_words(self) -> list[str]:
        return [] if self._place.is_usual else ["--config", str(self._place.path)]

    def _name(self) -> str:
        return own_name(sys.argv[0], Path.cwd(), shutil.which)

    def _say(self, text: str) -> None:
        self._asker.say(text)
