"""The input of all checks, collected before the first check runs."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from gateway.config.loader import (
    ConfigOptions,
    LoadedConfig,
    PlatformSpecs,
    config_file,
    load,
    state_folder,
)
from gateway.errors import ConfigError, HoldfastError
from gateway.process.control_socket import NotRunning, send_request, socket_path
from gateway.process.lock import find_lock_holder
from gateway.settings import Settings
from sessions.values.clock import Clock

_STATUS_TIMEOUT_SECONDS = 6.0


class DaemonInfo(Struct, frozen=True, kw_only=True):
    """The gateway of this state folder, as seen from outside."""

    running: bool = False
    status: dict[str, Any] = {}
    problem: str = ""  # why a gateway that seems to run did not answer
    lock_held: bool = False  # a process holds the lock of the state folder
    lock_holder: str = ""  # its process id, if known

    @property
    def may_be_running(self) -> bool:
        """True if a gateway may be using these bots."""
        return self.running or self.lock_held

    @property
    def url(self) -> str:
        """URL of the HTTP port; empty if unknown."""
        return str(self.status.get("url") or "")


class DoctorContext(Struct, frozen=True, kw_only=True):
    """The input of one run of the doctor."""

    environ: Mapping[str, str]
    home: Path
    specs: PlatformSpecs
    clock: Clock
    config_path: Path | None = None
    loaded: LoadedConfig | None = None  # None if the configuration cannot be loaded
    problems: tuple[str, ...] = ()  # errors of loading the configuration
    daemon: DaemonInfo = DaemonInfo()
    offline: bool = False

    @property
    def settings(self) -> Settings:
        """The settings, or the defaults if the configuration cannot be loaded."""
        return self.loaded.settings if self.loaded else Settings()

    @property
    def database(self) -> str:
        """URL of the database."""
        url = self.settings.store.url
        return url.reveal() if url else f"sqlite:///{self.home / 'holdfast.db'}"


async def collect_context(
    options: ConfigOptions,
    environ: Mapping[str, str],
    specs: PlatformSpecs,
    *,
    clock: Clock,
    offline: bool = False,
) -> DoctorContext:
    """Collect the input of all checks; problems become part of it instead of exceptions."""
    home = state_folder(environ)
    loaded: LoadedConfig | None = None
    problems: tuple[str, ...] = ()
    path = config_file(options, environ)
    try:
        loaded = load(options, environ, specs)
    except ConfigError as error:
        problems = error.lines
    daemon = await _inspect_daemon(home, environ)
    return DoctorContext(
        environ=environ,
        home=home,
        specs=specs,
        clock=clock,
        config_path=path,
        loaded=loaded,
        problems=problems,
        daemon=daemon,
        offline=offline,
    )


async def _inspect_daemon(home: Path, environ: Mapping[str, str]) -> DaemonInfo:
    held, holder = await asyncio.to_thread(find_lock_holder, home)
    try:
        async with asyncio.timeout(_STATUS_TIMEOUT_SECONDS):
            status = await asyncio.to_thread(send_request, socket_path(home, environ), "status")
    except NotRunning:
        return DaemonInfo(lock_held=held, lock_holder=holder)
    except TimeoutError:
        return DaemonInfo(problem="it does not answer", lock_held=held, lock_holder=holder)
    except HoldfastError as error:
        return DaemonInfo(problem=str(error).rstrip("."), lock_held=held, lock_holder=holder)
    fields = status if isinstance(status, dict) else {}
    return DaemonInfo(running=True, status=fields, lock_held=held, lock_holder=holder)
