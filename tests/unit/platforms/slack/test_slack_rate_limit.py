"""Rate limits of Slack's methods."""

import itertools

from platforms.slack.rate_limit import (
    APPEND_STREAM,
    START_STREAM,
    STOP_STREAM,
    UPDATE_MESSAGE,
    SlackRateLimit,
)


def test_a_retry_after_holds_for_the_method_and_a_post_only_for_its_channel() -> None:
    limit = SlackRateLimit()
    limit.block(UPDATE_MESSAGE, "C1", 10.0)
    limit.block("chat.postMessage", "C1", 10.0)
    assert limit.blocked_seconds(UPDATE_MESSAGE, "C2", 4.0) == 6.0
    assert limit.blocked_seconds("chat.postMessage", "C1", 4.0) == 6.0
    assert limit.blocked_seconds("chat.postMessage", "C2", 4.0) == 0.0
    assert limit.blocked_seconds(UPDATE_MESSAGE, "C1", 10.0) == 0.0


def test_streams_start_only_as_fast_as_they_can_be_started_and_stopped() -> None:
    limit = SlackRateLimit()
    for _ in range(20):
        assert limit.can_start_stream(0.0)
        limit.record_call(START_STREAM, 0.0)
    assert not limit.can_start_stream(59.0)
    assert limit.can_start_stream(62.0)
    limit.open_streams = 15
    for _ in range(5):
        limit.record_call(STOP_STREAM, 62.0)
    assert not limit.can_start_stream(62.0)  # fifteen stops must still fit


def test_part_of_a_minutes_calls_may_be_a_burst_and_the_rest_is_spread_evenly() -> None:
    limit = SlackRateLimit()
    times = []
    now = 0.0
    while now < 60.0:
        if limit.can_append(now):
            limit.record_call(APPEND_STREAM, now)
            times.append(now)
        now += 0.05
    assert 90 <= len(times) <= 100
    assert times[20] < 1.5
    later = times[30:]
    assert max(after - before for before, after in itertools.pairwise(later)) < 1.0


def test_live_edits_leave_room_for_the_final_edit_of_each_message() -> None:
    limit = SlackRateLimit()
    limit.open_updates = 20
    for _ in range(39):
        limit.record_call(UPDATE_MESSAGE, 0.0)
    assert limit.can_update(10.0)
    limit.record_call(UPDATE_MESSAGE, 0.0)
    assert not limit.can_update(10.0)
    assert not limit.can_start_edited(0.0)


def test_each_channel_allows_a_burst_of_posts_and_then_one_a_second() -> None:
    limit = SlackRateLimit()
    assert [limit.take_post("C1", 0.0) for _ in range(6)] == [0.0] * 5 + [1.0]
    assert limit.take_post("C2", 0.0) == 0.0
    assert limit.take_post("C1", 0.5) == 0.5
    assert limit.take_post("C1", 1.0) == 0.0


def test_limits_continue_across_a_restart() -> None:
    before, after = SlackRateLimit(), SlackRateLimit()
    for number in range(30):
        before.record_call(UPDATE_MESSAGE, 100.0 + number)
    before.record_call("reactions.add", 20.0)  # more than a minute ago
    before.block("chat.postMessage", "C1", 145.0)
    state = before.dump(130.0, 1_000_000)
    assert [len(state.calls[method]) for method in state.calls] == [30]
    after.restore(state, 7.0, 1_010_000)  # another monotonic clock, ten seconds later
    assert after.blocked_seconds("chat.postMessage", "C1", 7.0) == 5.0
    assert after.blocked_seconds("chat.postMessage", "C2", 7.0) == 0.0
    left = 0
    while not after.seconds_until_free(UPDATE_MESSAGE, 7.0):
        after.record_call(UPDATE_MESSAGE, 7.0)
        left += 1
    assert left == 50 - 30 - 5  # five calls may be missing from the state
    assert after.seconds_until_free(UPDATE_MESSAGE, 7.0) == 21.0  # the first leaves the window
    late = SlackRateLimit()
    late.restore(state, 7.0, 1_100_000)
    assert late.dump(7.0, 0).calls == {}
    assert late.blocked_seconds("chat.postMessage", "C1", 7.0) == 0.0
    early = SlackRateLimit()
    early.restore(state, 7.0, 500_000)  # the wall clock was set back
    assert len(early.dump(7.0, 0).calls[UPDATE_MESSAGE]) == 35
