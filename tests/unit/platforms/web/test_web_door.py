"""Sign-in by link and cookie."""

import asyncio
from itertools import count

import pytest

from platforms.web.door import (
    LINK_LIFETIME_MS,
    VISIT_LIFETIME_MS,
    WebLogin,
    csrf_token,
    is_same_secret,
)
from tests.fakes.archive import MemoryShelf
from tests.fakes.set_clock import SetClock


@pytest.fixture
def clock() -> SetClock:
    return SetClock(1_000_000)


@pytest.fixture
def shelf() -> MemoryShelf:
    return MemoryShelf()


@pytest.fixture
def door(clock: SetClock, shelf: MemoryShelf) -> WebLogin:
    numbers = count(1)
    return WebLogin(clock, shelf, make_token=lambda: f"token-{next(numbers)}")


async def test_a_link_works_once(door: WebLogin) -> None:
    link = await door.new_link()
    cookie = await door.redeem_link(link)
    assert cookie is not None
    assert await door.is_signed_in(cookie)
    assert await door.redeem_link(link) is None


async def test_only_one_of_two_concurrent_visitors_gets_in(door: WebLogin) -> None:
    link = await door.new_link()
    async with asyncio.TaskGroup() as group:
        tries = [group.create_task(door.redeem_link(link)) for _ in range(5)]
    assert sum(task.result() is not None for task in tries) == 1


async def test_a_link_is_valid_for_an_hour(door: WebLogin, clock: SetClock) -> None:
    early, late = await door.new_link(), await door.new_link()
    clock.time += LINK_LIFETIME_MS - 1
    assert await door.redeem_link(early) is not None
    clock.time += 1
    assert await door.redeem_link(late) is None


async def test_a_visit_lasts_ninety_days(door: WebLogin, clock: SetClock) -> None:
    cookie = await door.redeem_link(await door.new_link()) or ""
    clock.time += VISIT_LIFETIME_MS - 1
    assert await door.is_signed_in(cookie)
    clock.time += 1
    assert not await door.is_signed_in(cookie)


@pytest.mark.parametrize("cookie", ["", "token-1", "token-2 ", "x" * 10_000, "☃"])
async def test_an_unknown_cookie_is_not_signed_in(door: WebLogin, cookie: str) -> None:
    assert await door.redeem_link(await door.new_link()) == "token-2"
    assert not await door.is_signed_in(cookie)  # nor does the token of a link


async def test_links_and_visits_survive_a_restart(
    door: WebLogin, clock: SetClock, shelf: MemoryShelf
) -> None:
    cookie = await door.redeem_link(await door.new_link()) or ""
    link, name = await door.new_link(), await door.cookie_name()
    again = WebLogin(clock, shelf)
    assert await again.cookie_name() == name
    assert await again.is_signed_in(cookie)
    assert await again.redeem_link(link) is not None


async def test_only_hashes_are_stored(door: WebLogin, shelf: MemoryShelf) -> None:
    link = await door.new_link()
    assert link not in str(shelf.values)
    cookie = await door.redeem_link(link) or ""
    await door.new_link()
    assert "token-" not in str(shelf.values)
    assert await door.is_signed_in(cookie)


async def test_a_link_stays_valid_if_its_use_cannot_be_stored(
    door: WebLogin, shelf: MemoryShelf
) -> None:
    link = await door.new_link()
    shelf.broken = True
    with pytest.raises(OSError, match="no space"):
        await door.redeem_link(link)
    assert not await door.is_signed_in("token-2")
    shelf.broken = False
    assert await door.redeem_link(link) is not None


async def test_signing_out_affects_only_one_visitor(door: WebLogin) -> None:
    one = await door.redeem_link(await door.new_link()) or ""
    other = await door.redeem_link(await door.new_link()) or ""
    await door.sign_out(one)
    assert not await door.is_signed_in(one)
    assert await door.is_signed_in(other)


async def test_only_the_newest_links_are_kept(door: WebLogin) -> None:
    links = [await door.new_link() for _ in range(17)]
    assert await door.redeem_link(links[0]) is None
    assert await door.redeem_link(links[1]) is not None


async def test_two_installations_use_different_cookies(clock: SetClock) -> None:
    names = {await WebLogin(clock, MemoryShelf()).cookie_name() for _ in range(5)}
    assert len(names) == 5


async def test_the_cookie_name_is_stored_on_first_use(clock: SetClock, shelf: MemoryShelf) -> None:
    name = await WebLogin(clock, shelf).cookie_name()
    assert await WebLogin(clock, shelf).cookie_name() == name


async def test_a_visitor_of_another_process_is_recognised(
    door: WebLogin, clock: SetClock, shelf: MemoryShelf
) -> None:
    await door.cookie_name()
    other = WebLogin(clock, shelf)
    cookie = await other.redeem_link(await other.new_link()) or ""
    assert await door.is_signed_in(cookie)


async def test_a_damaged_record_only_requires_a_new_link(
    clock: SetClock, shelf: MemoryShelf
) -> None:
    shelf.values["door"] = "{not json"
    door = WebLogin(clock, shelf)
    assert not await door.is_signed_in("anything")
    assert await door.redeem_link(await door.new_link()) is not None


def test_the_csrf_token_depends_on_the_cookie() -> None:
    assert is_same_secret(csrf_token("a"), csrf_token("a"))
    assert not is_same_secret(csrf_token("a"), csrf_token("b"))
    assert not is_same_secret("é", csrf_token("a"))


async def test_tokens_are_compared_in_constant_time(
    door: WebLogin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links, cookies and CSRF tokens are compared with all stored hashes, each completely."""
    links = [await door.new_link() for _ in range(2)]
    compared: list[tuple[bytes, bytes]] = []

    def comparing(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr("hmac.compare_digest", comparing)
    cookie = await door.redeem_link(links[0]) or ""
    assert len(compared) == len(links) * 2  # once to check the link, once to use it up
    for shown in (cookie, "guessed"):
        compared.clear()
        assert await door.is_signed_in(shown) == (shown == cookie)
        # Only hashes are compared, never the token itself.
        assert {len(each) for pair in compared for each in pair} == {64}
    compared.clear()
    assert is_same_secret(csrf_token(cookie), csrf_token(cookie))
    assert len(compared) == 1
