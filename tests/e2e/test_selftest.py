"""`holdfast selftest`: its output for passed and failed trials."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from click.testing import CliRunner

from gateway.errors import CannotStart
from gateway.operate.cli import root
from gateway.operate.cli.selftest import summary_line
from gateway.operate.selftest import plain_http
from gateway.operate.selftest.chat_service import (
    DUPLICATE_MARK,
    ChatFault,
    FakeTelegram,
    question_text,
)
from gateway.operate.selftest.model_service import FakeModel
from gateway.operate.selftest.stage import SelfTestGateway, open_gateway
from gateway.operate.selftest.trials import TrialResult, TrialRunner
from sessions.values.clock import SystemClock


@pytest.mark.timeout(120)
def test_all_trials_pass_and_the_installation_is_untouched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "own"))
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", "no token at all")
    ran = CliRunner().invoke(root, ["selftest", "--json"])
    told = json.loads(ran.stdout)
    slow = "stopped after"  # the time is tested elsewhere, because this machine may be busy
    wrong = [each for each in told["trials"] if not each["well"] and slow not in each["words"]]
    assert wrong == []
    assert len(told["trials"]) == 14
    assert told["ok"] == (ran.exit_code == 0)
    assert not (tmp_path / "own").exists()


def test_failed_trials_are_counted() -> None:
    well, not_well = (
        TrialResult("one", well=True, words="ok"),
        TrialResult("two", well=False, words="lost"),
    )
    assert summary_line((well, not_well), 12.3) == "1 of 2 trials failed, in 12 s."
    assert summary_line((well,), 1.0) == "All 1 trials passed, in 1 s."


async def test_a_gateway_that_does_not_start_is_reported_in_one_sentence(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, {}, SystemClock()) as stage:
        stage.home.write_text("a file where the state folder should be")
        with pytest.raises(CannotStart, match=r"does not start: .*state"):
            await stage.start()


# --- lost and duplicated answers ---------------------------------------------------------------


class Bot:
    """A client that calls the service like the daemon, or incorrectly."""

    def __init__(self) -> None:
        self.service = FakeTelegram(SystemClock())
        self.answers: list[bytes] = []
        self.broken = 0

    def write(self, text: str, chat: int = 1001, method: str = "sendMessage") -> None:
        body = f"chat_id={chat}&text={text}".encode()
        self.service.handle_request(cast("plain_http.Connection", self), f"/bot/{method}", body)

    def answer(self, body: bytes, status: int = 200) -> None:
        self.answers.append(b"%d %b" % (status, body))

    def abort(self) -> None:
        self.broken += 1


def trials(bot: Bot) -> TrialRunner:
    stage = SimpleNamespace(chat=bot.service, model=FakeModel())
    return TrialRunner(cast("SelfTestGateway", stage))


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ([], "1 questions, 1 lost, 0 answered twice"),
        (["end-of-plain-1", "end-of-plain-1"], "1 questions, 0 lost, 1 answered twice"),
        (
            ["end-of-plain-1", f"{DUPLICATE_MARK}: end-of-plain-1"],
            "1 questions, 0 lost, 0 answered twice",
        ),
    ],
    ids=["lost", "twice", "a copy that says so"],
)
def test_each_question_is_counted(written: list[str], words: str) -> None:
    bot = Bot()
    made = trials(bot)
    made._ask("plain", 1001)
    for text in written:
        bot.write(text)
    found = made._answer_totals()
    assert found.words == words
    assert found.well == ("0 lost, 0 answered twice" in words)


def test_the_chat_service_injects_one_fault_and_counts_early_calls() -> None:
    bot = Bot()
    bot.service.fail_next_message(1001, ChatFault.TOO_MANY)
    bot.write("one")
    bot.write("one")
    assert bot.answers[0].startswith(b"429 ")
    assert (bot.service.early_calls, bot.service.visible_texts(1001)) == (1, ["one"])
    bot.service.fail_next_message(1002, ChatFault.BROKEN)
    bot.write("two", 1002)
    assert bot.service.visible_texts(1002) == []
    bot.service.fail_next_message(1003, ChatFault.CUT_AFTER)
    bot.write("three", 1003)
    assert (bot.service.visible_texts(1003), bot.broken) == (["three"], 1)


def test_the_chat_service_rejects_rich_messages_like_an_older_server() -> None:
    bot = Bot()
    bot.write("rich", method="sendRichMessage")
    assert bot.answers[0].startswith(b"404 ")
    assert question_text("a-1") == "tell me [a-1]"


async def test_waiting_for_a_condition_times_out() -> None:
    assert not await Bot().service.wait_until(lambda: False, 0.01)
