import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.values.address import Address, read_address, write_address
from sessions.values.clock import SystemClock, rfc3339
from sessions.values.ids import Ids, stable_id
from sessions.values.secret import Secret


class SetClock:
    def __init__(self, moments: list[int]) -> None:
        self.moments = moments

    def now(self) -> int:
        return self.moments.pop(0)

    def monotonic(self) -> float:
        return 0.0


@pytest.mark.parametrize(
    ("address", "stored"),
    [
        (Address("telegram", "1001"), '{"platform":"telegram","chat":"1001"}'),
        (
            Address("slack", "T1/D1", "second", "7.5"),
            '{"platform":"slack","chat":"T1/D1","account":"second","thread":"7.5"}',
        ),
        (Address("web", 'ö "\0'), '{"platform":"web","chat":"ö \\"\\u0000"}'),
    ],
)
def test_an_address_is_stored_in_the_form_of_earlier_versions(
    address: Address, stored: str
) -> None:
    assert write_address(address) == stored
    assert read_address(stored) == address


@given(st.lists(st.integers(0, 2**45), min_size=2, max_size=50))
def test_ids_sort_in_creation_order_despite_clock_jumps(moments: list[int]) -> None:
    ids = Ids(SetClock(list(moments)))
    made = [ids.new("s") for _ in moments]
    assert made == sorted(set(made))
    assert all(each.startswith("s_") and len(each) == 20 for each in made)


def test_stable_ids_depend_only_on_their_parts() -> None:
    assert stable_id("a", "b") == stable_id("a", "b")
    assert (
        len({stable_id("a", "b"), stable_id("ab"), stable_id("a", "b", ""), stable_id("b", "a")})
        == 4
    )
    assert len(stable_id("\ud800")) == len(stable_id("")) == 18
    assert stable_id("x").isalnum()


def test_a_secret_is_shown_only_by_reveal() -> None:
    secret = Secret("hunter2")
    assert f"{secret} {secret!r} {[secret]}" == "*** Secret('***') [Secret('***')]"
    assert secret.reveal() == "hunter2"
    assert secret == Secret("hunter2")
    assert secret != "hunter2"
    assert len({secret, Secret("hunter2"), Secret("other")}) == 2


def test_a_secret_is_reread_from_its_source() -> None:
    place = ["one"]
    secret = Secret("one", lambda: place[0])
    heard: list[Secret] = []
    secret.on_replaced(heard.append)
    assert secret.reread() is secret
    place[0] = ""
    assert secret.reread() is secret, "an empty source keeps the old value"
    place[0] = "two"
    second = secret.reread()
    assert (second.reveal(), secret.reveal()) == ("two", "one")
    assert heard == [], "reading alone notifies no listener"
    second.notify_listeners()
    place[0] = "three"
    second.reread().notify_listeners()
    assert heard == [Secret("two"), Secret("three")]


def test_a_secret_without_source_stays_the_same() -> None:
    secret = Secret("one")
    assert secret.reread() is secret


def test_times_are_written_in_utc_with_milliseconds() -> None:
    assert rfc3339(0) == "1970-01-01T00:00:00.000Z"
    assert rfc3339(1_763_470_799_007) == "2025-11-18T12:59:59.007Z"


def test_the_system_clock_advances() -> None:
    clock = SystemClock()
    assert clock.now() > 1_700_000_000_000
    assert clock.monotonic() <= clock.monotonic()
