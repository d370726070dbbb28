"""Spending: a paid model without a daily limit."""

from collections.abc import Callable, Iterable, Sequence
from urllib.parse import urlsplit

from gateway.config.unsupported import is_unsupported
from gateway.operate.doctor.context import DoctorContext
from gateway.settings import Settings
from sessions.values.finding import Finding, ok, warn
from sessions.values.loopback import is_loopback

_LIMIT_KEYS = ("usd_per_day", "tokens_per_day")


async def check_spending(context: DoctorContext) -> Sequence[Finding]:
    """Check that a paid model has a daily limit."""
    return _limit_findings(context.settings, is_unsupported)


def _limit_findings(
    settings: Settings, is_unsupported: Callable[[Iterable[str | int]], bool]
) -> list[Finding]:
    known = [key for key in _LIMIT_KEYS if not is_unsupported(("limits", key))]
    if not known or not is_paid(settings):
        return []
    limits = settings.limits
    tables = [limits, getattr(limits, "all", None), *limits.users.values()]
    if any(getattr(table, key, None) is not None for table in tables for key in known):
        return [ok("limits", "a daily limit is set")]
    return [
        warn(
            "limits",
            f"{settings.model.name or 'the model'} costs money, and no daily limit is set",
            f"Set limits.{known[0]}, a limit per person.",
        )
    ]


def is_paid(settings: Settings) -> bool:
    """Return True if a configured model probably costs money: needs a key and is not local."""
    targets = (settings.model, *settings.model.fallback)
    return any(
        target.provider != "demo"
        and target.api_key is not None
        and not (target.base_url and is_loopback(urlsplit(target.base_url).hostname or ""))
        for target in targets
    )
