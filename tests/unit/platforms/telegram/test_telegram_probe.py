"""What is found out about a bot of Telegram without connecting it."""

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
from tests.fakes.telegram.server import TOKEN, TelegramServer, serving
from tests.fakes.telegram.stage import config, telegram

WEBHOOK = "https://elsewhere.example/very-secret-path"
OURS = "https://bot.example.org/telegram"


def of(findings: tuple[Finding, ...], subject: str) -> list[Finding]:
    return [each for each in findings if each.subject == subject]


def elsewhere(url: str) -> TelegramConfig:
    return TelegramConfig(token=Secret(TOKEN), base_url=url)


async def asked(server: TelegramServer, *, alone: bool = False, **more: Any) -> Any:
    assert SPEC.probe
    return await SPEC.probe(config(server, **more), alone=alone)


async def test_a_bot_that_works_is_named_and_nothing_is_wrong(server: TelegramServer) -> None:
    found = await asked(server)
    assert (found.name, found.handle) == ("Holdfast", "@holdfast_bot")
    assert found.link == "https://t.me/holdfast_bot"
    assert {each.level for each in found.findings} == {"ok"}
    assert {call.method for call in server.calls} == {"getMe", "getWebhookInfo"}


async def test_a_refused_token_and_a_wrong_address_are_told_apart(server: TelegramServer) -> None:
    server.token_works = False
    with pytest.raises(Unauthorized, match="does not accept the token"):
        await asked(server)
    server.token_works = True
    with pytest.raises(Unauthorized, match="no such bot at this address"):
        await probe(elsewhere(f"{server.url}/elsewhere"))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        pytest.param(failed(502, "Bad Gateway"), "Telegram has failed", id="it is down"),
        pytest.param(too_many(7), "wait 7 s", id="it has had enough of us"),
    ],
)
async def test_what_telegram_says_of_itself_is_told(
    server: TelegramServer, fault: Any, words: str
) -> None:
    server.fail("getMe", fault)
    with pytest.raises(Unavailable, match=words):
        await asked(server)


async def test_it_waits_for_no_answer_longer_than_told(server: TelegramServer) -> None:
    gate = asyncio.Event()
    server.fail("getMe", hanging(gate))
    with pytest.raises(Unavailable, match=r"did not answer within 0\.1 s"):
        await probe(config(server), seconds=0.1)
    gate.set()


async def test_where_nothing_listens_the_reason_is_told_and_the_token_is_not() -> None:
    async with serving() as server:
        gone = config(server)
    with pytest.raises(Unavailable, match="connection was refused") as refused:
        await probe(gone)
    assert gone.token.reveal() not in str(refused.value)


async def test_a_certificate_that_is_not_trusted_is_told(tmp_path: Path) -> None:
    theirs, _ = certified(tmp_path, "127.0.0.1")
    listening = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=theirs
    )
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        with pytest.raises(Unavailable, match="certificate is not trusted"):
            await probe(elsewhere(f"https://127.0.0.1:{port}"))


async def test_privacy_mode_is_wrong_only_where_all_messages_are_wanted(
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


async def test_a_webhook_left_over_is_found_without_its_secret_path_and_removed(
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
        assert len(server._updates) == 1  # what waited is still there


async def test_the_webhook_that_is_wanted_is_never_removed(server: TelegramServer) -> None:
    server.webhook = {"url": OURS}
    wanted = config(server, mode="webhook", webhook_url=OURS)
    with pytest.raises(Unavailable):
        await mend(wanted, REMOVE_WEBHOOK)
    with pytest.raises(Unavailable):
        await mend(config(server), "something else")
    assert server.webhook


async def test_in_webhook_mode_it_is_the_address_that_counts(server: TelegramServer) -> None:
    def levels(found: Any) -> list[str]:
        return [each.level for each in of(found.findings, "webhook")]

    wanted: dict[str, Any] = {"mode": "webhook", "webhook_url": OURS}
    assert levels(await asked(server, **wanted)) == ["ok"]  # none yet
    server.webhook = {"url": WEBHOOK}
    assert levels(await asked(server, **wanted)) == ["warn"]
    server.webhook = {"url": OURS}
    assert levels(await asked(server, **wanted)) == ["ok"]
    server.complaint = "Wrong response from the webhook: 502 Bad Gateway"
    assert levels(await asked(server, **wanted)) == ["ok"]  # long ago
    server.complained_at = SystemClock().now() // 1000 - 60
    server.say(1001, "waits")
    found = of((await asked(server, **wanted)).findings, "webhook")
    assert [each.level for each in found] == ["ok", "warn"]
    assert "502 Bad Gateway; 1 wait" in found[1].text


async def test_another_program_is_found_by_asking_only_when_nothing_of_ours_runs(
    server: TelegramServer,
) -> None:
    async def other() -> None:
        async with telegram(server) as adapter:
            await adapter.run(Inbox(), lambda: None)

    async with asyncio.TaskGroup() as group:
        rival = group.create_task(other())
        await server.until(lambda: bool(server._polls))
        assert not of((await asked(server)).findings, "other programs")
        assert server.violations == []  # nobody was disturbed
        (found,) = of((await asked(server, alone=True)).findings, "other programs")
        rival.cancel()
    assert found.level == "fail"
    assert "another program" in found.text
    assert set(server.violations) == {"two programs ask for updates"}
    server.violations.clear()


async def test_who_is_alone_acknowledges_nothing_by_looking(server: TelegramServer) -> None:
    found = await probe(config(server), alone=True, conflict_poll_seconds=1)
    (quiet,) = of(found.findings, "other programs")
    assert quiet.level == "ok"
    server.say(1001, "first")
    server.say(1001, "second")
    (unknown,) = of((await asked(server, alone=True)).findings, "other programs")
    assert "2 messages wait" in unknown.text
    assert len(server._updates) == 2
    asking = [call.given for call in server.calls if call.method == "getUpdates"]
    assert all("offset" not in each and "allowed_updates" not in each for each in asking)


async def test_a_failure_while_looking_for_others_is_no_other_program(
    server: TelegramServer,
) -> None:
    server.fail("getUpdates", failed(502, "Bad Gateway"))
    with pytest.raises(Unavailable, match="Telegram has failed"):
        await asked(server, alone=True)
