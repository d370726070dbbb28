"""Who may come in."""

import asyncio
from itertools import count

import pytest

from platforms.web.door import LINK_LIFE, VISIT_LIFE, Door, csrf_token, same
from tests.fakes.archive import MemoryShelf


class Clock:
    def __init__(self) -> None:
        self.time = 1_000_000

    def now(self) -> int:
        return self.time

    def monotonic(self) -> float:
        return self.time / 1000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def shelf() -> MemoryShelf:
    return MemoryShelf()


@pytest.fixture
def door(clock: Clock, shelf: MemoryShelf) -> Door:
    numbers = count(1)
    return Door(clock, shelf, token=lambda: f"token-{next(numbers)}")


async def test_a_link_opens_once(door: Door) -> None:
    link = await door.new_link()
    cookie = await door.enter(link)
    assert cookie is not None
    assert await door.admits(cookie)
    assert await door.enter(link) is None


async def test_of_two_visitors_with_one_link_one_comes_in(door: Door) -> None:
    link = await door.new_link()
    async with asyncio.TaskGroup() as group:
        tries = [group.create_task(door.enter(link)) for _ in range(5)]
    assert sum(task.result() is not None for task in tries) == 1


async def test_a_link_is_good_for_an_hour(door: Door, clock: Clock) -> None:
    early, late = await door.new_link(), await door.new_link()
    clock.time += LINK_LIFE - 1
    assert await door.enter(early) is not None
    clock.time += 1
    assert await door.enter(late) is None


async def test_a_visit_lasts_ninety_days(door: Door, clock: Clock) -> None:
    cookie = await door.enter(await door.new_link()) or ""
    clock.time += VISIT_LIFE - 1
    assert await door.admits(cookie)
    clock.time += 1
    assert not await door.admits(cookie)


@pytest.mark.parametrize("cookie", ["", "token-1", "token-2 ", "x" * 10_000, "☃"])
async def test_what_is_not_a_cookie_of_ours_does_not_let_in(door: Door, cookie: str) -> None:
    assert await door.enter(await door.new_link()) == "token-2"
    assert not await door.admits(cookie)  # not even the link's own token


async def test_links_and_visits_survive_a_restart(
    door: Door, clock: Clock, shelf: MemoryShelf
) -> None:
    cookie = await door.enter(await door.new_link()) or ""
    link, name = await door.new_link(), await door.cookie_name()
    again = Door(clock, shelf)
    assert await again.cookie_name() == name
    assert await again.admits(cookie)
    assert await again.enter(link) is not None


async def test_the_shelf_holds_only_hashes(door: Door, shelf: MemoryShelf) -> None:
    link = await door.new_link()
    assert link not in str(shelf.values)
    cookie = await door.enter(link) or ""
    await door.new_link()
    assert "token-" not in str(shelf.values)
    assert await door.admits(cookie)


async def test_a_link_whose_spending_cannot_be_stored_lets_nobody_in_and_stays_good(
    door: Door, shelf: MemoryShelf
) -> None:
    link = await door.new_link()
    shelf.broken = True
    with pytest.raises(OSError, match="no space"):
        await door.enter(link)
    assert not await door.admits("token-2")
    shelf.broken = False
    assert await door.enter(link) is not None


async def test_who_leaves_is_not_known_any_more_but_others_are(door: Door) -> None:
    one = await door.enter(await door.new_link()) or ""
    other = await door.enter(await door.new_link()) or ""
    await door.leave(one)
    assert not await door.admits(one)
    assert await door.admits(other)


async def test_only_the_newest_links_are_kept(door: Door) -> None:
    links = [await door.new_link() for _ in range(17)]
    assert await door.enter(links[0]) is None
    assert await door.enter(links[1]) is not None


async def test_two_installations_use_different_cookies(clock: Clock) -> None:
    names = {await Door(clock, MemoryShelf()).cookie_name() for _ in range(5)}
    assert len(names) == 5


async def test_a_door_asked_first_for_its_cookie_keeps_the_name(
    clock: Clock, shelf: MemoryShelf
) -> None:
    name = await Door(clock, shelf).cookie_name()
    assert await Door(clock, shelf).cookie_name() == name


async def test_a_visitor_let_in_by_another_process_is_known(
    door: Door, clock: Clock, shelf: MemoryShelf
) -> None:
    await door.cookie_name()
    other = Door(clock, shelf)
    cookie = await other.enter(await other.new_link()) or ""
    assert await door.admits(cookie)


async def test_a_damaged_shelf_means_a_new_link_and_no_more(
    clock: Clock, shelf: MemoryShelf
) -> None:
    shelf.values["door"] = "{not json"
    door = Door(clock, shelf)
    assert not await door.admits("anything")
    assert await door.enter(await door.new_link()) is not None


def test_the_csrf_token_belongs_to_one_cookie() -> None:
    assert same(csrf_token("a"), csrf_token("a"))
    assert not same(csrf_token("a"), csrf_token("b"))
    assert not same("é", csrf_token("a"))


async def test_how_much_of_a_token_was_right_shows_in_no_time(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links, cookies and the page's token: each is compared as a whole, and with all there are."""
    links = [await door.new_link() for _ in range(2)]
    compared: list[tuple[bytes, bytes]] = []

    def comparing(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr("hmac.compare_digest", comparing)
    cookie = await door.enter(links[0]) or ""
    assert len(compared) == len(links) * 2  # to see whether it opens, and to spend it
    for shown in (cookie, "guessed"):
        compared.clear()
        assert await door.admits(shown) == (shown == cookie)
        assert {len(each) for pair in compared for each in pair} == {64}  # never the token itself
    compared.clear()
    assert same(csrf_token(cookie), csrf_token(cookie))
    assert len(compared) == 1
