"""Tests of the Telegram probe."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from platforms.core.errors import Unauthorized, Unavailable
from platforms.core.probed import Finding
from platforms.telegram import SPEC, TelegramConfig
from platforms.telegram.probe import REMOVE_WEBHOOK, mend, probe
from sessions.values.clock import SystemClock
from sessions.values.secret import Secret
from tests.fakes.certificates import certified
from tests.fakes.inbox import Inbox
from tests.fakes.telegram.faults import failed, hanging, too_many
from tests.fakes.telegram.kit import config, telegram
from tests.fakes.telegram.server import TOKEN, TelegramServer, serving

WEBHOOK = "https://elsewhere.example/very-secret-path"
OURS = "https://bot.example.org/telegram"


def of(findings: tuple[Finding, ...], subject: str) -> list[Finding]:
    return [each for each in findings if each.subject == subject]


def elsewhere(url: str) -> TelegramConfig:
    return TelegramConfig(token=Secret(TOKEN), base_url=url)


async def asked(server: TelegramServer, *, alone: bool = False, **more: Any) -> Any:
    assert SPEC.probe
    return await SPEC.probe(config(server, **more), alone=alone)


async def test_probe_of_a_working_bot_reports_its_name_and_no_problem(
    server: TelegramServer,
) -> None:
    found = await asked(server)
    assert (found.name, found.handle) == ("Holdfast", "@holdfast_bot")
    assert found.link == "https://t.me/holdfast_bot"
    assert {each.level for each in found.findings} == {"ok"}
    assert {call.method for call in server.calls} == {"getMe", "getWebhookInfo"}


async def test_a_refused_token_and_a_wrong_address_give_different_errors(
    server: TelegramServer,
) -> None:
    server.token_works = False
    with pytest.raises(Unauthorized, match="does not accept the token"):
        await asked(server)
    server.token_works = True
    with pytest.raises(Unauthorized, match="no such bot at this address"):
        await probe(elsewhere(f"{server.url}/elsewhere"))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        pytest.param(failed(502, "Bad Gateway"), "Telegram reported a failure", id="outage"),
        pytest.param(too_many(7), "wait 7 s", id="rate limit"),
    ],
)
async def test_an_error_of_telegram_is_reported(
    server: TelegramServer, fault: Any, words: str
) -> None:
    server.fail("getMe", fault)
    with pytest.raises(Unavailable, match=words):
        await asked(server)


async def test_probe_gives_up_after_its_time_limit(server: TelegramServer) -> None:
    gate = asyncio.Event()
    server.fail("getMe", hanging(gate))
    with pytest.raises(Unavailable, match=r"did not answer within 0\.1 s"):
        await probe(config(server), seconds=0.1)
    gate.set()


async def test_a_refused_connection_is_reported_without_the_token() -> None:
    async with serving() as server:
        gone = config(server)
    with pytest.raises(Unavailable, match="connection was refused") as refused:
        await probe(gone)
    assert gone.token.reveal() not in str(refused.value)


async def test_an_untrusted_certificate_is_reported(tmp_path: Path) -> None:
    theirs, _ = certified(tmp_path, "127.0.0.1")
    listening = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=theirs
    )
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        with pytest.raises(Unavailable, match="certificate is not trusted"):
            await probe(elsewhere(f"https://127.0.0.1:{port}"))


async def test_privacy_mode_is_a_problem_only_without_require_mention(
    server: TelegramServer,
) -> None:
    (quiet,) = of((await asked(server)).findings, "groups")
    (found,) = of((await asked(server, require_mention=False)).findings, "groups")
    assert (quiet.level, found.level) == ("ok", "warn")
    assert "/setprivacy" in found.fix
    server.reads_groups = True
    (found,) = of((await asked(server, require_mention=False)).findings, "groups")
    assert found.level == "ok"
    server.joins_groups = False
    (found,) = of((await asked(server)).findings, "groups")
    assert "cannot be added" in found.text


async def test_a_leftover_webhook_is_reported_by_host_and_can_be_removed(
    server: TelegramServer,
) -> None:
    server.webhook = {"url": WEBHOOK}
    server.say(1001, "hello")
    (found,) = of((await asked(server)).findings, "webhook")
    assert (found.level, found.mend) == ("fail", REMOVE_WEBHOOK)
    assert "elsewhere.example" in found.text
    assert "very-secret" not in found.text + found.fix
    assert SPEC.mend
    assert "removed" in await SPEC.mend(config(server), found.mend)
    (found,) = of((await asked(server)).findings, "webhook")
    assert found.level == "ok"
    async with telegram(server):
        assert len(server._updates) == 1  # the pending update is kept


async def test_the_configured_webhook_is_never_removed(server: TelegramServer) -> None:
    server.webhook = {"url": OURS}
    wanted = config(server, mode="webhook", webhook_url=OURS)
    with pytest.raises(Unavailable):
        await mend(wanted, REMOVE_WEBHOOK)
    with pytest.raises(Unavailable):
        await mend(config(server), "something else")
    assert server.webhook


async def test_in_webhook_mode_the_registered_address_must_match(server: TelegramServer) -> None:
    def levels(found: Any) -> list[str]:
        return [each.level for each in of(found.findings, "webhook")]

    wanted: dict[str, Any] = {"mode": "webhook", "webhook_url": OURS}
    assert levels(await asked(server, **wanted)) == ["ok"]  # no webhook is set yet
    server.webhook = {"url": WEBHOOK}
    assert levels(await asked(server, **wanted)) == ["warn"]
    server.webhook = {"url": OURS}
    assert levels(await asked(server, **wanted)) == ["ok"]
    server.complaint = "Wrong response from the webhook: 502 Bad Gateway"
    assert levels(await asked(server, **wanted)) == ["ok"]  # the delivery error is old
    server.complained_at = SystemClock().now() // 1000 - 60
    server.say(1001, "waits")
    found = of((await asked(server, **wanted)).findings, "webhook")
    assert [each.level for each in found] == ["ok", "warn"]
    assert "502 Bad Gateway; pending updates: 1" in found[1].text


async def test_a_competing_poller_is_detected_only_when_the_gateway_is_stopped(
    server: TelegramServer,
) -> None:
    async def other() -> None:
        async with telegram(server) as adapter:
            await adapter.run(Inbox(), lambda: None)

    async with asyncio.TaskGroup() as group:
        rival = group.create_task(other())
        await server.until(lambda: bool(server._polls))
        assert not of((await asked(server)).findings, "other programs")
        assert server.violations == []  # the other poller was not interrupted
        (found,) = of((await asked(server, alone=True)).findings, "other programs")
        rival.cancel()
    assert found.level == "fail"
    assert "another program" in found.text
    assert set(server.violations) == {"two programs ask for updates"}
    server.violations.clear()


async def test_checking_for_a_competing_poller_acknowledges_no_updates(
    server: TelegramServer,
) -> None:
    found = await probe(config(server), alone=True, conflict_poll_seconds=1)
    (quiet,) = of(found.findings, "other programs")
    assert quiet.level == "ok"
    server.say(1001, "first")
    server.say(1001, "second")
    (unknown,) = of((await asked(server, alone=True)).findings, "other programs")
    assert "pending (2)" in unknown.text
    assert len(server._updates) == 2
    asking = [call.given for call in server.calls if call.method == "getUpdates"]
    assert all("offset" not in each and "allowed_updates" not in each for each in asking)


async def test_an_outage_during_the_check_is_not_reported_as_a_competing_poller(
    server: TelegramServer,
) -> None:
    server.fail("getUpdates", failed(502, "Bad Gateway"))
    with pytest.raises(Unavailable, match="Telegram reported a failure"):
        await asked(server, alone=True)
