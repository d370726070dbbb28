"""The configuration: errors, warnings, and environment variables that are probably misspelt."""

from collections.abc import Iterator, Sequence

from agent.settings import SERVICES
from gateway.config.own_address import own_address_problems
from gateway.operate.doctor.context import DoctorContext
from platforms.core.registry import known_names
from sessions.values.finding import Finding, fail, ok, warn
from sessions.values.spelling import similar_words

_SIMILARITY = 0.8
_CHMOD_HINT = "; run: "


async def check_configuration(context: DoctorContext) -> Sequence[Finding]:
    """Report the errors and warnings of loading the configuration."""
    loaded, problems = context.loaded, context.problems
    if loaded is not None:
        problems = tuple(own_address_problems(loaded))
    again = "Correct this, then run `holdfast config check`."
    refused = [fail("setting", problem, again) for problem in problems]
    if loaded is None:
        return refused
    where = str(context.config_path) if context.config_path else "no file, all defaults"
    return [ok("file", where), *refused, *_warning_findings(loaded.warnings)]


def _warning_findings(warnings: Sequence[str]) -> Iterator[Finding]:
    mendable: dict[str, list[str]] = {}
    for text in warnings:
        what, separator, command = text.partition(_CHMOD_HINT)
        if separator:
            mendable.setdefault(command, []).append(what)
        else:
            yield warn("setting", what, "Correct this, or remove it.")
    for command, (first, *others) in mendable.items():
        more = f", and {len(others)} more there" if others else ""
        fix = f"Run `{command}`, or `holdfast doctor --fix`."
        yield warn("secret", first + more, fix, mend="modes")


async def check_environment(context: DoctorContext) -> Sequence[Finding]:
    """Find variables that resemble Holdfast's own but are never read."""
    return [*_find_misspelt(context), *_find_not_installed(context)]


def _find_misspelt(context: DoctorContext) -> Iterator[Finding]:
    known = {name for spec in context.specs.values() for name in spec.secrets.values()}
    known |= {service.key_variable for service in SERVICES.values() if service.key_variable}
    known |= {service.url_variable for service in SERVICES.values() if service.url_variable}
    families = {name.partition("_")[0] for name in known}
    for name in sorted(context.environ):
        if name in known or name.partition("_")[0] not in families or not context.environ[name]:
            continue
        near = similar_words(name, known, most=1, min_similarity=_SIMILARITY)
        if near and not context.environ.get(near[0]):
            yield warn(
                "environment",
                f"{name} is set, but Holdfast does not read it",
                f"Set {near[0]}, if you meant that variable.",
            )


def _find_not_installed(context: DoctorContext) -> Iterator[Finding]:
    for platform in known_names():
        if platform in context.specs:
            continue
        for name in sorted(context.environ):
            if name.startswith(f"{platform.upper()}_") and name.endswith("TOKEN"):
                yield warn(
                    "environment",
                    f"{name} is set, but {platform} support is not installed",
                    f"Install holdfast[{platform}].",
                )
