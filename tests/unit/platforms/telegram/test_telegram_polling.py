"""Tests of the pauses between polls that bring nothing new."""

import asyncio
from typing import Any

import pytest

from platforms.telegram.polling import EmptyPollPause
from tests.fakes.inbox import Inbox
from tests.fakes.telegram.kit import telegram
from tests.fakes.telegram.server import TelegramServer


def test_empty_answers_at_once_are_followed_by_growing_pauses_up_to_a_second() -> None:
    pause = EmptyPollPause()
    pauses = [pause.next_pause(is_new=False, took_seconds=0.0) for _ in range(8)]
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("is_new", "took"),
    [
        pytest.param(True, 0.0, id="new updates"),
        pytest.param(False, 25.0, id="a poll that waited"),
        pytest.param(True, 25.0, id="updates after a while"),
    ],
)
def test_a_normal_answer_has_no_pause_and_ends_the_growth(*, is_new: bool, took: float) -> None:
    pause = EmptyPollPause()
    for _ in range(8):
        pause.next_pause(is_new=False, took_seconds=0.0)
    assert pause.next_pause(is_new=is_new, took_seconds=took) == 0.0
    assert pause.next_pause(is_new=False, took_seconds=0.0) == 0.05


def test_the_duration_of_the_poll_counts_as_a_part_of_the_pause() -> None:
    pause = EmptyPollPause()
    pauses = [pause.next_pause(is_new=False, took_seconds=0.6) for _ in range(8)]
    assert pauses[0] == 0.0
    assert pauses[-1] == pytest.approx(0.4)


@pytest.mark.parametrize("repeats", [False, True], ids=["empty", "the same update"])
async def test_a_server_that_answers_at_once_is_not_polled_all_the_time(
    server: TelegramServer, monkeypatch: pytest.MonkeyPatch, *, repeats: bool
) -> None:
    update = {"update_id": 5, "message": {"message_id": 1}}

    async def at_once(_given: dict[str, Any], _request: object) -> list[dict[str, Any]]:
        return [update] if repeats else []

    monkeypatch.setattr(server, "_get_updates", at_once)
    async with telegram(server) as adapter, asyncio.TaskGroup() as group:
        polling = group.create_task(adapter.run(Inbox(), lambda: None))
        await asyncio.sleep(5.0)
        polling.cancel()
    assert len(server.called("getUpdates")) < 20
