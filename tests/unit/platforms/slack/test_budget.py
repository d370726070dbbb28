"""How often methods may be called."""

import itertools

from platforms.slack.rate_limit import (
    APPEND_STREAM,
    START_STREAM,
    STOP_STREAM,
    UPDATE_MESSAGE,
    SlackRateLimit,
)


def test_a_retry_after_holds_for_the_method_and_a_post_only_for_its_channel() -> None:
    budget = SlackRateLimit()
    budget.block(UPDATE_MESSAGE, "C1", 10.0)
    budget.block("chat.postMessage", "C1", 10.0)
    assert budget.blocked_seconds(UPDATE_MESSAGE, "C2", 4.0) == 6.0
    assert budget.blocked_seconds("chat.postMessage", "C1", 4.0) == 6.0
    assert budget.blocked_seconds("chat.postMessage", "C2", 4.0) == 0.0
    assert budget.blocked_seconds(UPDATE_MESSAGE, "C1", 10.0) == 0.0


def test_streams_are_begun_only_as_fast_as_they_can_be_begun_and_ended() -> None:
    budget = SlackRateLimit()
    for _ in range(20):
        assert budget.can_start_stream(0.0)
        budget.record_call(START_STREAM, 0.0)
    assert not budget.can_start_stream(59.0)
    assert budget.can_start_stream(62.0)
    budget.open_streams = 15
    for _ in range(5):
        budget.record_call(STOP_STREAM, 62.0)
    assert not budget.can_start_stream(62.0)  # the other fifteen must be ended, too


def test_a_part_of_the_minute_is_there_at_once_and_the_rest_comes_evenly() -> None:
    budget = SlackRateLimit()
    moments = []
    now = 0.0
    while now < 60.0:
        if budget.can_append(now):
            budget.record_call(APPEND_STREAM, now)
            moments.append(now)
        now += 0.05
    assert 90 <= len(moments) <= 100
    assert moments[20] < 1.5
    later = moments[30:]
    assert max(after - before for before, after in itertools.pairwise(later)) < 1.0


def test_live_edits_leave_room_for_the_last_edit_of_each_message() -> None:
    budget = SlackRateLimit()
    budget.open_updates = 20
    for _ in range(39):
        budget.record_call(UPDATE_MESSAGE, 0.0)
    assert budget.can_update(10.0)
    budget.record_call(UPDATE_MESSAGE, 0.0)
    assert not budget.can_update(10.0)
    assert not budget.can_start_edited(0.0)


def test_each_channel_takes_a_few_posts_at_once_and_then_one_a_second() -> None:
    budget = SlackRateLimit()
    assert [budget.take_post("C1", 0.0) for _ in range(6)] == [0.0] * 5 + [1.0]
    assert budget.take_post("C2", 0.0) == 0.0
    assert budget.take_post("C1", 0.5) == 0.5
    assert budget.take_post("C1", 1.0) == 0.0


def test_slack_counts_on_while_none_of_ours_runs() -> None:
    before, after = SlackRateLimit(), SlackRateLimit()
    for number in range(30):
        before.record_call(UPDATE_MESSAGE, 100.0 + number)
    before.record_call("reactions.add", 20.0)  # more than a minute ago
    before.block("chat.postMessage", "C1", 145.0)
    noted = before.dump(130.0, 1_000_000)
    assert [len(noted.calls[method]) for method in noted.calls] == [30]
    after.restore(noted, 7.0, 1_010_000)  # another clock, ten seconds later
    assert after.blocked_seconds("chat.postMessage", "C1", 7.0) == 5.0
    assert after.blocked_seconds("chat.postMessage", "C2", 7.0) == 0.0
    left = 0
    while not after.seconds_until_free(UPDATE_MESSAGE, 7.0):
        after.record_call(UPDATE_MESSAGE, 7.0)
        left += 1
    assert left == 50 - 30 - 5  # what was called behind the last note is not known
    assert (
        after.seconds_until_free(UPDATE_MESSAGE, 7.0) == 21.0
    )  # until the first is a minute ago, and a little more
    late = SlackRateLimit()
    late.restore(noted, 7.0, 1_100_000)
    assert late.dump(7.0, 0).calls == {}
    assert late.blocked_seconds("chat.postMessage", "C1", 7.0) == 0.0
    early = SlackRateLimit()
    early.restore(noted, 7.0, 500_000)  # the clock of the machine was set back
    assert len(early.dump(7.0, 0).calls[UPDATE_MESSAGE]) == 35
