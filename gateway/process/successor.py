"""The program that replaces this process at a restart: the same command, as now installed.

The program is first run with `--check`, before anything is interrupted. Then this process replaces
itself by `execve` and keeps its pid, so that systemd, a container and a shell see the same daemon.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from pathlib import Path
from typing import NoReturn

from gateway.errors import CannotStart
from gateway.process.handover import Handover

log = logging.getLogger(__name__)

CHECK_TIMEOUT_SECONDS = 30.0
"""Seconds that the check of the new program may take."""

_CHECK_OPTION = "--check"
_CHECK_EXCLUDED_VARIABLES = frozenset({"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"})


class Successor:
    """The command, environment and open files of the next process image."""

    def __init__(
        self, command: Sequence[str], environ: Mapping[str, str], handover: Handover | None = None
    ) -> None:
        self._command = tuple(command)
        self._environ = environ
        self.handover = handover or Handover()

    @cached_property
    def version(self) -> str:
        """Version of this process; read it before an upgrade changes the installed version."""
        try:
            return installed("holdfast")
        except PackageNotFoundError:
            return ""

    async def find_start_error(self) -> str:
        """Run the check of the new program; returns its error in sentences, or "" if it can start."""
        program = self._command[0]
        if not os.access(program, os.X_OK):
            return f"The program {program} is missing or not executable."
        environ = {
            name: value
            for name, value in self._environ.items()
            if name not in _CHECK_EXCLUDED_VARIABLES
        }
        environ |= self.handover.environment()  # marks a restart, which asks no questions
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                _CHECK_OPTION,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env=environ,
            )
        except OSError as error:
            return f"The program {program} cannot be run: {error.strerror}."
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_SECONDS):
                _, output = await process.communicate()
        except TimeoutError:
            return f"The check of {program} did not finish within {CHECK_TIMEOUT_SECONDS:g} s."
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return describe_failure(output.decode(errors="replace")) if process.returncode else ""

    def replace_process(self) -> NoReturn:
        """Replace this process with the new program; raises `CannotStart` if that fails."""
        sys.stdout.flush()
        sys.stderr.flush()
        environ = {**self._environ, **self.handover.environment()}
        try:
            os.execve(self._command[0], self._command, environ)  # noqa: S606 - no shell is wanted
        except OSError as error:
            msg = (
                f"The restart failed, and Holdfast is not running: {self._command[0]}: "
                f"{error.strerror}. Start it again with: holdfast run"
            )
            raise CannotStart(msg) from error


def describe_failure(output: str) -> str:
    """Return the output of a failed check in at most three sentences."""
    lines = [
        line.removeprefix("holdfast: ").strip() for line in output.splitlines() if line.strip()
    ]
    if any(line.startswith("Traceback ") for line in lines):
        return f"The installed program crashes at its start: {lines[-1]}"
    shown = [line if line.endswith((".", "!", "?")) else f"{line}." for line in lines[-3:]]
    return " ".join(shown) or "The installed program exits at once without an error message."


def restart_command(
    argv: Sequence[str],
    original: Sequence[str],
    python: str,
    is_script: Callable[[str], bool] | None = None,
) -> tuple[str, ...]:
    """Return the command that starts this program again: its script, or else the interpreter.

    `original` is `sys.orig_argv`. The script is preferred because after an upgrade it may name
    another Python. If the interpreter got options of its own, it is called directly to keep them.
    """
    script = argv[0]
    plain = len(original) > 1 and original[1] == script
    if plain and (is_script or _is_script)(script):
        return (str(Path(script).absolute()), *argv[1:])
    return (python, *original[1:])


def _is_script(path: str) -> bool:
    try:
        with Path(path).open("rb") as file:
            return os.access(path, os.X_OK) and file.read(2) == b"#!"
    except OSError:
        return False
