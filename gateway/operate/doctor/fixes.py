"""The automatic fixes behind `--fix`."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

from gateway.operate.doctor import daemon, permissions
from gateway.operate.doctor.context import DoctorContext
from gateway.operate.doctor.report import FIXED_GROUP, FindingGroup
from platforms.core.errors import PlatformError
from sessions.values.finding import Finding, ok, warn

FixFunction = Callable[[DoctorContext], Iterator[tuple[bool, str]]]
"""Applies a fix; yields for each item whether the fix worked, and a description."""

_LOCAL_FIXES: Mapping[str, FixFunction] = {
    permissions.PERMISSIONS_FIX: permissions.fix_permissions,
    daemon.SOCKET_FIX: daemon.remove_stale_socket,
}


async def apply_fixes(groups: Sequence[FindingGroup], context: DoctorContext) -> FindingGroup:
    """Apply each available fix once; return the results as a group of findings."""
    results: list[tuple[bool, str]] = []
    wanted = {
        finding.mend: group.name for group in groups for finding in group.findings if finding.mend
    }
    for mend, group in wanted.items():
        if mend in _LOCAL_FIXES:
            results += await asyncio.to_thread(_run_fix, _LOCAL_FIXES[mend], context)
        else:
            results.append(await _fix_on_platform(group, mend, context))
    return FindingGroup(FIXED_GROUP, tuple(_fix_finding(done, text) for done, text in results))


def _run_fix(fix: FixFunction, context: DoctorContext) -> list[tuple[bool, str]]:
    return list(fix(context))


def _fix_finding(done: bool, text: str) -> Finding:
    if done:
        return ok("mended", text)
    return warn("not mended", text, "Fix it by hand as described below.")


async def _fix_on_platform(name: str, mend: str, context: DoctorContext) -> tuple[bool, str]:
    spec = context.specs[name]
    if spec.mend is None:
        return False, f"{name}: there is no automatic fix for {mend}"
    try:
        result = await spec.mend(context.settings.platforms[name], mend)
    except PlatformError as error:
        return False, f"{name}: {error}"
    return True, f"{name}: {result}"
