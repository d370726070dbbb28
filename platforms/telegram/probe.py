"""Asks Telegram whether the bot can work: its name, what it may read, who else gets its messages."""

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

TIMEOUT_SECONDS = 8.0
"""Until Telegram must have answered everything."""

CONFLICT_POLL_SECONDS = 5
"""For which a question for updates stays open: another program that asks ends it by asking again."""

_RECENT_MS = 3_600_000  # milliseconds: older complaints are history
REMOVE_WEBHOOK = "telegram: remove the webhook"


async def probe(
    config: TelegramConfig,
    *,
    alone: bool = False,
    clock: Clock | None = None,
    seconds: float = TIMEOUT_SECONDS,
    conflict_poll_seconds: int = CONFLICT_POLL_SECONDS,
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
    seconds: float = TIMEOUT_SECONDS,
) -> str:
    """See `FixFunction`."""
    if mend != REMOVE_WEBHOOK or config.mode != "polling":
        msg = f"nothing is known about {mend!r}"
        raise Unavailable(msg)
    async with _open_bot(config, clock or SystemClock(), seconds) as bot:
        await bot.delete_webhook(drop_pending_updates=False)
    return "removed the webhook; what was waiting there comes by polling now"


@contextlib.asynccontextmanager
async def _open_bot(config: TelegramConfig, clock: Clock, seconds: float) -> AsyncIterator[Bot]:
    """Give the library's bot over connections like the adapter's, for one block of questions."""
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


# --- what the answers mean -----------------------------------------------------------------------


def _token_finding(me: User) -> Finding:
    return ok("token", f"Telegram knows the bot as {me.full_name} (@{me.username})")


def _groups_finding(me: User, config: TelegramConfig) -> Finding:
    if not me.can_join_groups:
        return ok("groups", "the bot cannot be added to groups (@BotFather, /setjoingroups)")
    if me.can_read_all_group_messages:
        return ok("groups", "the bot sees all messages of its groups (privacy mode is off)")
    if config.require_mention:
        return ok("groups", "in groups the bot sees what is meant for it (privacy mode is on)")
    return warn(
        "groups",
        "privacy mode is on: Telegram shows the bot only commands, mentions and replies, although "
        "platforms.telegram.require_mention = false wants all messages of a group",
        "Send /setprivacy to @BotFather, choose the bot and Disable, then remove it from its "
        "groups and add it again.",
    )


def _webhook_findings(found: WebhookInfo, config: TelegramConfig, now: int) -> Iterator[Finding]:
    shown = host_of(found.url) if found.url else ""  # the rest of the address may be a secret
    if config.mode == "polling":
        if found.url:
            yield fail(
                "webhook",
                f"Telegram sends this bot's messages to a webhook at {shown}, so polling gets none",
                "Run `holdfast doctor --fix` to remove it (the program behind it then gets "
                'nothing), or set platforms.telegram.mode = "webhook".',
                mend=REMOVE_WEBHOOK,
            )
        else:
            yield ok("webhook", "none is set, as polling needs it")
        return
    if not found.url:
        yield ok("webhook", "none is set yet; `holdfast run` sets it")
    elif found.url != config.webhook_url:
        yield warn(
            "webhook",
            f"Telegram sends this bot's messages to another address, at {shown}",
            "Start Holdfast, which sets platforms.telegram.webhook_url; if another program sets "
            "its own again, give one of the two a bot of its own.",
        )
    else:
        yield ok("webhook", f"Telegram sends messages to {shown}")
    at = found.last_error_date
    if found.url == config.webhook_url and at and now - at.timestamp() * 1000 < _RECENT_MS:
        moment = rfc3339(int(at.timestamp() * 1000))[:19]
        yield warn(
            "webhook",
            f"Telegram could not deliver at {moment} UTC: {found.last_error_message}; "
            f"{found.pending_update_count} wait",
            "See that platforms.telegram.webhook_url is reached from outside with a valid "
            "certificate and leads to the HTTP port of Holdfast.",
        )


async def _check_competing_poller(
    config: TelegramConfig, clock: Clock, waiting: int, seconds: float, conflict_poll_seconds: int
) -> Finding:
    """Ask for updates and let the question stay open: acknowledges nothing, changes no setting.

    Telegram answers at once where something waits; then it cannot be known.
    """
    if waiting:
        return ok("other programs", f"not looked for: {waiting} messages wait to be fetched")
    try:
        async with _open_bot(config, clock, seconds + conflict_poll_seconds) as bot:
            await bot.get_updates(limit=1, timeout=conflict_poll_seconds)
    except Unavailable as error:
        if _is_conflict(error):
            return fail(
                "other programs",
                "another program receives this bot's messages, and each reaches only one of you",
                "Stop the other program, or make a bot of its own for it with @BotFather.",
            )
        raise
    return ok(
        "other programs", f"none asked for this bot's messages within {conflict_poll_seconds} s"
    )


def _is_conflict(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, Conflict):
            return True
        error = error.__cause__
    return False
