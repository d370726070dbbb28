"""The measure of live updates that the platforms' servers keep."""

import pytest

from tests.fakes.allowance import Allowance


def test_overlapping_times_count_once_and_calls_outside_of_them_not() -> None:
    allowance = Allowance()
    for at in (1.0, 5.0, 9.0, 12.0, 30.0):
        allowance.note("chat", 1.0, 1.0, at)
    allowance.live("chat", 0.0, 10.0)
    allowance.live("chat", 4.0, 20.0)
    share = allowance.share()
    assert (share.granted, share.used) == (20.0, 4)
    assert share.used_part == pytest.approx(0.2)


def test_all_chats_together_are_granted_no_more_than_the_account() -> None:
    allowance = Allowance(overall=30.0)
    for chat in map(str, range(100)):
        allowance.note(chat, 1.0, 1.0, 5.0)
        allowance.live(chat, 0.0, 10.0)
    assert allowance.share().granted == 300.0


def test_what_ended_the_answers_before_is_taken_off_their_followers_minute() -> None:
    allowance = Allowance()
    for at in (10.0, 61.0, 62.0, 63.0, 70.0):
        allowance.note("chat.update", 60.0, 60.0, at)
    allowance.live("chat.update", 0.0, 60.0)
    allowance.live("chat.update", 64.0, 124.0)
    share = allowance.share()
    assert share.granted == pytest.approx(120.0 - (57 + 58 + 59) / 60)
    assert share.used == 2


def test_refusals_are_counted_and_a_scope_without_calls_used_nothing() -> None:
    allowance = Allowance()
    allowance.refused["sendMessage"] += 2
    allowance.note("1", 1.0, 1.0, 3.0)
    allowance.live("1", 0.0, 10.0)
    allowance.live("2", 0.0, 10.0)
    share = allowance.share()
    assert (share.refused, share.least) == (2, 0.0)
