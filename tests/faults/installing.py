"""Runs docs/install.md: install, upgrade and uninstall, as a person with an empty machine would.

`python -m tests.faults.installing` makes a scratch machine (a home folder, a repository to clone, pipx and uv) and
executes the commands of the page there: each way of installing, an upgrade while the gateway runs, the uninstall, and a
look for files that are left behind. Then `holdfast selftest` runs with every supported Python that is found here.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from gateway.config.loader import read_environment
from tests.docs.pages import ROOT, Page, commands

PAGE = Page(ROOT / "docs/install.md")
SUPPORTED = ("3.11", "3.12", "3.13")
PATIENCE = 900.0  # for one command: a first installation downloads everything

_VERSION = re.compile(r'^version = "(.+)"$', re.MULTILINE)
_OWN_FILES_OF_TOOLS = {".cache", "pipx"}  # caches of pip and uv, the lock file of pipx
WAYS = {"pipx": "holdfast", "uv tool": "holdfast", "holdfast-env": "~/holdfast-env/bin/holdfast"}
"""Words that name a way of installing on the page, and the program that it installs."""


class CommandFailed(Exception):
    """A command of the page failed, or did something else than the page says."""


def documented(heading: str, *words: str) -> list[str]:
    """Return the commands of the first block below a heading that contains all these words."""
    lines = PAGE.text.splitlines()
    start = next(n for n, line in enumerate(lines, 1) if re.fullmatch(f"#+ {heading}", line))
    for block in PAGE.blocks:
        if block.line > start and all(each in block.text for each in words):
            return [each.text for each in commands(block)]
    msg = f"docs/install.md has no block with {words} below “{heading}”"
    raise CommandFailed(msg)


def installed_pythons() -> Iterator[tuple[str, Path]]:
    """Yield each supported Python of this machine: on the PATH, or installed by pyenv."""
    folders = [Path(each) for each in os.get_exec_path()]
    folders += sorted((Path.home() / ".pyenv/versions").glob("*/bin"))
    for version in SUPPORTED:
        found = (folder / f"python{version}" for folder in folders)
        real = (
            each for each in found if os.access(each, os.X_OK) and ".pyenv/shims" not in str(each)
        )
        if program := next(real, None):
            yield version, program


class ScratchMachine:
    """A person's home folder, a folder to work in, and a repository to clone."""

    def __init__(self, folder: Path) -> None:
        self.home, self.place, self.upstream = (folder / n for n in ("home", "work", "upstream"))
        self._tools = folder / "tools"
        for each in (self.home, self.place, self.upstream):
            each.mkdir()
        real = read_environment()
        passed_on = ("LANG", "COVERAGE", "PIP_", "UV_", "SSL_", "HTTP", "NO_PROXY", "no_proxy")
        config = Path(real.get("PIP_CONFIG_FILE") or Path.home() / ".config/pip/pip.conf")
        self.environ: dict[str, str] = {
            **{name: each for name, each in real.items() if name.startswith(passed_on)},
            "HOME": str(self.home),
            "PATH": f"{self.home}/.local/bin:{self._tools}/bin:{real['PATH']}",
            "PIP_CONFIG_FILE": str(config),
            "UV_INDEX_STRATEGY": "unsafe-best-match",  # as pip chooses between several registries
            "HOLDFAST_HTTP__PORT": "0",
        }

    async def prepare(self) -> None:
        """Install pipx and uv, and fill the repository with the files of this checkout."""
        await self.run(f"{sys.executable} -m venv {self._tools}")
        await self.run(f"{self._tools}/bin/pip install -qq pipx uv")
        self.environ |= await self._uv_registries()
        listed = f"git -C {ROOT} ls-files -z --cached --others --exclude-standard"
        copied = f"tar -C {ROOT} --null --ignore-failed-read -T - -c"
        await self.run(f"{listed} | {copied} | tar -C {self.upstream} -x")
        await self.run("git init -q && git add -A", self.upstream)
        await self._commit("Begin")

    async def _uv_registries(self) -> Mapping[str, str]:
        """Return uv's variables for the registries that pip is configured for."""
        said = await self.run(f"{self._tools}/bin/pip config list")
        found = dict(re.findall(r"^(?:global|:env:)\.([\w-]+)='(.*)'$", said, re.MULTILINE))
        names = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX"}
        names["find-links"] = "UV_FIND_LINKS"
        return {name: found[key] for key, name in names.items() if key in found}

    async def _commit(self, subject: str) -> None:
        who = "-c user.name=Ada -c user.email=ada@example.org"
        await self.run(f"git {who} commit -qam '{subject}'", self.upstream)

    async def release(self, version: str) -> None:
        """Commit a new version to the repository."""
        file = self.upstream / "pyproject.toml"
        file.write_text(_VERSION.sub(f'version = "{version}"', file.read_text(), count=1))
        await self._commit(f"Release {version}")

    async def _shell(self, command: str, folder: Path | None) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *("bash", "-o", "pipefail", "-c", command.replace("ADDRESS", str(self.upstream))),
            cwd=folder or self.place,
            env=self.environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )

    async def run(self, command: str, folder: Path | None = None) -> str:
        """Run a command of the page, and return its output."""
        process = await self._shell(command, folder)
        async with asyncio.timeout(PATIENCE):
            said, _ = await process.communicate()
        if process.returncode:
            msg = f"`{command}`: exit code {process.returncode}\n{said.decode()}"
            raise CommandFailed(msg)
        return said.decode()

    async def start(self, command: str, folder: Path | None = None) -> asyncio.subprocess.Process:
        """Start a gateway, and wait until it says that it runs."""
        process = await self._shell(command, folder)
        assert process.stdout
        said = b""
        async with asyncio.timeout(PATIENCE):
            while b"Holdfast is running" not in said:
                line = await process.stdout.readline()
                if not line:
                    msg = f"`{command}` ended:\n{said.decode()}"
                    raise CommandFailed(msg)
                said += line
        return process

    async def end(self, process: asyncio.subprocess.Process) -> None:
        """Press Ctrl-C in the terminal of a gateway, and wait for its end."""
        os.killpg(process.pid, signal.SIGINT)
        async with asyncio.timeout(PATIENCE):
            await process.communicate()

    def left_behind(self) -> list[str]:
        """Return the files with Holdfast's name in the home folder."""
        found = (path.relative_to(self.home) for path in self.home.rglob("*holdfast*"))
        return sorted(str(each) for each in found if not _OWN_FILES_OF_TOOLS & {*each.parts})


def expect(found: bool, what: str) -> None:
    """Raise `CommandFailed` with what the page promises and did not happen."""
    if not found:
        raise CommandFailed(what)


async def use_checkout(machine: ScratchMachine) -> Path:
    """Clone and run, pull a new version and run again; return the checkout."""
    clone, run = documented("A checkout")
    await machine.run(clone)
    checkout = machine.place / "holdfast"
    await machine.end(await machine.start(run, checkout))
    await machine.release("0.9.0")
    (upgrade,) = documented("Upgrade", "make run")
    await machine.end(await machine.start(upgrade, checkout))
    said = await machine.run(".venv/bin/holdfast --version", checkout)
    expect(said == "holdfast 0.9.0\n", f"git pull && make run: {said}")
    return checkout


async def use_program(machine: ScratchMachine, checkout: Path, way: str, version: str) -> None:
    """Install, upgrade while the gateway runs, restart, uninstall, and remove what is left."""
    program = WAYS[way]
    for command in documented("A program of its own", way):
        await machine.run(command, checkout)
    before = (await machine.run(f"{program} --version")).split()[1]
    running = await machine.start(f"{program} run")
    try:
        await machine.release(version)
        for command in documented("Upgrade", way):
            await machine.run(command, checkout)
        (restart,) = documented("Upgrade", "service restart")
        said = await machine.run(restart.replace("holdfast", program, 1))
        change = f"Updated from version {before} to {version}."
        expect(change in said, f"{way}: the restart did not say “{change}”: {said}")
    finally:
        await machine.end(running)
    if way == "pipx":
        await machine.run("man -w holdfast")
    if way == "holdfast-env":
        (command,) = documented("The man page")
        expect("HOLDFAST(1)" in await machine.run(f"{command} | cat"), "the man page of pip")
    for command in (*documented("Uninstall", way), *documented("Uninstall", "~/.local/share")):
        made = re.sub(r"^rm -r (?=~/.config)", "mkdir -p ~/.config/holdfast && rm -r ", command)
        await machine.run(made)  # the demo needs no configuration, so there may be none to remove
    expect(not (left := machine.left_behind()), f"{way} left behind: {left}")


async def try_pythons(machine: ScratchMachine, wheel: Path) -> None:
    """Install the wheel for each supported Python, and run the self-test with it."""
    found = dict(installed_pythons())
    for version in SUPPORTED:
        if version not in found:
            say(f"   Python {version}: not installed here, NOT TESTED")
            continue
        began, place = time.monotonic(), machine.place / f"python{version}"
        await machine.run(f"uv venv -q --no-python-downloads --python {found[version]} {place}")
        await machine.run(f"uv pip install -q --python {place} '{wheel}[all]'")
        report = json.loads(await machine.run(f"{place}/bin/holdfast selftest --json"))
        real = json.loads(await machine.run(f"{place}/bin/holdfast version --json"))["python"]
        expect(report["ok"] and real.startswith(version), f"Python {version}: {report}")
        trials, seconds = len(report["trials"]), time.monotonic() - began
        say(f"   Python {real}: {trials} trials of holdfast selftest passed, {seconds:.0f} s")


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def run() -> None:
    """Take every way of the page."""
    with tempfile.TemporaryDirectory(prefix="holdfast-install-") as name:
        machine = ScratchMachine(Path(name))
        await machine.prepare()
        began = time.monotonic()
        checkout = await use_checkout(machine)
        say(f"   git clone, make run, git pull && make run: {time.monotonic() - began:.0f} s")
        for number, way in enumerate(WAYS):
            began = time.monotonic()
            await use_program(machine, checkout, way, f"0.9.{number + 1}")
            say(f"   {way}: install, upgrade, restart, uninstall: {time.monotonic() - began:.0f} s")
        (wheel,) = (checkout / "dist").glob("*.whl")
        await try_pythons(machine, wheel)


def main() -> None:
    """See the module."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    say("The commands of docs/install.md:")
    try:
        asyncio.run(run())
    except CommandFailed as error:
        say(f"   FAILED: {error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
