"""Executes a page from top to bottom, as one reader on one machine.

The machine is a scratch folder; Telegram and the model are fakes on loopback. Placeholders such as
SESSION or CODE are replaced by real values at their first use. The gateway is started before the first
command that needs it; a gateway that the page starts itself replaces it.
"""

import asyncio
import contextlib
import importlib.util
import json
import os
import re
import shlex
import signal
import sys
import tomllib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from gateway.config.loader import ConfigOptions, check, read_environment
from platforms.core.registry import load_specs
from sessions.records import SessionState
from sessions.store.store import SessionStore
from sessions.values.clock import SystemClock
from tests.docs.command_lines import find_error
from tests.docs.pages import ROOT, Block, Command, Page, commands, syntax
from tests.e2e.daemon import Daemon
from tests.fakes.model_server import ModelServer
from tests.fakes.telegram.server import TOKEN, TelegramServer

PATIENCE = 40.0
ME = 1001  # an admin, on Telegram

NOT_RUN: tuple[tuple[str, str], ...] = (
    (r"holdfast service (?!.*--dry-run)", "needs systemd"),
    (
        r"holdfast setup(?!.*--non-interactive)",
        "asks questions; other tests answer it at a terminal",
    ),
    (r"holdfast selftest\b", "takes half a minute; tests/e2e/test_selftest.py runs it"),
    (r"(systemctl|journalctl|loginctl|systemd-analyze|timedatectl) ", "needs systemd"),
    (r"(docker|podman) ", "needs a container engine, and downloads images"),
    (r"(apt|apt-get|dnf|pipx|uv|git clone|python3 -m venv) ", "downloads programs"),
    (
        r"(git pull|man -l|rm -r ~/holdfast-env)\b",
        "needs what the skipped commands install; tests/faults/installing.py runs all of them",
    ),
    (r"rm -rf? (?!~/\.(local/share|config)/holdfast$)", "would remove files of this machine"),
    (r"python -m tests\.", "takes minutes, and needs an idle machine"),
    (r"(\S*/)?pip install (?!--editable \.$)", "downloads packages"),
    (
        r"(aider|claude|cline|cn|codex|gptme|llm|open-webui|opencode|qwen|sgpt) ",
        "is a program of others; `make clients` installs it and runs the command",
    ),
    (r"(ssh|scp|rsync) ", "needs a second machine"),
    (r"(install|useradd|chown|mkdir -m 700 deploy)\b", "changes the machine"),
)
"""Commands that a test cannot run, with the reason. Their syntax and options are still checked."""

_DAEMON = re.compile(r"(?:\w+=\S*\s+)*holdfast run(?!.*--(?:check|help))\b")
_NEEDS_GATEWAY = re.compile(
    r"\bholdfast (link|status|send|pair|sessions|why|chat|backup|doctor)\b|\bcurl\b"
)
_NEEDS_TELEGRAM = re.compile(
    r"(?i:telegram)|\b(?:SESSION|MESSAGE|CODE|PRINCIPAL|CHAT)\b|\bbackup\b"
)
_SERVICE = re.compile(r"holdfast service (start|stop|restart|reload)\b")
_KEYS = re.compile(r"\b(OPENAI|ANTHROPIC)_\w+=")

_LINES: Mapping[str, str] = {"holdfast chat": "hello\n"}
"""Standard input of commands that read it."""

_AT_A_TERMINAL: Mapping[str, str] = {"holdfast restore": "y\n"}
"""Answers to commands that ask questions only at a terminal."""

_GROUPS = {"holdfast.tools", "holdfast.platforms", "holdfast.providers"}


class PageError(Exception):
    """A page contains an error; the message is one line."""


class _ByHand(Daemon):
    """The gateway, started by the command of the page."""

    line = ""

    def words(self) -> list[str]:
        return ["bash", "-c", self.line]


class Reader:
    """Executes the blocks of a page; owns the scratch machine and the gateway."""

    def __init__(
        self, folder: Path, telegram: TelegramServer, model: ModelServer, **more: str
    ) -> None:
        self.folder = folder / "home"
        self.telegram = telegram
        self.model = model
        self._shell_state = folder / "shell"  # exports and current folder
        self._site = folder / "site"  # packages that the page installs
        self._more = more
        self._daemon: _ByHand | None = None
        self._people = 2000
        for each in (self.folder, self._shell_state, self._site):
            each.mkdir()
        own = self.folder / ".config/holdfast/holdfast.toml"
        own.parent.mkdir(parents=True)
        own.touch()  # otherwise the file of the real machine would be read
        exported = [
            f"export {name}={shlex.quote(value)}" for name, value in self._environ().items()
        ]
        (self._shell_state / "exports").write_text("\n".join(exported))
        (self._shell_state / "place").write_text(str(self.folder))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    @property
    def home(self) -> Path:
        """The state folder."""
        return self.folder / ".local/share/holdfast"

    def _environ(self) -> dict[str, str]:
        passed_on = ("COVERAGE", "LANG", "TMPDIR")
        ours = str(Path(sys.executable).parent)
        return {
            **{
                name: each
                for name, each in read_environment().items()
                if name.startswith(passed_on)
            },
            "PATH": f"{ours}:{read_environment()['PATH']}",
            "PYTHONPATH": str(self._site),
            "HOME": str(self.folder),
            "HOLDFAST_HOME": str(self.home),
            "HOLDFAST_HTTP__PORT": "0",
            "HOLDFAST_GATEWAY__DRAIN_SECONDS": "0",
            "HOLDFAST_ACCESS__ADMINS": f'["telegram:{ME}"]',
            "OPENAI_BASE_URL": self.model.url,
            "OPENAI_API_KEY": "sk-none",
            **self._more,
        }

    def connect(self) -> None:
        """Configure Telegram for all following commands."""
        with (self._shell_state / "exports").open("a") as exports:
            exports.write(f"\nexport HOLDFAST_PLATFORMS__TELEGRAM__BASE_URL={self.telegram.url}")
            exports.write(f"\nexport TELEGRAM_BOT_TOKEN={TOKEN}\n")

    # --- a page ---------------------------------------------------------------------------------

    async def read(self, page: Page) -> None:
        """Execute the whole page; raise `PageError` at the first failure."""
        typed = "".join(each.text for each in page.blocks if each.language == "sh")
        if _NEEDS_TELEGRAM.search(typed):  # loading its adapter doubles the start time
            self.connect()
        for block in page.blocks:
            try:
                await self._take(block)
            except PageError as error:
                msg = f"{page.name}:{error}"
                raise PageError(msg) from None

    async def _take(self, block: Block) -> None:
        if block.file:
            (self.folder / block.file).write_text(block.text, encoding="utf-8")
        match block.language:
            case "sh":
                for command in commands(block):
                    await self._do(command)
            case "toml":
                self._configure(block)
            case "python" if not block.file:
                await self._program(block)
            case "json":
                try:
                    json.loads(block.text)
                except ValueError as error:
                    _fail(block.line, "json", str(error))
            case _:
                pass

    # --- commands -------------------------------------------------------------------------------

    async def _do(self, command: Command) -> None:
        if trouble := syntax(command.text):
            _fail(command.line, command.text, trouble)
        text = re.sub(r"\bsudo ", "", command.text)
        text = re.sub(r"/opt/holdfast/bin/|\.venv/bin/(?=holdfast|python)", "", text)
        text = re.sub(r"\bmake run\b", "holdfast run", text)
        # Root's usual path is on the real machine, where a test must not write.
        file = self.folder / ".config/holdfast/holdfast.toml"
        text = re.sub(r"\bholdfast setup\b", f"holdfast setup --config {file}", text)
        text = re.sub(r"\bmake (?=\w)", f"make -n -C {shlex.quote(str(ROOT))} ", text)
        self._known(command, text)
        if found := _SERVICE.match(text):
            await self._serve(found[1])
        if any(re.match(pattern, text) for pattern, _ in NOT_RUN):
            return
        if _DAEMON.match(text):
            await self._start(command, text)
            return
        if _NEEDS_GATEWAY.search(text) and self._daemon is None:
            await self._start(command, "holdfast run")
        text = text.replace("pip install --editable .", f"pip install {self._own()} .")
        meant = await self._meant(text)
        if asked := _typed(text, _AT_A_TERMINAL):
            meant = f"script -qec {shlex.quote(meant)} /dev/null"
        code, said, trouble = await self._shell(meant, asked or _typed(text, _LINES))
        if code:
            last = (trouble.strip() or said.strip() or "no error message").splitlines()[-1]
            _fail(command.line, command.text, f"exit code {code}: {last}")

    def _own(self) -> str:
        """Return the pip options that install into the scratch machine without an index."""
        site = shlex.quote(str(self._site))
        return f"--quiet --no-index --no-build-isolation --no-deps --target {site}"

    def _known(self, command: Command, text: str) -> None:
        """Check the words and options of `holdfast` commands, even of those that are not run."""
        for part in re.split(r"&&|\|\||[|;\n]", re.sub(r"\\\n", " ", text)):
            words = shlex.split(part, comments=True) if _balanced(part) else part.split()
            while words and re.match(r"\w+=", words[0]):
                words.pop(0)
            if words[:1] == ["holdfast"] and (trouble := find_error(words[1:])):
                _fail(command.line, command.text, trouble)
            if words[:2] == ["python", "-m"] and not importlib.util.find_spec(words[2]):
                _fail(command.line, command.text, f"there is no module {words[2]}")

    async def _shell(self, text: str, typed: str = "") -> tuple[int, str, str]:
        """Run a command in the page's shell, which keeps exports and the current folder."""
        state = shlex.quote(str(self._shell_state))
        script = (
            f'. {state}/exports; cd "$(cat {state}/place)"; set -o pipefail\n{text}\n'
            f"code=$?; export -p >{state}/exports; pwd >{state}/place; exit $code"
        )
        running = await asyncio.create_subprocess_exec(
            *("bash", "-c", script),
            env={},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(PATIENCE):
                said, trouble = await running.communicate(typed.encode())
        except TimeoutError:
            os.killpg(running.pid, signal.SIGKILL)
            said, trouble = await running.communicate()
            last = (trouble or said).decode().strip().splitlines()[-1:]
            return -1, "", f"did not end within {PATIENCE:g} s; last output: {last}"
        return running.returncode or 0, said.decode(), trouble.decode()

    # --- the gateway ----------------------------------------------------------------------------

    async def _start(self, command: Command, text: str) -> None:
        """Start the gateway as the page does, replacing a running one."""
        await self.stop()
        fresh = "-u OPENAI_BASE_URL -u OPENAI_API_KEY" if _KEYS.search(text) else ""
        meant = re.sub(r"\bhttp\.port=\d+", "http.port=0", await self._meant(text))
        state = shlex.quote(str(self._shell_state))
        self._daemon = _ByHand(self.home)
        self._daemon.line = (
            f'. {state}/exports; cd "$(cat {state}/place)"; exec env {fresh} {meant}'
        )
        try:
            await self._daemon.start()
        except (AssertionError, TimeoutError) as error:
            said = self._daemon.said[-1:] or [str(error)]
            _fail(command.line, command.text, said[0])

    async def stop(self) -> None:
        """Stop the gateway, if one runs."""
        if self._daemon:
            daemon, self._daemon = self._daemon, None
            await daemon.stop()

    async def _serve(self, what: str) -> None:
        """Do what the service manager would do."""
        match what:
            case "stop":
                await self.stop()
            case "reload" if self._daemon:
                self._daemon.signal(signal.SIGHUP)
            case _:
                await self._start(Command(0, f"holdfast service {what}"), "holdfast run")

    # --- placeholders -----------------------------------------------------------------------------

    async def _meant(self, text: str) -> str:
        """Return a command with its placeholders replaced by real values."""
        if self._daemon:
            text = text.replace("127.0.0.1:8420", f"127.0.0.1:{self._daemon.port}")
            text = text.replace("localhost:8420", f"127.0.0.1:{self._daemon.port}")
        text = re.sub(r"http://127\.0\.0\.1:11434/v1", self.model.url, text)
        if "hf-…" in text:
            text = text.replace("hf-…", (self.home / "api_key").read_text().strip())
        if "holdfast why" in text:
            text = re.sub(rf"\btelegram:{ME}\b", "CHAT", text)
        for word, made in (
            ("SESSION", self._session),
            ("MESSAGE", self._message),
            ("CODE", self._code),
            ("PRINCIPAL", self._friend),
            ("CHAT", self._chat),
        ):
            if re.search(rf"\b{word}\b", text):
                text = re.sub(rf"\b{word}\b", await made(text), text)
        return text

    def say(self, text: str, person: int = ME) -> None:
        """Send a message to the bot."""
        now = SystemClock().now() // 1000
        self.telegram.say(person, text, user=person, date=now)

    async def _session(self, command: str) -> str:
        """Return the id of a session; for `resume`, of a stopped one."""
        if "resume" in command:
            self.say("hang")
            await self.telegram.until(lambda: "so far" in " ".join(self.telegram.screen(ME)))
            self.say("/stop")
            await self.telegram.shows(ME, "⏹ Stopped")
        else:
            await self._chat(command)
        state = SessionState.SUSPENDED if "resume" in command else SessionState.ACTIVE
        async with self._store() as store:
            return next(each.id for each in await store.sessions.list() if each.state is state)

    async def _chat(self, _: str) -> str:
        self.say("good morning")
        await self.telegram.shows(ME, "echo: good morning")
        return f"telegram:{ME}"

    async def _message(self, command: str) -> str:
        chat = await self._chat(command)
        async with self._store() as store:
            return (await store.trace(chat))[0].entry.event

    @contextlib.asynccontextmanager
    async def _store(self) -> AsyncIterator[SessionStore]:
        """Open the gateway's store, read-only."""
        where = f"sqlite:///{self.home / 'holdfast.db'}"
        store = await SessionStore.open(where, clock=SystemClock(), read_only=True)
        try:
            yield store
        finally:
            await store.close()

    async def _code(self, _: str) -> str:
        """Return the pairing code of a new person without access."""
        self._people += 1
        self.say("hello", self._people)
        shown = await self.telegram.shows(self._people, "with this code: ")
        return shown[-1].text.rpartition("code: ")[2].strip()

    async def _friend(self, command: str) -> str:
        """Return the id of a person who was approved with a pairing code."""
        self.say(f"/pair approve {await self._code(command)}")
        await self.telegram.shows(self._people, "You now have access")
        return f"telegram:{self._people}"

    # --- other blocks ---------------------------------------------------------------------------

    async def _program(self, block: Block) -> None:
        (self._shell_state / "program.py").write_text(block.text, encoding="utf-8")
        code, _, trouble = await self._shell(
            f"python {shlex.quote(str(self._shell_state))}/program.py"
        )
        if code:
            _fail(block.line, "python", (trouble.strip() or "no error message").splitlines()[-1])

    def _configure(self, block: Block) -> None:
        for problem in configured(block, self._shell_state):
            _fail(block.line, "toml", problem)


def configured(block: Block, folder: Path) -> tuple[str, ...]:
    """Return the problems of a part of a configuration; the secrets that it names exist."""
    if "[project" in block.text:
        try:
            tables = tomllib.loads(block.text)["project"].get("entry-points", {})
        except ValueError as error:
            return (str(error),)
        return tuple(f"unknown entry point group {each}" for each in {*tables} - _GROUPS)
    secret, path = folder / "secret", folder / "holdfast.toml"
    secret.write_text("a secret of the test")
    path.write_text(re.sub(r'"file:[^"]+"', f'"file:{secret}"', block.text), encoding="utf-8")
    path.chmod(0o600)
    variables = ("TELEGRAM_BOT_TOKEN", "DISCORD_BOT_TOKEN", "SLACK_BOT_TOKEN", "SLACK_APP_TOKEN")
    credentials = re.findall(r'"credential:([^"]+)"', block.text)
    for name in credentials:
        (folder / name).write_text("a secret of the test")
    environ = {
        **dict.fromkeys(re.findall(r'"env:([^"]+)"', block.text), "a-secret-of-the-test"),
        **dict.fromkeys((*variables, "OPENAI_API_KEY"), "a-secret-of-the-test"),
        "HOME": str(folder),
        "CREDENTIALS_DIRECTORY": str(folder),
    }
    found = check(ConfigOptions(path), environ, load_specs())
    return tuple(each.replace(f"{path}:", "line ") for each in (*found.problems, *found.warnings))


def _typed(text: str, table: Mapping[str, str]) -> str:
    return next((lines for name, lines in table.items() if text.startswith(name)), "")


def _balanced(text: str) -> bool:
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return False
    return True


def _fail(line: int, command: str, why: str) -> None:
    first = command.strip().splitlines()[0]
    msg = f"{line}: `{first}`: {' '.join(why.split())}"
    raise PageError(msg)
