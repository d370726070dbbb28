"""The gateway on this state folder: running or not, version, and problems."""

import asyncio
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version

import httpx2
import msgspec

from gateway.http.app import Readiness
from gateway.operate.doctor.context import DoctorContext
from gateway.process.control_socket import socket_path
from sessions.values.exceptions import error_text
from sessions.values.finding import Finding, fail, ok, warn

SOCKET_FIX = "socket"
_TIMEOUT_SECONDS = 6.0
_REPORTED_ELSEWHERE = ("disk:",)


async def check_daemon(context: DoctorContext) -> Sequence[Finding]:
    """Check the running gateway, or look for remains of one that was killed."""
    daemon = context.daemon
    if daemon.running:
        return [*_running_findings(context), *await _read_problems(daemon.url)]
    who = f" (process {daemon.lock_holder})" if daemon.lock_holder else ""
    if daemon.problem:
        return [
            fail(
                "gateway",
                f"{daemon.problem}{who}",
                "See its log. If the process hangs, end it and start Holdfast again.",
            )
        ]
    if daemon.lock_held:
        return [
            warn(
                "gateway",
                f"another Holdfast{who} has locked {context.home} and does not answer yet: it is starting "
                "or stopping",
                "Run this again in a minute. If nothing changes, see its log.",
            )
        ]
    if await asyncio.to_thread(_has_stale_socket, context):
        return [
            warn(
                "socket",
                f"a gateway that was killed left {socket_path(context.home, context.environ)} behind",
                "Start Holdfast, which removes it, or run `holdfast doctor --fix`.",
                mend=SOCKET_FIX,
            )
        ]
    return [ok("gateway", f"not running on {context.home}; start it with: holdfast run")]


def remove_stale_socket(context: DoctorContext) -> Iterator[tuple[bool, str]]:
    """Remove a control socket that has no listener."""
    path = socket_path(context.home, context.environ)
    try:
        path.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        yield False, f"{path} could not be removed: {error.strerror}"
    else:
        yield True, f"removed {path}"


def _has_stale_socket(context: DoctorContext) -> bool:
    return socket_path(context.home, context.environ).is_socket()


def _running_findings(context: DoctorContext) -> Iterator[Finding]:
    status = context.daemon.status
    turns = status.get("running", 0)
    busy = f", {turns} turn{'' if turns == 1 else 's'} running" if turns else ""
    yield ok(
        "gateway", f"{status.get('state', 'running')} at {context.daemon.url or 'no port'}{busy}"
    )
    if safe := status.get("safe_mode"):
        yield warn(
            "safe mode",
            str(safe),
            "See its log for the cause of the crashes. Once it is fixed, a restart ends safe mode.",
        )
    for name, problem in status.get("degraded", {}).items():
        yield warn(name, str(problem), "Check its settings and its service; see the log.")
    running, installed = status.get("version"), _installed_version()
    if running and installed and running != installed:
        yield warn(
            "version",
            f"version {running} is running, but {installed} is installed",
            "Restart at a convenient time: `holdfast service restart`, or stop it and run it again.",
        )


def _installed_version() -> str:
    try:
        return version("holdfast")
    except PackageNotFoundError:
        return ""


async def _read_problems(url: str) -> Sequence[Finding]:
    """Return a finding for each problem that `/readyz` names."""
    if not url:
        return []
    try:
        async with httpx2.AsyncClient(timeout=_TIMEOUT_SECONDS, trust_env=False) as client:
            answer = await client.get(f"{url.rstrip('/')}/readyz")
        readiness = msgspec.json.decode(answer.content, type=Readiness)
    except (httpx2.HTTPError, msgspec.DecodeError) as error:
        again = "See its log. If it keeps failing, restart Holdfast."
        return [fail("gateway", f"its HTTP port does not answer: {error_text(error)}", again)]
    return [
        _problem_finding(problem)
        for problem in readiness.not_ready
        if not problem.startswith(_REPORTED_ELSEWHERE)
    ]


def _problem_finding(text: str) -> Finding:
    what, _, why = text.partition(": ")
    if what == "gateway":
        return warn(what, why, "Wait until the gateway has stopped.")
    return fail(what, why, "See the other findings about this, and the log.")
