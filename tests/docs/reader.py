"""Somebody with a machine of their own who does what a page says, from its top to its end.

The machine is a scratch folder; Telegram and the model are servers of ours on loopback. What a page
calls SESSION or CODE is made when it is first needed. The gateway runs from the first command that
needs it; where a page starts one itself, that is the one that runs from there on.
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
from tests.docs.pages import ROOT, Block, Command, Page, commands, syntax
from tests.docs.spoken import wrong
from tests.e2e.daemon import Daemon
from tests.fakes.model_server import ModelServer
from tests.fakes.telegram.server import TOKEN, TelegramServer

PATIENCE = 40.0
ME = 1001  # an admin, on Telegram

NOT_HERE: tuple[tuple[str, str], ...] = (
    (r"holdfast service (?!.*--dry-run)", "needs systemd"),
    (r"holdfast setup(?!.*--non-interactive)", "asks; tests of its own answer it at a terminal"),
    (r"holdfast selftest\b", "takes half a minute; tests/e2e/test_selftest.py runs it"),
    (r"(systemctl|journalctl|loginctl|systemd-analyze|timedatectl) ", "needs systemd"),
    (r"(docker|podman) ", "needs a container engine, and images from elsewhere"),
    (r"(apt|apt-get|dnf|pipx|uv|git clone|python3 -m venv) ", "takes programs from elsewhere"),
    (r"python -m tests\.", "takes minutes, and wants an idle machine"),
    (r"(\S*/)?pip install (?!--editable \.$)", "takes packages from elsewhere"),
    (r"(ssh|scp|rsync) ", "needs a second machine"),
    (r"(install|useradd|chown|mkdir -m 700 deploy)\b", "changes what belongs to the machine"),
)
"""What cannot be done here, and why not; a shell still reads it, and `holdfast` knows its words."""

_DAEMON = re.compile(r"(?:\w+=\S*\s+)*holdfast run(?!.*--(?:check|help))\b")
_NEEDS_ONE = re.compile(
    r"\bholdfast (link|status|send|pair|sessions|why|chat|backup|doctor)\b|\bcurl\b"
)
_MEETS_PEOPLE = re.compile(r"(?i:telegram)|\b(?:SESSION|MESSAGE|CODE|PRINCIPAL|CHAT)\b|\bbackup\b")
_SERVICE = re.compile(r"holdfast service (start|stop|restart|reload)\b")
_KEYS = re.compile(r"\b(OPENAI|ANTHROPIC)_\w+=")

_LINES: Mapping[str, str] = {"holdfast chat": "hello\n"}
"""What is typed into programs that read."""

_AT_A_TERMINAL: Mapping[str, str] = {"holdfast restore": "y\n"}
"""What is answered to programs that ask, and ask nobody but who sits at a terminal."""

_GROUPS = {"holdfast.tools", "holdfast.platforms", "holdfast.providers"}


class Wrong(Exception):
    """A page says something that does not work; the text is one line."""


class _ByHand(Daemon):
    """The gateway as the page starts it."""

    line = ""

    def words(self) -> list[str]:
        return ["bash", "-c", self.line]


class Reader:
    """See the module."""

    def __init__(
        self, folder: Path, telegram: TelegramServer, model: ModelServer, **more: str
    ) -> None:
        self.folder = folder / "home"
        self.telegram = telegram
        self.model = model
        self._desk = folder / "desk"  # what the shell remembers from one command to the next
        self._site = folder / "site"  # where it installs packages of its own
        self._more = more
        self._daemon: _ByHand | None = None
        self._people = 2000
        for each in (self.folder, self._desk, self._site):
            each.mkdir()
        own = self.folder / ".config/holdfast/holdfast.toml"
        own.parent.mkdir(parents=True)
        own.touch()  # or the file of the machine that we are on would count
        exported = [
            f"export {name}={shlex.quote(value)}" for name, value in self._environ().items()
        ]
        (self._desk / "exports").write_text("\n".join(exported))
        (self._desk / "place").write_text(str(self.folder))

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
        """Have Telegram among the platforms, from the next command on."""
        with (self._desk / "exports").open("a") as exports:
            exports.write(f"\nexport HOLDFAST_PLATFORMS__TELEGRAM__BASE_URL={self.telegram.url}")
            exports.write(f"\nexport TELEGRAM_BOT_TOKEN={TOKEN}\n")

    # --- a page ---------------------------------------------------------------------------------

    async def read(self, page: Page) -> None:
        """Do everything that the page says; raises `CodeInvalid` at the first thing that fails."""
        typed = "".join(each.text for each in page.blocks if each.language == "sh")
        if _MEETS_PEOPLE.search(typed):  # to load what speaks to it takes as long as all else
            self.connect()
        for block in page.blocks:
            try:
                await self._take(block)
            except Wrong as error:
                msg = f"{page.name}:{error}"
                raise Wrong(msg) from None

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
        # Root's usual place is the machine's own, where no test may write.
        file = self.folder / ".config/holdfast/holdfast.toml"
        text = re.sub(r"\bholdfast setup\b", f"holdfast setup --config {file}", text)
        text = re.sub(r"\bmake (?=\w)", f"make -n -C {shlex.quote(str(ROOT))} ", text)
        self._known(command, text)
        if found := _SERVICE.match(text):
            await self._serve(found[1])
        if any(re.match(pattern, text) for pattern, _ in NOT_HERE):
            return
        if _DAEMON.match(text):
            await self._start(command, text)
            return
        if _NEEDS_ONE.search(text) and self._daemon is None:
            await self._start(command, "holdfast run")
        text = text.replace("pip install --editable .", f"pip install {self._own()} .")
        meant = await self._meant(text)
        if asked := _typed(text, _AT_A_TERMINAL):
            meant = f"script -qec {shlex.quote(meant)} /dev/null"
        code, said, trouble = await self._shell(meant, asked or _typed(text, _LINES))
        if code:
            last = (trouble.strip() or said.strip() or "no word of why").splitlines()[-1]
            _fail(command.line, command.text, f"exit code {code}: {last}")

    def _own(self) -> str:
        """How packages get into the reader's own place without asking an index."""
        site = shlex.quote(str(self._site))
        return f"--quiet --no-index --no-build-isolation --no-deps --target {site}"

    def _known(self, command: Command, text: str) -> None:
        """Ours know their own words, also where they cannot be run."""
        for part in re.split(r"&&|\|\||[|;\n]", re.sub(r"\\\n", " ", text)):
            words = shlex.split(part, comments=True) if _balanced(part) else part.split()
            while words and re.match(r"\w+=", words[0]):
                words.pop(0)
            if words[:1] == ["holdfast"] and (trouble := wrong(words[1:])):
                _fail(command.line, command.text, trouble)
            if words[:2] == ["python", "-m"] and not importlib.util.find_spec(words[2]):
                _fail(command.line, command.text, f"there is no module {words[2]}")

    async def _shell(self, text: str, typed: str = "") -> tuple[int, str, str]:
        """Run a command in the shell that the page has: exports and folders stay."""
        desk = shlex.quote(str(self._desk))
        script = (
            f'. {desk}/exports; cd "$(cat {desk}/place)"; set -o pipefail\n{text}\n'
            f"code=$?; export -p >{desk}/exports; pwd >{desk}/place; exit $code"
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
            return -1, "", f"it did not end within {PATIENCE:g} s; its last words: {last}"
        return running.returncode or 0, said.decode(), trouble.decode()

    # --- the gateway ----------------------------------------------------------------------------

    async def _start(self, command: Command, text: str) -> None:
        """Start the gateway as the page does, in the place of one that runs."""
        await self.stop()
        fresh = "-u OPENAI_BASE_URL -u OPENAI_API_KEY" if _KEYS.search(text) else ""
        meant = re.sub(r"\bhttp\.port=\d+", "http.port=0", await self._meant(text))
        desk = shlex.quote(str(self._desk))
        self._daemon = _ByHand(self.home)
        self._daemon.line = f'. {desk}/exports; cd "$(cat {desk}/place)"; exec env {fresh} {meant}'
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
        """Do by hand what the service's manager would do."""
        match what:
            case "stop":
                await self.stop()
            case "reload" if self._daemon:
                self._daemon.signal(signal.SIGHUP)
            case _:
                await self._start(Command(0, f"holdfast service {what}"), "holdfast run")

    # --- what stands for something else ---------------------------------------------------------

    async def _meant(self, text: str) -> str:
        """A command with everything in it that a reader would put there themselves."""
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
        """Say something to the bot."""
        now = SystemClock().now() // 1000
        self.telegram.say(person, text, user=person, date=now)

    async def _session(self, command: str) -> str:
        """A conversation; where it is to be brought back, one that was stopped."""
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
        """What the gateway has written."""
        where = f"sqlite:///{self.home / 'holdfast.db'}"
        store = await SessionStore.open(where, clock=SystemClock(), read_only=True)
        try:
            yield store
        finally:
            await store.close()

    async def _code(self, _: str) -> str:
        """What somebody was told who is not let in yet."""
        self._people += 1
        self.say("hello", self._people)
        shown = await self.telegram.shows(self._people, "with this code: ")
        return shown[-1].text.rpartition("code: ")[2].strip()

    async def _friend(self, command: str) -> str:
        """Somebody who was let in by such a code."""
        self.say(f"/pair approve {await self._code(command)}")
        await self.telegram.shows(self._people, "You now have access")
        return f"telegram:{self._people}"

    # --- other blocks ---------------------------------------------------------------------------

    async def _program(self, block: Block) -> None:
        (self._desk / "program.py").write_text(block.text, encoding="utf-8")
        code, _, trouble = await self._shell(f"python {shlex.quote(str(self._desk))}/program.py")
        if code:
            _fail(block.line, "python", (trouble.strip() or "no word of why").splitlines()[-1])

    def _configure(self, block: Block) -> None:
        for problem in configured(block, self._desk):
            _fail(block.line, "toml", problem)


def configured(block: Block, folder: Path) -> tuple[str, ...]:
    """What our reader of configurations says of a piece of one; secrets in it are there."""
    if "[project" in block.text:
        try:
            tables = tomllib.loads(block.text)["project"].get("entry-points", {})
        except ValueError as error:
            return (str(error),)
        return tuple(f"nobody looks for entry points of {each}" for each in {*tables} - _GROUPS)
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
    raise Wrong(msg)
