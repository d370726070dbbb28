"""`--fix`: puts right what can be put right without asking, and says what it did."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

from gateway.operate.doctor import daemon, permissions
from gateway.operate.doctor.context import Case
from gateway.operate.doctor.found import Group
from gateway.operate.doctor.report import MENDED
from platforms.core.errors import PlatformError
from sessions.values.finding import Finding, ok, warn

Mend = Callable[[Case], Iterator[tuple[bool, str]]]
"""Does it; tells of each thing whether it was done, and what."""

HERE: Mapping[str, Mend] = {permissions.MEND: permissions.mend, daemon.MEND: daemon.mend}


async def mended(groups: Sequence[Group], case: Case) -> Group:
    """Do all that was found to be mendable, each once."""
    told: list[tuple[bool, str]] = []
    wanted = {each.mend: group.name for group in groups for each in group.findings if each.mend}
    for mend, group in wanted.items():
        if mend in HERE:
            told += await asyncio.to_thread(_all_of, HERE[mend], case)
        else:
            told.append(await _at_platform(group, mend, case))
    return Group(MENDED, tuple(_as_finding(done, text) for done, text in told))


def _all_of(mend: Mend, case: Case) -> list[tuple[bool, str]]:
    return list(mend(case))


def _as_finding(done: bool, text: str) -> Finding:
    if done:
        return ok("mended", text)
    return warn("not mended", text, "Do by hand what is said of it below.")


async def _at_platform(name: str, mend: str, case: Case) -> tuple[bool, str]:
    spec = case.specs[name]
    if spec.mend is None:
        return False, f"{name}: nothing is known about {mend}"
    try:
        said = await spec.mend(case.settings.platforms[name], mend)
    except PlatformError as error:
        return False, f"{name}: {error}"
    return True, f"{name}: {said}"
