"""The configuration: what is wrong with it, what is odd, and what was probably misspelt."""

import difflib
from collections.abc import Iterator, Sequence

from agent.settings import SERVICES
from gateway.operate.doctor.context import Case
from platforms.core.registry import known_names
from sessions.values.finding import Finding, fail, ok, warn

_CLOSE = 0.8
_CHMOD = "; run: "


async def configuration(case: Case) -> Sequence[Finding]:
    """Say what reading it says."""
    if case.loaded is None:
        again = "Correct this, then look again with `holdfast config check`."
        return [fail("setting", problem, again) for problem in case.problems]
    where = str(case.path) if case.path else "there is no file: all defaults"
    return [ok("file", where), *_warnings(case.loaded.warnings)]


def _warnings(warnings: Sequence[str]) -> Iterator[Finding]:
    mendable: dict[str, list[str]] = {}
    for text in warnings:
        what, told, command = text.partition(_CHMOD)
        if told:
            mendable.setdefault(command, []).append(what)
        else:
            yield warn("setting", what, "Correct this, or remove it.")
    for command, (first, *others) in mendable.items():
        more = f", and {len(others)} more there" if others else ""
        fix = f"Run `{command}`, or `holdfast doctor --fix`."
        yield warn("secret", first + more, fix, mend="modes")


async def environment_names(case: Case) -> Sequence[Finding]:
    """Find variables that look like ours and are not: they would be passed over in silence."""
    return [*_misspelt(case), *_not_installed(case)]


def _misspelt(case: Case) -> Iterator[Finding]:
    known = {name for spec in case.specs.values() for name in spec.secrets.values()}
    known |= {service.key_variable for service in SERVICES.values() if service.key_variable}
    known |= {service.url_variable for service in SERVICES.values() if service.url_variable}
    families = {name.partition("_")[0] for name in known}
    for name in sorted(case.environ):
        if name in known or name.partition("_")[0] not in families or not case.environ[name]:
            continue
        near = difflib.get_close_matches(name, known, 1, _CLOSE)
        if near and not case.environ.get(near[0]):
            yield warn(
                "environment",
                f"{name} is set, and nothing reads it",
                f"Set {near[0]}, if that is what was meant.",
            )


def _not_installed(case: Case) -> Iterator[Finding]:
    for platform in known_names():
        if platform in case.specs:
            continue
        for name in sorted(case.environ):
            if name.startswith(f"{platform.upper()}_") and name.endswith("TOKEN"):
                yield warn(
                    "environment",
                    f"{name} is set, but what speaks to {platform} is not installed",
                    f"Install holdfast[{platform}].",
                )
