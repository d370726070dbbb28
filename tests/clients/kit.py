"""Third-party programs from the registries, installed below `build/clients`, and a way to run them.

Each program gets an environment of its own, made once for each list of packages. A program that
cannot be installed is skipped, with the reason; `make clients` lists all skips at its end.
"""

import asyncio
import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from gateway.config.loader import read_environment

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "clients"
SCRIPTS = Path(__file__).parent / "programs"
INSTALL_SECONDS = 900.0
NODE = "node@24"

_LOOPBACK_ONLY = {
    **{f"{name}_PROXY": "http://127.0.0.1:9" for name in ("HTTP", "HTTPS", "ALL")},
    "NO_PROXY": "127.0.0.1,localhost",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # otherwise LiteLLM tries three times to fetch it
}
"""Variables that send requests to other machines to a proxy that does not exist."""

_OWN = ("HOLDFAST", "OPENAI", "ANTHROPIC", "NOTIFY", "VIRTUAL_ENV", "PYTHON")
_PROBLEM_LINES = 5


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a program: its exit code and its output."""

    code: int
    out: str
    err: str

    @property
    def all(self) -> str:
        return f"{self.out}\n{self.err}"


def clean_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment without the variables that configure us or a client."""
    kept = {name: each for name, each in read_environment().items() if not name.startswith(_OWN)}
    return kept | dict(more or {})


def _installed(folder: Path, packages: tuple[str, ...]) -> bool:
    stamp = folder / ".installed"
    return stamp.exists() and stamp.read_text() == _stamp(packages)


def _stamp(packages: tuple[str, ...]) -> str:
    return hashlib.sha256("\n".join(packages).encode()).hexdigest()


def _run_install(name: str, command: list[str], folder: Path, env: Mapping[str, str]) -> None:
    """Run one command of an installation; skip the test if it fails."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=clean_environment(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
        problem = done.stdout if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    if problem:
        last = " | ".join(problem.strip().splitlines()[-_PROBLEM_LINES:])
        pytest.skip(f"{name} cannot be installed here: {last}")


def _uv() -> tuple[Path, dict[str, str]]:
    """Return uv, installed once, and its variables for the registries that pip is configured for."""
    tools = BUILD / "uv"
    packages = ("uv",)
    if not _installed(tools, packages):
        tools.mkdir(parents=True, exist_ok=True)
        _run_install("uv", [sys.executable, "-m", "venv", str(tools)], BUILD, {})
        _run_install("uv", [f"{tools}/bin/pip", "install", "-q", *packages], BUILD, {})
        (tools / ".installed").write_text(_stamp(packages))
    said = subprocess.run(
        [f"{tools}/bin/pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    found = dict(re.findall(r"^(?:global|:env:)\.([\w-]+)='(.*)'$", said, re.MULTILINE))
    names = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX"}
    names["find-links"] = "UV_FIND_LINKS"
    env = {each: found[key] for key, each in names.items() if key in found}
    # As pip does, uv shall choose between the versions of all configured registries.
    return tools / "bin/uv", env | {"UV_INDEX_STRATEGY": "unsafe-best-match"}


def free_port() -> int:
    """Return a port of loopback that is free now, for a program that cannot choose one itself."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def python_program(name: str, *packages: str) -> Path:
    """Return the `bin` folder of an environment with these packages of PyPI."""
    folder = BUILD / name
    if not _installed(folder, packages):
        uv, env = _uv()
        BUILD.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        made = [str(uv), "venv", "-q", "--no-python-downloads", "--python", sys.executable]
        _run_install(name, [*made, str(folder)], BUILD, env)
        added = [str(uv), "pip", "install", "-q", "--python", str(folder / "bin/python")]
        _run_install(name, [*added, *packages], BUILD, env)
        (folder / ".installed").write_text(_stamp(packages))
    return folder / "bin"


def node_program(name: str, *packages: str) -> Path:
    """Return the `node_modules/.bin` folder with these packages of npm, beside a Node 24 of its own."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip(f"{name} cannot be installed here: npm is missing")
    folder = BUILD / name
    wanted = (NODE, *packages)
    if not _installed(folder, wanted):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "package.json").write_text('{"private": true, "type": "module"}\n')
        # The Node of npm comes first, so that the packages are chosen for it; its own script puts the program in place.
        quiet = ["--no-audit", "--no-fund", "--loglevel=error"]
        _run_install(name, [npm, "install", *quiet, NODE], folder, {})
        path = f"{folder}/node_modules/.bin:{os.defpath}:{Path(npm).parent}"
        if packages:
            _run_install(name, [npm, "install", *quiet, *packages], folder, {"PATH": path})
        (folder / ".installed").write_text(_stamp(wanted))
    return folder / "node_modules/.bin"


class Program:
    """A third-party process under way; killed with its children at the end of the block."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.lines: list[str] = []
        self._heard = asyncio.Condition()

    @property
    def pid(self) -> int:
        return self._process.pid

    async def _read(self) -> None:
        assert self._process.stdout
        while line := await self._process.stdout.readline():
            async with self._heard:
                self.lines.append(line.decode(errors="replace").rstrip())
                self._heard.notify_all()
        await self._process.wait()
        async with self._heard:
            self._heard.notify_all()

    async def says(self, text: str, seconds: float = 120.0) -> str:
        """Wait for a line that contains the text, and return it."""

        def found() -> list[str]:
            ended = self._process.returncode is not None
            assert not ended or any(text in line for line in self.lines), "\n".join(self.lines)
            return [line for line in self.lines if text in line]

        async with asyncio.timeout(seconds), self._heard:
            await self._heard.wait_for(found)
        return found()[-1]

    async def ends(self, seconds: float = 120.0) -> int:
        """Wait for the end, and return the exit code."""
        async with asyncio.timeout(seconds):
            return await self._process.wait()

    def kill(self) -> None:
        """Kill the process with its process group."""
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)


class Started:
    """Context manager: start a long-running program, and kill it at the end."""

    def __init__(
        self, *command: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        self._command = [str(each) for each in command]
        self._env = clean_environment(_LOOPBACK_ONLY | dict(env or {}))
        self._cwd = cwd

    async def __aenter__(self) -> Program:
        self._group = asyncio.TaskGroup()
        await self._group.__aenter__()
        process = await asyncio.create_subprocess_exec(
            *self._command,
            env=self._env,
            cwd=self._cwd,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            limit=2**24,
        )
        self._program = Program(process)
        self._group.create_task(self._program._read())
        return self._program

    async def __aexit__(self, *raised: object) -> None:
        self._program.kill()
        await self._program.ends()
        await self._group.__aexit__(None, None, None)


async def run(
    *command: str | Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str = "",
    seconds: float = 120.0,
) -> Ended:
    """Run a program to its end; after the seconds it is killed with its children."""
    process = await asyncio.create_subprocess_exec(
        *(str(each) for each in command),
        env=clean_environment(_LOOPBACK_ONLY | dict(env or {})),
        cwd=cwd,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(seconds):
            out, err = await process.communicate(stdin.encode())
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    assert process.returncode is not None
    return Ended(code=process.returncode, out=out.decode(), err=err.decode())
