"""What the checks look at: everything that is known before the first of them begins."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from gateway.config.loader import Loaded, Options, Specs, config_file, load, state_folder
from gateway.errors import ConfigError, HoldfastError
from gateway.process.control_socket import NotRunning, ask, socket_path
from gateway.settings import Settings
from sessions.values.clock import Clock

_ASK_SECONDS = 6.0


class Daemon(Struct, frozen=True):
    """The gateway of this state folder."""

    running: bool = False
    status: dict[str, Any] = {}
    trouble: str = ""  # why it cannot be asked, although there seems to be one
    held: bool = False  # somebody holds the lock of the state folder
    holder: str = ""  # its process, if known

    @property
    def is_there(self) -> bool:
        """Whether something of ours may be connected."""
        return self.running or self.held

    @property
    def url(self) -> str:
        """Where its HTTP port is; empty when that is not known."""
        return str(self.status.get("url") or "")


class Case(Struct, frozen=True):
    """One visit of the doctor."""

    environ: Mapping[str, str]
    home: Path
    specs: Specs
    clock: Clock
    path: Path | None = None  # the configuration file
    loaded: Loaded | None = None  # None where the configuration does not work
    problems: tuple[str, ...] = ()  # then
    daemon: Daemon = Daemon()
    offline: bool = False

    @property
    def settings(self) -> Settings:
        """What is configured; the defaults where that cannot be known."""
        return self.loaded.settings if self.loaded else Settings()

    @property
    def database(self) -> str:
        """Where the database is."""
        url = self.settings.store.url
        return url.reveal() if url else f"sqlite:///{self.home / 'holdfast.db'}"


async def taken_up(
    options: Options,
    environ: Mapping[str, str],
    specs: Specs,
    *,
    clock: Clock,
    offline: bool = False,
) -> Case:
    """Find out what there is to look at; never fails for what is wrong with it."""
    home = state_folder(environ)
    loaded: Loaded | None = None
    problems: tuple[str, ...] = ()
    path = config_file(options, environ)
    try:
        loaded = load(options, environ, specs)
    except ConfigError as error:
        problems = error.lines
    daemon = await _daemon(home, environ)
    return Case(environ, home, specs, clock, path, loaded, problems, daemon, offline)


async def _daemon(home: Path, environ: Mapping[str, str]) -> Daemon:
    held, holder = await asyncio.to_thread(lock_of, home)
    try:
        async with asyncio.timeout(_ASK_SECONDS):
            status = await asyncio.to_thread(ask, socket_path(home, environ), "status")
    except NotRunning:
        return Daemon(held=held, holder=holder)
    except TimeoutError:
        return Daemon(trouble="it does not answer", held=held, holder=holder)
    except HoldfastError as error:
        return Daemon(trouble=str(error).rstrip("."), held=held, holder=holder)
    told = status if isinstance(status, dict) else {}
    return Daemon(running=True, status=told, held=held, holder=holder)


def lock_of(home: Path, locks: Path = Path("/proc/locks")) -> tuple[bool, str]:
    """Whether the lock of a state folder is held, and by which process; takes no lock itself.

    Taking it for a moment would turn away a daemon that starts in this moment.
    """
    try:
        lock, written = (home / "lock").stat(), (home / "lock").read_text(errors="replace").strip()
        lines = locks.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return False, ""
    for line in lines:
        match line.split():
            case [_, "FLOCK", _, _, process, place, *_] if _is(place, lock, process == written):
                return True, process if process.isdigit() and process != "0" else written
            case _:
                pass
    return False, ""


def _is(place: str, file: os.stat_result, known: bool) -> bool:
    """Whether MAJOR:MINOR:INODE is a file; some file systems count devices in a way of their own."""
    major, minor, number = place.split(":")
    here = (int(major, 16), int(minor, 16)) == (os.major(file.st_dev), os.minor(file.st_dev))
    return number == str(file.st_ino) and (here or known)
