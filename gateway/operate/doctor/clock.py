"""The system clock: a wrong clock invalidates signatures and falsifies message times."""

from collections.abc import Iterator, Sequence
from email.utils import parsedate_to_datetime
from http import HTTPStatus

import httpx2

from agent.providers.transport.connections import tls_context
from gateway.operate.doctor.context import DoctorContext
from sessions.values.finding import Finding, fail, ok, warn
from sessions.values.text import format_span
from sessions.values.unreached import describe_network_error

_WARN_SKEW_SECONDS, _FAIL_SKEW_SECONDS = 30.0, 300.0
"""Clock differences in seconds; beyond the second one Slack's signed requests are refused."""

_TIMEOUT_SECONDS = 6.0
_SET_CLOCK_HINT = "Set this machine's clock and keep it synchronized: `timedatectl set-ntp true`."
_OFFICIAL_URLS = {
    "openai": "https://api.openai.com",
    "openai-responses": "https://api.openai.com",
    "anthropic": "https://api.anthropic.com",
}


async def check_clock(context: DoctorContext) -> Sequence[Finding]:
    """Compare the clock with the `Date` header of the first configured service that sends one."""
    reasons = []
    async with httpx2.AsyncClient(verify=tls_context(), timeout=_TIMEOUT_SECONDS) as client:
        for url in _service_urls(context):
            before = context.clock.now()
            try:
                answer = await client.head(url, follow_redirects=False)
            except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                reasons.append(describe_network_error(error) or type(error).__name__)
                continue
            after = context.clock.now()
            server_time = _read_server_time(answer)
            host = httpx2.URL(url).host
            if server_time is not None:
                return [skew_finding(_clock_skew(server_time, before, after), host)]
            reasons.append(f"{host} does not send the time")
    why = f" ({reasons[0]})" if reasons else ": no service to compare with is configured"
    return [ok("clock", f"not compared{why}")]


def _service_urls(context: DoctorContext) -> Iterator[str]:
    """Yield the root URLs of configured services; HEAD on them has no effect and needs no key."""
    settings = context.settings
    model = settings.model
    found = [getattr(config, "base_url", "") for config in settings.platforms.values()]
    found += [model.base_url or _OFFICIAL_URLS.get(model.provider, "")]
    for url in found:
        if url:
            yield str(httpx2.URL(url).copy_with(raw_path=b"/"))


def _read_server_time(answer: httpx2.Response) -> float | None:
    """Return the response's `Date` in milliseconds; None if missing, or old because cached."""
    if answer.status_code == HTTPStatus.BAD_GATEWAY or "age" in answer.headers:
        return None
    try:
        return parsedate_to_datetime(answer.headers.get("date", "")).timestamp() * 1000
    except (ValueError, TypeError):
        return None


def _clock_skew(server_time: float, before: int, after: int) -> float:
    """Return the smallest possible difference in seconds: `Date` has a resolution of one second."""
    if after < server_time:
        return (after - server_time) / 1000
    return max((before - server_time - 1000) / 1000, 0.0)


def skew_finding(skew_seconds: float, host: str) -> Finding:
    """Return the finding for a clock that differs by `skew_seconds`."""
    size = abs(skew_seconds)
    if size < _WARN_SKEW_SECONDS:
        return ok("clock", f"agrees with {host}")
    way = "ahead of" if skew_seconds > 0 else "behind"
    text = f"this machine's clock is {format_span(size)} {way} {host}'s"
    if size < _FAIL_SKEW_SECONDS:
        return warn("clock", text, _SET_CLOCK_HINT)
    return fail("clock", f"{text}; signed requests, such as Slack's, are refused", _SET_CLOCK_HINT)
