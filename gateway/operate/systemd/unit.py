"""Sans-IO: the text of the systemd unit file.

All keys exist in systemd 252 (Debian 12). Newer keys are written only for newer versions, because
systemd logs a warning for an unknown key at each start.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from gateway.settings import max_stop_seconds

UNIT_NAME = "holdfast.service"


MIN_SYSTEMD_VERSION = 252
_RESTART_STEPS_VERSION = 254  # the first version with RestartSteps=

_PRIVILEGED_PORTS = 1024
_HEADER = """\
# Written by `holdfast service install`, which overwrites this file. Keep your own changes in a
# drop-in: `systemctl {manager}edit holdfast`.
"""


class ServiceUnit(Struct, frozen=True, kw_only=True):
    """The values from which the unit file is rendered."""

    program: Path = Path("/opt/holdfast/bin/holdfast")
    config: Path | None = None
    """Configuration file, if not at the default path."""
    home: Path | None = None
    """State folder, if not the default; only for a user's service."""
    drain_seconds: float = 60.0
    uses_sandbox: bool = False
    """True if commands run in bubblewrap, which needs namespaces."""
    port: int = 8420
    writable_folders: tuple[Path, ...] = ()
    """Writable folders other than the state folder."""
    hidden_folders: tuple[Path, ...] = ()
    """Program folders, for example in /home, that the machine's service cannot see."""
    systemd_version: int = MIN_SYSTEMD_VERSION


def render_system_unit(unit: ServiceUnit) -> str:
    """Render the machine's service: its own user, and access to almost nothing else."""
    return _render(
        _HEADER.format(manager=""),
        {
            "Unit": (
                *_DESCRIPTION,
                ("Wants", "network-online.target"),
                ("After", "network-online.target nss-lookup.target time-sync.target"),
            ),
            "Service": (
                *_service_keys(unit),
                *_LIMITS,
                *_user_keys(unit),
                *_isolation_keys(unit),
                *_filter_keys(unit),
            ),
            "Install": (("WantedBy", "multi-user.target"),),
        },
    )


def render_user_unit(unit: ServiceUnit) -> str:
    """Render a user's service, limited to what a user manager can enforce without privileges.

    File system isolation would need namespaces, which many machines do not allow to users.
    """
    return _render(
        _HEADER.format(manager="--user "),
        {
            "Unit": _DESCRIPTION,
            "Service": (*_service_keys(unit), *_LIMITS, ("UMask", "0077"), *_filter_keys(unit)),
            "Install": (("WantedBy", "default.target"),),
        },
    )


# --- the parts ---------------------------------------------------------------------------------

_Lines = Iterable[tuple[str, str]]

_DESCRIPTION = (
    ("Description", "Holdfast: an AI agent in your chats"),
    ("StartLimitIntervalSec", "0"),  # restart forever: the cause of failures may be temporary
)

_LIMITS = (
    ("MemoryHigh", "1G"),
    ("MemoryMax", "2G"),
    ("OOMPolicy", "continue"),  # a tool that uses too much memory dies alone
    ("TasksMax", "1024"),
    ("LimitNOFILE", "65536"),
)


def _service_keys(unit: ServiceUnit) -> Iterator[tuple[str, str]]:
    words = [_quote(str(unit.program)), "run"]
    if unit.config:
        words += ["--config", _quote(str(unit.config).replace("$", "$$"))]  # literal $
    yield "Type", "notify"
    yield "NotifyAccess", "main"
    yield "ExecStart", " ".join(words)
    yield "ExecReload", "/bin/kill -HUP $MAINPID"
    if unit.home:
        yield "Environment", _quote(f"HOLDFAST_HOME={unit.home}")
    yield "SyslogIdentifier", "holdfast"
    yield "Restart", "on-failure"
    if unit.systemd_version >= _RESTART_STEPS_VERSION:
        yield "RestartSec", "2"
        yield "RestartSteps", "8"
        yield "RestartMaxDelaySec", "120"
    else:
        yield "RestartSec", "10"
    yield "RestartPreventExitStatus", "78"  # the configuration cannot work
    yield "WatchdogSec", "60"
    yield "TimeoutStartSec", "90"
    yield "TimeoutStopSec", str(max_stop_seconds(unit.drain_seconds))
    yield "KillMode", "mixed"  # the daemon stops its tools; systemd kills the remaining processes


def _user_keys(unit: ServiceUnit) -> Iterator[tuple[str, str]]:
    yield "DynamicUser", "yes"
    yield "User", "holdfast"
    yield "StateDirectory", "holdfast"
    yield "StateDirectoryMode", "0700"
    yield "UMask", "0077"
    # MCP servers need a writable home for their caches and files.
    yield "Environment", _quote("HOME=%S/holdfast", specifiers=True)
    yield "LoadCredential", "holdfast:/etc/holdfast/credentials"
    for folder in unit.writable_folders:
        yield "ReadWritePaths", _quote(f"-{folder}")
    port = "CAP_NET_BIND_SERVICE" if 0 < unit.port < _PRIVILEGED_PORTS else ""
    yield "CapabilityBoundingSet", port
    yield "AmbientCapabilities", port
    if not port:  # PrivateUsers= would make the capability useless
        yield "PrivateUsers", "yes"


def _isolation_keys(unit: ServiceUnit) -> Iterator[tuple[str, str]]:
    yield "ProtectSystem", "strict"
    yield "ProtectHome", "tmpfs" if unit.hidden_folders else "yes"
    for folder in unit.hidden_folders:
        yield "BindReadOnlyPaths", _quote(str(folder))
    yield "PrivateTmp", "yes"
    yield "PrivateDevices", "yes"
    yield "PrivateMounts", "yes"
    yield "DevicePolicy", "closed"
    yield "ProtectClock", "yes"
    yield "ProtectHostname", "yes"
    yield "ProtectControlGroups", "yes"
    yield "ProtectKernelModules", "yes"
    yield "ProtectKernelLogs", "yes"
    yield "ProtectProc", "invisible"
    if not unit.uses_sandbox:
        # These hide parts of /proc, and the kernel mounts a new /proc for a sandbox only if the
        # process can see all of the current one.
        yield "ProcSubset", "pid"
        yield "ProtectKernelTunables", "yes"
    yield "RemoveIPC", "yes"


def _filter_keys(unit: ServiceUnit) -> Iterator[tuple[str, str]]:
    yield "NoNewPrivileges", "yes"
    yield "LockPersonality", "yes"
    yield "RestrictRealtime", "yes"
    yield "RestrictSUIDSGID", "yes"
    yield "RestrictAddressFamilies", "AF_UNIX AF_INET AF_INET6 AF_NETLINK"
    if not unit.uses_sandbox:
        yield "RestrictNamespaces", "yes"
    # No MemoryDenyWriteExecute=: it would kill MCP servers with a JIT compiler, such as Node.
    yield "SystemCallArchitectures", "native"
    yield "SystemCallFilter", "@system-service @mount" if unit.uses_sandbox else "@system-service"
    yield "SystemCallFilter", "~@resources" if unit.uses_sandbox else "~@privileged @resources"
    yield "SystemCallErrorNumber", "EPERM"


def _render(head: str, sections: dict[str, _Lines]) -> str:
    lines = [head]
    for name, keys in sections.items():
        lines += [f"[{name}]", *(f"{key}={value}" for key, value in keys), ""]
    return "\n".join(lines)


def _quote(text: str, *, specifiers: bool = False) -> str:
    """Quote one word of a value: systemd interprets blanks, quotes, backslashes and `%`."""
    plain = text if specifiers else text.replace("%", "%%")
    plain = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{plain}"' if any(character in plain for character in " '\"\\;") else plain
