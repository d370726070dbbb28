"""The chat platforms: each is asked, by its own probe, whether the bot can work."""

from collections.abc import Iterator, Sequence

from gateway.operate.doctor.check import REMOTE_TIMEOUT_SECONDS, Check
from gateway.operate.doctor.context import DoctorContext
from platforms.core.contract import PlatformSpec
from platforms.core.errors import PlatformError, Unauthorized, Unavailable
from sessions.values.finding import Finding, fail, ok, warn


def platform_checks(context: DoctorContext) -> Iterator[Check]:
    """Give a check for each platform that is configured and can be asked."""
    configured = [
        context.specs[name] for name in context.settings.platforms if name in context.specs
    ]
    asked = [spec for spec in configured if spec.probe is not None]
    for spec in asked:
        yield Check(spec.name, _PlatformCheck(spec).run, REMOTE_TIMEOUT_SECONDS, needs_network=True)
    if not asked:
        yield Check("platforms", _check_no_platform, works_without_config=False)


async def _check_no_platform(context: DoctorContext) -> Sequence[Finding]:
    """Say how to add one."""
    ways = [
        " and ".join(spec.secrets.values())
        for _, spec in sorted(context.specs.items())
        if spec.probe and spec.secrets
    ]
    hint = f"; to add one set {', '.join(ways)}" if ways else ""
    return [ok("platforms", f"none configured: the page and the terminal only{hint}")]


class _PlatformCheck:
    """One platform."""

    def __init__(self, spec: PlatformSpec) -> None:
        self._spec = spec

    async def run(self, context: DoctorContext) -> Sequence[Finding]:
        """Ask it; the link to the bot stands beside its name."""
        assert self._spec.probe  # noqa: S101 - see `chats`
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
                    f"Put what works into {' or '.join(places)} ({variables}).",
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


_NETWORK_HINT = (
    "See to this machine's network, a proxy or firewall between, and the service itself."
)
