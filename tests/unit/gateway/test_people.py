from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.access.pairing import CODE_LIFETIME_MS, MAX_OPEN_PER_PLATFORM
from gateway.access.people import People, StrangerNotices
from gateway.access.policy import Allowed, Role, Stranger, decide_access
from gateway.access.settings import AccessSettings
from platforms.core.contract import Address, InboundMessage, Sender, Text
from sessions.store.store import SessionStore


class SetClock:
    def __init__(self) -> None:
        self.time = 1_000_000_000

    def now(self) -> int:
        return self.time

    def monotonic(self) -> float:
        return self.time / 1000


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
async def store(tmp_path: Path, clock: SetClock) -> AsyncIterator[SessionStore]:
    opened = await SessionStore.open(f"sqlite:///{tmp_path / 'holdfast.db'}", clock=clock)
    yield opened
    await opened.close()


async def people(store: SessionStore, clock: SetClock, **settings: object) -> People:
    made = People(store, clock, AccessSettings(**settings))  # type: ignore[arg-type]  # its own keys
    await made.load()
    return made


def said(text: str, sender: str = "7", *, direct: bool = True) -> InboundMessage:
    place = Address("telegram", sender if direct else "-100")
    return InboundMessage(
        "1",
        0,
        address=place,
        sender=Sender(sender, "Eve"),
        parts=(Text(text),),
        direct=direct,
        addressed=True,
    )


@pytest.mark.parametrize("direct", [True, False])
async def test_a_sender_without_an_id_gets_no_reply(
    store: SessionStore, clock: SetClock, *, direct: bool
) -> None:
    known = await people(store, clock)
    assert await known.handle_stranger(
        said("hi", sender="", direct=direct), "telegram:", direct=direct
    ) == (StrangerNotices())
    assert known.list_people() == []


async def test_a_stranger_gets_one_code_shown_once(store: SessionStore, clock: SetClock) -> None:
    known = await people(store, clock)
    first = await known.handle_stranger(said("hi"), "telegram:7", direct=True)
    assert (first.notice, first.admin_notice) == ("pairing_code", "pair_request")
    again = await known.handle_stranger(said("hi"), "telegram:7", direct=True)
    assert (again.notice, again.admin_notice) == ("pairing_pending", None)
    assert str(first.fields["code"]) not in (await store.get_value("people", "book") or "")


async def test_an_approved_code_gives_access_until_it_is_revoked(
    store: SessionStore, clock: SetClock
) -> None:
    known = await people(store, clock)
    code = str((await known.handle_stranger(said("hi"), "telegram:7", direct=True)).fields["code"])
    assert await known.approve(code.lower()) == ("telegram:7", "Eve")
    assert await known.approve(code) is None
    later = await people(store, clock)
    assert decide_access(later.current_policy(), said("hi")) == Allowed("telegram:7", Role.MEMBER)
    assert later.list_people()[0]["state"].startswith("member since")
    assert await later.revoke("telegram:7")
    assert isinstance(decide_access(later.current_policy(), said("hi")), Stranger)
    assert not await later.revoke("telegram:7")


async def test_a_code_is_valid_for_an_hour(store: SessionStore, clock: SetClock) -> None:
    known = await people(store, clock)
    code = str((await known.handle_stranger(said("hi"), "telegram:7", direct=True)).fields["code"])
    clock.time += CODE_LIFETIME_MS
    assert await known.approve(code) is None
    assert known.list_people() == []


async def test_too_many_strangers_get_no_more_codes(store: SessionStore, clock: SetClock) -> None:
    known = await people(store, clock)
    for number in range(MAX_OPEN_PER_PLATFORM):
        await known.handle_stranger(said("hi", str(number)), f"telegram:{number}", direct=True)
    late = await known.handle_stranger(said("hi", "99"), "telegram:99", direct=True)
    assert (late.notice, late.admin_notice) == (None, "refused_mention")


async def test_without_pairing_strangers_get_no_reply(store: SessionStore, clock: SetClock) -> None:
    known = await people(store, clock, pairing=False)
    greeting = await known.handle_stranger(said("hi"), "telegram:7", direct=True)
    assert (greeting.notice, greeting.admin_notice) == (None, None)


async def test_admins_are_notified_of_a_mention_once_a_day(
    store: SessionStore, clock: SetClock
) -> None:
    known = await people(store, clock)
    mention = said("bot?", direct=False)
    assert (
        await known.handle_stranger(mention, "telegram:7", direct=False)
    ).admin_notice == "refused_mention"
    assert (await known.handle_stranger(mention, "telegram:7", direct=False)).admin_notice is None
    clock.time += 86_400_000
    assert (
        await known.handle_stranger(mention, "telegram:7", direct=False)
    ).admin_notice == "refused_mention"


async def test_a_claim_code_makes_one_admin_and_guessing_is_slowed(
    store: SessionStore, clock: SetClock
) -> None:
    known = await people(store, clock, admins=("discord:5", "discord:G/role:1", "slack:T1/U3"))
    code = await known.create_claim_code()
    for _ in range(6):
        assert not await known.claim("telegram:9", "Bob", "AAAAAAAA")
    assert not await known.claim("telegram:9", "Bob", code), "too early after so many wrong ones"
    greeting = await known.handle_stranger(said(f"claim {code}"), "telegram:7", direct=True)
    assert greeting.notice == "claimed"
    assert decide_access(known.current_policy(), said("hi")) == Allowed("telegram:7", Role.ADMIN)
    assert known.admins() == ("discord:5", "slack:T1/U3", "telegram:7")
    assert known.has_admin
    assert (
        await known.handle_stranger(said(f"claim {code}"), "telegram:8", direct=True)
    ).notice == ("claim_refused")


async def test_a_new_claim_code_invalidates_the_older_one(
    store: SessionStore, clock: SetClock
) -> None:
    known = await people(store, clock)
    old, new = await known.create_claim_code(), await known.create_claim_code()
    assert not await known.claim("telegram:7", "Eve", old)
    assert await known.claim("telegram:7", "Eve", new)
