"""How old something is when the machine's clock is set."""

import pytest

from sessions.values.steady_clock import NOTABLE_JUMP_MS, SteadyClock, format_jump
from tests.unit.gateway.clocks import TwoClocks

DAY = 86_400_000


@pytest.mark.parametrize(
    ("set_by", "age"),
    [(0, 5_000), (DAY, 5_000), (-DAY, 5_000 - DAY)],
    ids=["nobody sets it", "a day ahead", "a day behind"],
)
def test_something_is_as_old_as_the_kinder_clock_says(set_by: int, age: int) -> None:
    clock = TwoClocks()
    steady, moment = SteadyClock(clock), clock.now()
    clock.pass_by(5.0)
    clock.off += set_by
    assert steady.age_ms(moment) == age


def test_what_is_really_old_is_old() -> None:
    clock = TwoClocks()
    assert SteadyClock(clock).age_ms(clock.now() - DAY) == DAY


def test_a_clock_that_was_wrong_and_is_put_right_makes_nothing_old() -> None:
    clock = TwoClocks()
    clock.off = -50 * DAY
    steady = SteadyClock(clock)
    clock.off = 0
    assert steady.age_ms(clock.now() - 1_000) <= 1_000


def test_each_jump_is_told_once_with_its_direction() -> None:
    clock = TwoClocks()
    steady = SteadyClock(clock)
    clock.pass_by(3600.0)
    assert steady.take_jump() == 0
    clock.off += DAY + 61_000
    assert format_jump(steady.take_jump()) == "24:01:01 forwards"
    assert steady.take_jump() == 0
    clock.off -= DAY
    assert format_jump(steady.take_jump()) == "24:00:00 back"


def test_small_corrections_are_nothing_but_add_up() -> None:
    clock = TwoClocks()
    steady = SteadyClock(clock)
    clock.off += NOTABLE_JUMP_MS - 1
    assert steady.take_jump() == 0
    clock.off += 1
    assert steady.take_jump() == NOTABLE_JUMP_MS
