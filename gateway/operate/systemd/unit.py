"""Sans-IO: the text of the unit file that systemd runs Holdfast by.

Every key is known to systemd 252 (Debian 12); what is newer is written only for a newer one, since
an unknown key is a warning at each start.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from gateway.settings import max_stop_seconds

UNIT_NAME = "holdfast.service"


MIN_SYSTEMD_VERSION = 252
_RESTART_STEPS_VERSION = 254  # knows RestartSteps=

_PRIVILEGED_PORTS = 1024
_HEADER = """\
# Written by `holdfast service install`, which writes it anew. Changes of your own belong into a
# drop-in, which stays: `systemctl {manager}edit holdfast`.
"""


class ServiceUnit(Struct, frozen=True, kw_only=True):
    """What the text depends on."""

    program: Path = Path("/opt/holdfast/bin/holdfast")
    config: Path | None = None
    """A configuration that is not found by itself."""
    home: Path | None = None
    """A state folder that is not the usual one; only for the service of a user."""
    drain_seconds: float = 60.0
    uses_sandbox: bool = False
    """Whether commands run in one of bubblewrap, which needs namespaces."""
    port: int = 8420
    writable_folders: tuple[Path, ...] = ()
    """Folders besides the state folder that it writes to."""
    hidden_folders: tuple[Path, ...] = ()
    """Folders of the program that lie where a service of the machine sees nothing: in a home."""
    systemd_version: int = MIN_SYSTEMD_VERSION


def render_system_unit(unit: ServiceUnit) -> str:
    """The service of the machine: a user of its own, and hardly anything of the machine in view."""
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
    """The service of one user: what a user's manager can enforce without help of the kernel's root.

    Walls around the file system would need namespaces, which many machines do not give to users.
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
    ("StartLimitIntervalSec", "0"),  # it never gives up: what stands in the way may be mended
)

_LIMITS = (
    ("MemoryHigh", "1G"),
    ("MemoryMax", "2G"),
    ("OOMPolicy", "continue"),  # a tool that takes too much dies alone
    ("TasksMax", "1024"),
    ("LimitNOFILE", "65536"),
)


def _service_keys(unit: ServiceUnit) -> Iterator[tuple[str, str]]:
    words = [_quote(str(unit.program)), "run"]
    if unit.config:
        words += ["--config", _quote(str(unit.config).replace("$", "$$"))]  # no variable
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
    yield "KillMode", "mixed"  # it stops its tools by itself; what is left in the end is killed


def _user_keys(unit: ServiceUnit) -> Iterator[tuple[str, str]]:
    yield "DynamicUser", "yes"
    yield "User", "holdfast"
    yield "StateDirectory", "holdfast"
    yield "StateDirectoryMode", "0700"
    yield "UMask", "0077"
    # For servers of tools: their caches and files need a place that can be written.
    yield "Environment", _quote("HOME=%S/holdfast", specifiers=True)
    yield "LoadCredential", "holdfast:/etc/holdfast/credentials"
    for folder in unit.writable_folders:
        yield "ReadWritePaths", _quote(f"-{folder}")
    port = "CAP_NET_BIND_SERVICE" if 0 < unit.port < _PRIVILEGED_PORTS else ""
    yield "CapabilityBoundingSet", port
    yield "AmbientCapabilities", port
    if not port:  # or the capability would count for nothing
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
        # These take folders of /proc away, and a kernel gives a sandbox a /proc of its own only
        # to who could see all of it before.
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
    # Not MemoryDenyWriteExecute=: servers of tools that compile while they run, such as Node,
    # would die of it.
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
    """One word of a value: systemd gives blanks, quotes and `%` a meaning of their own."""
    plain = text if specifiers else text.replace("%", "%%")
    plain = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{plain}"' if any(each in plain for each in " '\"\\;") else plain
