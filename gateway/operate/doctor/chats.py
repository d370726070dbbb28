"""The chat platforms: each platform's own probe checks whether the bot can work."""

from collections.abc import Iterator, Sequence

from gateway.operate.doctor.check import REMOTE_TIMEOUT_SECONDS, Check
from gateway.operate.doctor.context import DoctorContext
from platforms.core.contract import PlatformSpec
from platforms.core.errors import PlatformError, Unauthorized, Unavailable
from sessions.values.finding import Finding, fail, ok, warn

_NETWORK_HINT = "Check this machine's network, any proxy or firewall, and the service's status."


def platform_checks(context: DoctorContext) -> Iterator[Check]:
    """Yield a check for each configured platform that has a probe."""
    configured = [
        context.specs[name] for name in context.settings.platforms if name in context.specs
    ]
    asked = [spec for spec in configured if spec.probe is not None]
    for spec in asked:
        yield Check(spec.name, _PlatformCheck(spec).run, REMOTE_TIMEOUT_SECONDS, needs_network=True)
    if not asked:
        yield Check("platforms", _check_no_platform, works_without_config=False)


async def _check_no_platform(context: DoctorContext) -> Sequence[Finding]:
    ways = [
        " and ".join(spec.secrets.values())
        for _, spec in sorted(context.specs.items())
        if spec.probe and spec.secrets
    ]
    hint = f"; to add one set {', '.join(ways)}" if ways else ""
    return [ok("platforms", f"none configured, only the page and the terminal{hint}")]


class _PlatformCheck:
    """Check of one platform."""

    def __init__(self, spec: PlatformSpec) -> None:
        self._spec = spec

    async def run(self, context: DoctorContext) -> Sequence[Finding]:
        """Run the platform's probe; the link to the bot becomes a finding."""
        assert self._spec.probe  # noqa: S101 - see `platform_checks`
        config = context.settings.platforms[self._spec.name]
        try:
            probed = await self._spec.probe(config, alone=not context.daemon.may_be_running)
        except Unauthorized as error:
            places = [f"platforms.{self._spec.name}.{key}" for key in self._spec.secrets]
            variables = ", ".join(self._spec.secrets.values())
            return [
                fail(
                    "token",
                    str(error),
                    f"Set a valid token in {' or '.join(places)} ({variables}).",
                )
            ]
        except Unavailable as error:
            if error.retry_after is not None:
                again = f"Run this again in {error.retry_after:g} s."
                return [warn("service", str(error), again)]
            return [fail("service", str(error), _NETWORK_HINT)]
        except PlatformError as error:
            return [fail("service", str(error), _NETWORK_HINT)]
        reached = [ok("link", probed.link)] if probed.link else []
        return [*probed.findings, *reached]
