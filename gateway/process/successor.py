"""The program that takes this process's place at a restart: the same command, as it lies on disk now.

It is asked whether it could start before anything is interrupted. Then this process becomes it: the
process keeps its number, so that systemd, a container and a shell all see the same daemon.
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
"""Seconds that it may take to say whether it could start."""

CHECK_OPTION = "--check"
_CHECK_EXCLUDED_VARIABLES = frozenset({"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"})


class Successor:
    """How this program is started again."""

    def __init__(
        self, command: Sequence[str], environ: Mapping[str, str], handover: Handover | None = None
    ) -> None:
        self._command = tuple(command)
        self._environ = environ
        self.handover = handover or Handover()

    @cached_property
    def version(self) -> str:
        """The version of this process; to be read before another one is installed."""
        try:
            return installed("holdfast")
        except PackageNotFoundError:
            return ""

    async def find_start_error(self) -> str:
        """Say why it could not start, in one or more sentences; empty when it could."""
        program = self._command[0]
        if not os.access(program, os.X_OK):
            return f"The program {program} is not there any more, or may not be run."
        environ = {
            name: each
            for name, each in self._environ.items()
            if name not in _CHECK_EXCLUDED_VARIABLES
        }
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                CHECK_OPTION,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env=environ,
            )
        except OSError as error:
            return f"The program {program} cannot be run: {error.strerror}."
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_SECONDS):
                _, said = await process.communicate()
        except TimeoutError:
            return f"The program {program} did not say within {CHECK_TIMEOUT_SECONDS:g} s that it can start."
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return describe_failure(said.decode(errors="replace")) if process.returncode else ""

    def replace_process(self) -> NoReturn:
        """Become it; raises `CannotStart` when that is not possible any more."""
        sys.stdout.flush()
        sys.stderr.flush()
        environ = {**self._environ, **self.handover.environment()}
        try:
            os.execve(self._command[0], self._command, environ)  # noqa: S606 - no shell is wanted
        except OSError as error:
            msg = (
                f"The restart failed, nothing runs now: {self._command[0]}: {error.strerror}. "
                "Start it again with: holdfast run"
            )
            raise CannotStart(msg) from error


def describe_failure(output: str) -> str:
    """What a program said when it refused, without its name in front; never more than a few lines."""
    lines = [
        line.removeprefix("holdfast: ").strip() for line in output.splitlines() if line.strip()
    ]
    if any(line.startswith("Traceback ") for line in lines):
        return f"The installed program does not even start: {lines[-1]}"
    shown = [line if line.endswith((".", "!", "?")) else f"{line}." for line in lines[-3:]]
    return " ".join(shown) or "The installed program ends at once and does not say why."


def restart_command(
    argv: Sequence[str],
    original: Sequence[str],
    python: str,
    is_script: Callable[[str], bool] | None = None,
) -> tuple[str, ...]:
    """How this process is started again: by its script, which names its own Python, or by Python.

    `original` is what Python itself was called with. After an upgrade the script may name another
    Python than the one that runs here; options of Python itself are only kept by calling that one.
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
