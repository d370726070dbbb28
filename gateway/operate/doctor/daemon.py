"""The gateway that runs on this state folder, if one does: how it is, and whether it is this one."""

import asyncio
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version

import httpx2
import msgspec

from gateway.http.app import Readiness
from gateway.operate.doctor.context import DoctorContext
from gateway.process.control_socket import socket_path
from sessions.values.finding import Finding, fail, ok, warn

SOCKET_FIX = "socket"
_TIMEOUT_SECONDS = 6.0
_REPORTED_ELSEWHERE = ("disk:",)


async def check_daemon(context: DoctorContext) -> Sequence[Finding]:
    """Say whether it runs, what troubles it, and what is left of one that does not."""
    seen = context.daemon
    if seen.running:
        return [*_running_findings(context), *await _read_problems(seen.url)]
    who = f" (process {seen.lock_holder})" if seen.lock_holder else ""
    if seen.problem:
        return [
            fail(
                "gateway",
                f"{seen.problem}{who}",
                "Look into its log; if it hangs, end that process and start it again.",
            )
        ]
    if seen.lock_held:
        return [
            warn(
                "gateway",
                f"another Holdfast holds {context.home}{who} and cannot be asked: it starts or ends",
                "Run this again in a minute; if it stays so, look into its log.",
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
    return [ok("gateway", f"none runs on {context.home}; start it with: holdfast run")]


def remove_stale_socket(context: DoctorContext) -> Iterator[tuple[bool, str]]:
    """Remove the socket that nobody listens to."""
    path = socket_path(context.home, context.environ)
    try:
        path.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        yield False, f"{path} stays: {error.strerror}"
    else:
        yield True, f"removed {path}"


def _has_stale_socket(context: DoctorContext) -> bool:
    return socket_path(context.home, context.environ).is_socket()


def _running_findings(context: DoctorContext) -> Iterator[Finding]:
    status = context.daemon.status
    turns = status.get("running", 0)
    busy = f", {turns} turn{'' if turns == 1 else 's'} under way" if turns else ""
    yield ok(
        "gateway", f"{status.get('state', 'running')} at {context.daemon.url or 'no port'}{busy}"
    )
    if safe := status.get("safe_mode"):
        yield warn(
            "safe mode",
            str(safe),
            "Look into its log for why it crashed; a restart ends safe mode once that is mended.",
        )
    its, ours = status.get("version"), _installed_version()
    if its and ours and its != ours:
        yield warn(
            "version",
            f"version {its} runs, and {ours} is installed",
            "Restart it when it suits: `holdfast service restart`, or stop it and run it again.",
        )


def _installed_version() -> str:
    try:
        return version("holdfast")
    except PackageNotFoundError:
        return ""


async def _read_problems(url: str) -> Sequence[Finding]:
    """What `/readyz` names."""
    if not url:
        return []
    try:
        async with httpx2.AsyncClient(timeout=_TIMEOUT_SECONDS, trust_env=False) as client:
            answer = await client.get(f"{url.rstrip('/')}/readyz")
        told = msgspec.json.decode(answer.content, type=Readiness)
    except (httpx2.HTTPError, msgspec.DecodeError) as error:
        what = str(error) or type(error).__name__
        again = "Look into its log; restart it if it stays so."
        return [fail("gateway", f"its HTTP port does not answer: {what}", again)]
    return [
        _problem_finding(each)
        for each in told.not_ready
        if not each.startswith(_REPORTED_ELSEWHERE)
    ]


def _problem_finding(text: str) -> Finding:
    what, _, why = text.partition(": ")
    if what == "gateway":
        return warn(what, why, "Wait until it has stopped.")
    return fail(what, why, "See what is said of this elsewhere here, and its log.")
