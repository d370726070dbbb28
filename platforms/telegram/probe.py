"""Probe of the bot account: token, group privacy mode, webhook and competing pollers."""

import contextlib
from collections.abc import AsyncIterator, Iterator

from telegram import Bot, User, WebhookInfo
from telegram.error import Conflict

from platforms.core.asking import host_of, probe_session
from platforms.core.errors import Unavailable
from platforms.core.probed import Finding, ProbeResult
from platforms.telegram.config import TelegramConfig
from platforms.telegram.errors import translate_errors
from platforms.telegram.http import AiohttpRequest, create_ssl_context
from sessions.values.clock import Clock, SystemClock, rfc3339
from sessions.values.finding import fail, ok, warn

_TIMEOUT_SECONDS = 8.0
"""Limit for all calls of the probe together."""

_CONFLICT_POLL_SECONDS = 5
"""Duration of the test poll; another program's next poll ends the test poll with a conflict."""

_RECENT_MS = 3_600_000  # delivery errors older than this are not reported
REMOVE_WEBHOOK = "telegram: remove the webhook"


async def probe(
    config: TelegramConfig,
    *,
    alone: bool = False,
    clock: Clock | None = None,
    seconds: float = _TIMEOUT_SECONDS,
    conflict_poll_seconds: int = _CONFLICT_POLL_SECONDS,
) -> ProbeResult:
    """See `Probe`."""
    clock = clock or SystemClock()
    async with _open_bot(config, clock, seconds) as bot:
        me = await bot.get_me()
        webhook = await bot.get_webhook_info()
    findings = [
        _token_finding(me),
        _groups_finding(me, config),
        *_webhook_findings(webhook, config, clock.now()),
    ]
    if alone and config.mode == "polling" and not webhook.url:
        waiting = webhook.pending_update_count
        findings.append(
            await _check_competing_poller(config, clock, waiting, seconds, conflict_poll_seconds)
        )
    handle = f"@{me.username}"
    return ProbeResult(me.full_name, handle, f"https://t.me/{me.username}", tuple(findings))


async def mend(
    config: TelegramConfig,
    mend: str,
    *,
    clock: Clock | None = None,
    seconds: float = _TIMEOUT_SECONDS,
) -> str:
    """See `FixFunction`."""
    if mend != REMOVE_WEBHOOK or config.mode != "polling":
        msg = f"unknown fix {mend!r}"
        raise Unavailable(msg)
    async with _open_bot(config, clock or SystemClock(), seconds) as bot:
        await bot.delete_webhook(drop_pending_updates=False)
    return "removed the webhook; pending messages now arrive by polling"


@contextlib.asynccontextmanager
async def _open_bot(config: TelegramConfig, clock: Clock, seconds: float) -> AsyncIterator[Bot]:
    """Yield the library's bot for a block of calls, and close its connections afterwards."""
    base = config.base_url.rstrip("/")
    connections = AiohttpRequest(create_ssl_context(base), clock.monotonic)
    bot = Bot(
        config.token.reveal(),
        base_url=f"{base}/bot",
        request=connections,
        get_updates_request=connections,
    )
    try:
        async with probe_session("Telegram", base, seconds):
            with translate_errors():
                yield bot
    finally:
        await connections.shutdown()


# --- findings ------------------------------------------------------------------------------------


def _token_finding(me: User) -> Finding:
    return ok("token", f"Telegram knows the bot as {me.full_name} (@{me.username})")


def _groups_finding(me: User, config: TelegramConfig) -> Finding:
    if not me.can_join_groups:
        return ok("groups", "the bot cannot be added to groups (@BotFather, /setjoingroups)")
    if me.can_read_all_group_messages:
        return ok("groups", "the bot sees all messages of its groups (privacy mode is off)")
    if config.require_mention:
        return ok(
            "groups", "in groups the bot sees only messages addressed to it (privacy mode is on)"
        )
    return warn(
        "groups",
        "privacy mode is on, so Telegram shows the bot only commands, mentions and replies, but "
        "platforms.telegram.require_mention = false needs all messages of a group",
        "Send /setprivacy to @BotFather, choose the bot and Disable, then remove it from its "
        "groups and add it again.",
    )


def _webhook_findings(info: WebhookInfo, config: TelegramConfig, now: int) -> Iterator[Finding]:
    shown = host_of(info.url) if info.url else ""  # the URL's path may contain a secret
    if config.mode == "polling":
        if info.url:
            yield fail(
                "webhook",
                f"Telegram sends this bot's messages to a webhook at {shown}, so polling gets none",
                "Run `holdfast doctor --fix` to remove the webhook (the program behind it then "
                'gets no messages), or set platforms.telegram.mode = "webhook".',
                mend=REMOVE_WEBHOOK,
            )
        else:
            yield ok("webhook", "none is set, as polling requires")
        return
    if not info.url:
        yield ok("webhook", "none is set yet; `holdfast run` sets one")
    elif info.url != config.webhook_url:
        yield warn(
            "webhook",
            f"Telegram sends this bot's messages to another address, at {shown}",
            "Start Holdfast, which sets platforms.telegram.webhook_url; if another program then "
            "sets its own webhook again, give one of the two programs a bot of its own.",
        )
    else:
        yield ok("webhook", f"Telegram sends messages to {shown}")
    at = info.last_error_date
    if info.url == config.webhook_url and at and now - at.timestamp() * 1000 < _RECENT_MS:
        moment = rfc3339(int(at.timestamp() * 1000))[:19]
        yield warn(
            "webhook",
            f"Telegram could not deliver at {moment} UTC: {info.last_error_message}; "
            f"pending updates: {info.pending_update_count}",
            "Make sure that platforms.telegram.webhook_url is reachable from the internet, has a "
            "valid certificate and leads to Holdfast's HTTP port.",
        )


async def _check_competing_poller(
    config: TelegramConfig, clock: Clock, waiting: int, seconds: float, conflict_poll_seconds: int
) -> Finding:
    """Poll once to detect another poller, without acknowledging updates or changing settings.

    With pending updates the poll returns at once and cannot detect a conflict, so it is skipped.
    """
    if waiting:
        return ok("other programs", f"not checked while messages are pending ({waiting})")
    try:
        async with _open_bot(config, clock, seconds + conflict_poll_seconds) as bot:
            await bot.get_updates(limit=1, timeout=conflict_poll_seconds)
    except Unavailable as error:
        if _is_conflict(error):
            return fail(
                "other programs",
                "another program receives this bot's messages, and each message reaches only one "
                "of the two",
                "Stop the other program, or create a separate bot for it with @BotFather.",
            )
        raise
    return ok(
        "other programs", f"none polled for this bot's messages within {conflict_poll_seconds} s"
    )


def _is_conflict(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, Conflict):
            return True
        error = error.__cause__
    return False
