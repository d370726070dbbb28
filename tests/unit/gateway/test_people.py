import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from gateway.access.pairing import CODE_LIFETIME_MS, MAX_OPEN_PER_PLATFORM
from gateway.access.people import (
    AccessState,
    CodeDelayed,
    FailedAttempts,
    People,
    StrangerNotices,
    read_access_state,
)
from gateway.access.policy import Allowed, Policy, Role, Stranger, decide_access
from gateway.access.settings import AccessSettings
from platforms.core.contract import Address, InboundMessage, Sender, Text
from sessions.changes import SetTitle
from sessions.errors import RecordNotFound
from sessions.store.store import SessionStore
from sessions.values.notices import NoticeId
from tests.fakes.set_clock import SetClock


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


def names(known: People) -> list[str]:
    return [each.name for each in known.list_people()]


async def test_a_store_that_is_only_read_gets_no_state(
    store: SessionStore, clock: SetClock
) -> None:
    reader = People(store, clock, AccessSettings(allow=("telegram:7",)))
    await reader.load(create=False)
    assert await read_access_state(store) is None
    assert isinstance(decide_access(reader.current_policy(), said("hi")), Allowed)
    await reader.load()
    assert await read_access_state(store) is not None


async def state_of(store: SessionStore) -> AccessState:
    state = await read_access_state(store)
    assert state
    return state


async def test_before_the_state_is_loaded_no_person_has_access(
    store: SessionStore, clock: SetClock
) -> None:
    known = People(store, clock, AccessSettings(allow=("telegram:7",)))
    assert known.current_policy() == Policy()
    assert not known.has_admin


async def test_each_installation_hashes_codes_with_a_random_key_of_its_own(
    store: SessionStore, clock: SetClock, tmp_path: Path
) -> None:
    await people(store, clock)
    key = (await state_of(store)).key
    assert len(bytes.fromhex(key)) == 32
    await people(store, clock)
    assert (await state_of(store)).key == key, "the key survives a restart"
    other = await SessionStore.open(f"sqlite:///{tmp_path / 'other.db'}", clock=clock)
    await people(other, clock)
    assert (await state_of(other)).key != key
    await other.close()


async def test_changed_settings_apply_at_once(store: SessionStore, clock: SetClock) -> None:
    known = await people(store, clock)
    known.apply_settings(AccessSettings(allow=("telegram:7",), pairing=False))
    assert decide_access(known.current_policy(), said("hi")) == Allowed("telegram:7", Role.MEMBER)
    greeting = await known.handle_stranger(said("hi", "8"), "telegram:8", direct=True)
    assert greeting == StrangerNotices()


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
    assert first.admin_fields == {
        "name": "Eve",
        "principal": "telegram:7",
        "code": first.fields["code"],
    }
    again = await known.handle_stranger(said("hi"), "telegram:7", direct=True)
    assert again == StrangerNotices(NoticeId.PAIRING_PENDING)
    assert (first.stored, again.stored) == (True, False)
    stored = await store.get_value("people", "book")
    assert stored
    assert str(first.fields["code"]) not in stored


async def test_a_request_without_a_name_gets_the_name_with_the_next_message(
    store: SessionStore, clock: SetClock
) -> None:
    known = await people(store, clock)
    nameless = msgspec.structs.replace(said("hi"), sender=Sender("7"))
    other = msgspec.structs.replace(nameless, sender=Sender("8"))
    await known.handle_stranger(nameless, "telegram:7", direct=True)
    await known.handle_stranger(other, "telegram:8", direct=True)
    assert names(known) == ["telegram:7", "telegram:8"]
    await known.handle_stranger(said("hi"), "telegram:7", direct=True)
    assert names(known) == ["Eve", "telegram:8"]
    renamed = msgspec.structs.replace(said("hi"), sender=Sender("7", "Mallory"))
    await known.handle_stranger(renamed, "telegram:7", direct=True)
    assert names(known) == ["Eve", "telegram:8"], "admins decide about the first name"


async def test_an_approved_code_gives_access_until_it_is_revoked(
    store: SessionStore, clock: SetClock
) -> None:
    known = await people(store, clock)
    code = str((await known.handle_stranger(said("hi"), "telegram:7", direct=True)).fields["code"])
    assert await known.approve(code.lower()) == ("telegram:7", "Eve")
    assert await known.approve(code) is None
    assert not known.has_admin
    assert known.admins() == ()
    later = await people(store, clock)
    assert decide_access(later.current_policy(), said("hi")) == Allowed("telegram:7", Role.MEMBER)
    assert later.list_people()[0].describe(clock.time).startswith("member since")
    assert await later.revoke("telegram:7")
    assert isinstance(decide_access(later.current_policy(), said("hi")), Stranger)
    assert not await later.revoke("telegram:7")


async def test_a_right_code_after_wrong_ones_is_delayed_and_not_refused(
    store: SessionStore, clock: SetClock
) -> None:
    known = await people(store, clock)
    code = str((await known.handle_stranger(said("hi"), "telegram:7", direct=True)).fields["code"])
    for _ in range(4):
        assert await known.approve("AAAAAAAA") is None
    for passed, seconds in ((0, 2), (999, 2), (1, 1), (999, 1)):
        clock.time += passed
        with pytest.raises(CodeDelayed, match=f" {seconds} s") as refused:
            await known.approve(code)
        assert refused.value.seconds == seconds
    clock.time += 1
    assert await known.approve(code) == ("telegram:7", "Eve")


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
    fields = {"name": "Eve", "principal": "telegram:99", "chat": "telegram"}
    assert late == StrangerNotices(admin_notice=NoticeId.REFUSED_MENTION, admin_fields=fields)


async def test_strangers_beyond_the_codes_cause_one_notice_and_one_digest(
    store: SessionStore, clock: SetClock
) -> None:
    known = await people(store, clock)
    for number in range(MAX_OPEN_PER_PLATFORM):
        await known.handle_stranger(said("hi", str(number)), f"telegram:{number}", direct=True)
    answers = [
        await known.handle_stranger(said("hi", str(person)), f"telegram:{person}", direct=True)
        for person in (99, *range(200, 300))
        for _ in range(4)
    ]
    mention = said("bot?", "300", direct=False)
    answers.append(await known.handle_stranger(mention, "telegram:300", direct=False))
    assert [each.admin_notice for each in answers if each.admin_notice] == ["refused_mention"]
    assert not any(each.notice for each in answers)
    assert known.take_stranger_digest() == 0
    clock.time += 3_600_000
    assert known.take_stranger_digest() == 101
    assert known.take_stranger_digest() == 0


@pytest.mark.parametrize("text", ["hi", "claim AAAAAAAA"])
async def test_a_stranger_who_writes_all_the_time_gets_few_replies(
    store: SessionStore, clock: SetClock, text: str
) -> None:
    known = await people(store, clock)
    replies = [
        (await known.handle_stranger(said(text), "telegram:7", direct=True)).notice
        for _ in range(400)
    ]
    assert sum(notice is not None for notice in replies) <= 6


async def test_without_pairing_strangers_get_no_reply(store: SessionStore, clock: SetClock) -> None:
    known = await people(store, clock, pairing=False)
    greeting = await known.handle_stranger(said("hi"), "telegram:7", direct=True)
    assert (greeting.notice, greeting.admin_notice) == (None, None)


async def test_admins_are_notified_of_a_mention_once_a_day(
    store: SessionStore, clock: SetClock
) -> None:
    known = await people(store, clock)
    mention = said("bot?", direct=False)
    fields = {"name": "Eve", "principal": "telegram:7", "chat": "-100"}
    assert await known.handle_stranger(mention, "telegram:7", direct=False) == StrangerNotices(
        admin_notice=NoticeId.REFUSED_MENTION, admin_fields=fields
    )
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
    for _ in range(4):
        assert not await known.claim("telegram:9", "Bob", "AAAAAAAA")
    for typed in ("AAAAAAAA", code):
        refused = await known.handle_stranger(said(f"claim {typed}"), "telegram:9", direct=True)
        assert (refused.notice, refused.fields) == ("code_delayed", {"seconds": 2})
    greeting = await known.handle_stranger(said(f"claim {code}"), "telegram:7", direct=True)
    assert (greeting.notice, greeting.stored) == ("claimed", True)
    assert decide_access(known.current_policy(), said("hi")) == Allowed("telegram:7", Role.ADMIN)
    assert known.admins() == ("discord:5", "slack:T1/U3", "telegram:7")
    assert known.has_admin
    assert (
        await known.handle_stranger(said(f"claim {code}"), "telegram:8", direct=True)
    ).notice == ("claim_refused")


async def test_a_person_with_the_right_code_is_told_to_wait_after_every_wrong_one(
    store: SessionStore, clock: SetClock
) -> None:
    known = await people(store, clock)
    code = await known.create_claim_code()

    async def claims(typed: str) -> str | None:
        return (
            await known.handle_stranger(said(f"claim {typed}"), "telegram:9", direct=True)
        ).notice

    for wrong in range(10):
        assert await claims("AAAAAAAA") == "claim_refused", wrong
        if wrong >= 3:
            assert await claims(code) == "code_delayed", wrong
            clock.time += 1_000 << (wrong - 2)
    assert await claims(code) == "claimed"


async def test_a_new_claim_code_invalidates_the_older_one(
    store: SessionStore, clock: SetClock
) -> None:
    known = await people(store, clock)
    old, new = await known.create_claim_code(), await known.create_claim_code()
    assert await known.handle_stranger(
        said(f"claim {old}", "8"), "telegram:8", direct=True
    ) == StrangerNotices(NoticeId.CLAIM_REFUSED)
    assert not await known.claim("telegram:7", "Eve", old)
    assert await known.claim("telegram:7", "Eve", new)


async def test_a_claim_code_is_open_to_everyone_and_leaves_pairing_requests_alone(
    store: SessionStore, clock: SetClock
) -> None:
    known = await people(store, clock)
    assert not known.current_policy().claim_open
    waiting = await ask_for_access(known, "8")
    assert not known.current_policy().claim_open
    code = await known.create_claim_code()
    assert known.current_policy().claim_open
    claim = (await state_of(store)).codes[-1]
    assert (claim.platform, claim.principal) == ("", "")
    assert [each.principal for each in known.list_people()] == ["telegram:8"]
    assert await known.claim("telegram:7", "Eve", code)
    assert not known.current_policy().claim_open
    assert await known.approve(waiting) == ("telegram:8", "Eve")


async def test_people_are_described_with_id_name_role_source_and_times(
    store: SessionStore, clock: SetClock
) -> None:
    clock.time = 1_790_000_000_000
    known = await people(store, clock, allow=("telegram:5",), admins=("telegram:4",))
    await known.approve(await ask_for_access(known, "8"))
    await known.claim("telegram:9", "Bob", await known.create_claim_code())
    await ask_for_access(known, "7")
    await known.create_claim_code()
    clock.time += 60_000
    asked, since = "2026-09-21T14:13:20.000Z", "2026-09-21"
    configured = {"source": "configuration", "name": None, "since": None, "code_expires_at": None}
    paired = {"source": "pairing", "since": asked, "code_expires_at": None}
    assert known.describe_people() == [
        {
            "principal": "telegram:7",
            "name": "Eve",
            "role": None,
            "source": "request",
            "state": "asks for access, 60 s ago; the code is valid for 59 min",
            "since": asked,
            "code_expires_at": "2026-09-21T15:13:20.000Z",
        },
        {
            **configured,
            "principal": "telegram:4",
            "role": "admin",
            "state": "admin, in the configuration",
        },
        {
            **configured,
            "principal": "telegram:5",
            "role": "member",
            "state": "member, in the configuration",
        },
        {
            **paired,
            "principal": "telegram:8",
            "name": "Eve",
            "role": "member",
            "state": f"member since {since}",
        },
        {
            **paired,
            "principal": "telegram:9",
            "name": "Bob",
            "role": "admin",
            "state": f"admin since {since}",
        },
    ]


async def test_a_paired_person_who_claims_becomes_an_admin_and_the_others_keep_access(
    store: SessionStore, clock: SetClock
) -> None:
    known = await people(store, clock)
    for person in "78":
        await known.approve(await ask_for_access(known, person))
    await known.claim("telegram:7", "Eve", await known.create_claim_code())
    policy = known.current_policy()
    assert policy.appointed == {"telegram:7"}
    assert policy.approved == {"telegram:8"}
    assert [each.principal for each in known.list_people()] == ["telegram:8", "telegram:7"]
    assert known.admins() == ("telegram:7",)


@pytest.mark.parametrize(
    ("admins", "claimed", "has_admin"),
    [((), False, False), (("telegram:1",), False, True), ((), True, True)],
)
async def test_an_admin_is_configured_or_claims(
    store: SessionStore, clock: SetClock, admins: tuple[str, ...], *, claimed: bool, has_admin: bool
) -> None:
    known = await people(store, clock, admins=admins)
    await known.approve(await ask_for_access(known, "8"))
    if claimed:
        await known.claim("telegram:9", "Bob", await known.create_claim_code())
    assert known.has_admin is has_admin


async def test_revoking_a_person_who_waits_deletes_the_code(
    store: SessionStore, clock: SetClock
) -> None:
    known = await people(store, clock)
    code, other = await ask_for_access(known, "7"), await ask_for_access(known, "8")
    assert await known.revoke("telegram:7")
    assert await known.approve(code) is None
    assert await known.approve(other) == ("telegram:8", "Eve")


async def test_wrong_codes_are_counted_by_person_for_a_day(
    store: SessionStore, clock: SetClock
) -> None:
    known = await people(store, clock)
    began = clock.time
    assert not await known.claim("telegram:1", "Ann", "AAAAAAAA")
    assert not await known.claim("telegram:2", "Bob", "AAAAAAAA")
    assert await known.approve("AAAAAAAA") is None
    once = FailedAttempts(1, began)
    expected = {"telegram:1": once, "telegram:2": once, "": once}
    assert (await state_of(store)).failures == expected
    assert await known.claim("telegram:1", "Ann", await known.create_claim_code())
    assert (await state_of(store)).failures == {"telegram:2": once, "": once}
    clock.time += 86_399_999
    assert not await known.claim("telegram:3", "Cat", "AAAAAAAA")
    assert set((await state_of(store)).failures) == {"telegram:2", "", "telegram:3"}
    clock.time += 1
    assert not await known.claim("telegram:4", "Dan", "AAAAAAAA")
    assert set((await state_of(store)).failures) == {"telegram:3", "telegram:4"}


PAIRED, ASKING = ("telegram:5", "member"), ("telegram:7", "asks")
LATER = ("telegram:6", "asks")


@pytest.mark.parametrize(
    ("operation", "people_after"),
    [
        ("request", {PAIRED, ASKING, LATER, ("telegram:4", "asks")}),
        ("approve", {PAIRED, ("telegram:7", "member"), LATER}),
        ("claim", {PAIRED, ASKING, LATER, ("telegram:9", "admin")}),
        ("new claim code", {PAIRED, ASKING, LATER}),
        ("revoke", {ASKING, LATER}),
    ],
)
async def test_changes_at_the_same_time_are_all_kept(
    store: SessionStore, clock: SetClock, operation: str, people_after: set[tuple[str, str]]
) -> None:
    known = await people(store, clock)
    await known.approve(await ask_for_access(known, "5"))
    code = await ask_for_access(known, "7")
    claim = await known.create_claim_code() if operation == "claim" else ""

    async def change() -> None:
        match operation:
            case "request":
                await ask_for_access(known, "4")
            case "approve":
                await known.approve(code)
            case "claim":
                await known.claim("telegram:9", "Bob", claim)
            case "new claim code":
                await known.create_claim_code()
            case _:
                await known.revoke("telegram:5")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(change())
        tasks.create_task(ask_for_access(known, "6"))
    found = {(each.principal, each.describe(clock.time).split()[0]) for each in known.list_people()}
    assert found == people_after
    assert known.current_policy().claim_open is (operation == "new claim code")


async def ask_for_access(known: People, person: str) -> str:
    """Have a person ask for access; return the code."""
    answer = await known.handle_stranger(said("hi", person), f"telegram:{person}", direct=True)
    return str(answer.fields["code"])


async def test_an_open_request_is_listed_with_the_age_of_its_code(
    store: SessionStore, clock: SetClock
) -> None:
    known = await people(store, clock)
    await ask_for_access(known, "7")
    clock.time += 12 * 60_000
    (listed,) = known.list_people()
    assert (listed.principal, listed.name, listed.role) == ("telegram:7", "Eve", None)
    assert listed.code_expires_at == clock.time + CODE_LIFETIME_MS - 12 * 60_000
    assert (
        listed.describe(clock.time) == "asks for access, 12 min ago; the code is valid for 48 min"
    )


async def test_everyone_with_access_is_listed_once_with_the_highest_role(
    store: SessionStore, clock: SetClock
) -> None:
    known = await people(
        store,
        clock,
        admins=("telegram:7", "discord:G/role:1"),
        allow=("telegram:7", "telegram:8", "slack:T1/*"),
    )
    for person in ("7", "8", "9"):
        assert await known.approve(await ask_for_access(known, person))
    await ask_for_access(known, "10")
    await ask_for_access(known, "8")
    listed = {each.principal: each for each in known.list_people()}
    assert len(listed) == len(known.list_people())
    assert {name: each.role for name, each in listed.items()} == {
        "telegram:10": None,
        "telegram:7": "admin",
        "discord:G/role:1": "admin",
        "telegram:8": "member",
        "slack:T1/*": "member",
        "telegram:9": "member",
    }
    assert listed["telegram:7"].describe(clock.time) == "admin, in the configuration"
    assert listed["telegram:7"].name == "Eve"
    assert listed["telegram:9"].describe(clock.time).startswith("member since")


async def test_an_open_request_is_approved_by_the_stable_id(
    store: SessionStore, clock: SetClock
) -> None:
    known = await people(store, clock)
    await ask_for_access(known, "7")
    await ask_for_access(known, "8")
    assert await known.approve("telegram:9") is None
    assert await known.approve("telegram:7") == ("telegram:7", "Eve")
    assert decide_access(known.current_policy(), said("hi")) == Allowed("telegram:7", Role.MEMBER)
    assert await known.approve("telegram:7") is None
    clock.time += CODE_LIFETIME_MS
    assert await known.approve("telegram:8") is None


async def test_approving_by_id_does_not_count_as_a_guessed_code(
    store: SessionStore, clock: SetClock
) -> None:
    known = await people(store, clock)
    code = await ask_for_access(known, "7")
    for _ in range(10):
        assert await known.approve("telegram:99") is None
    assert await known.approve(code) == ("telegram:7", "Eve")
    for _ in range(4):
        assert await known.approve("AAAAAAAA") is None
    await ask_for_access(known, "8")
    assert await known.approve("telegram:8") == ("telegram:8", "Eve")


@pytest.mark.parametrize("step", ["a code", "an approval", "a claim"])
async def test_notices_are_stored_together_with_what_they_tell(
    store: SessionStore, clock: SetClock, step: str
) -> None:
    """A person must not miss a notice because the process died right behind the change."""
    known = await people(store, clock)
    refused = [SetTitle("unknown", "a change that the store refuses")]
    if step == "a code":
        with pytest.raises(RecordNotFound):
            await known.handle_stranger(
                said("hi"), "telegram:7", direct=True, changes_of=lambda _: refused
            )
        assert known.list_people() == []
        asked = await known.handle_stranger(said("hi"), "telegram:7", direct=True)
        assert asked.notice is NoticeId.PAIRING_CODE
        return
    if step == "an approval":
        await known.handle_stranger(said("hi"), "telegram:7", direct=True)
        with pytest.raises(RecordNotFound):
            await known.approve("telegram:7", lambda _: refused)
        assert await known.approve("telegram:7") == ("telegram:7", "Eve")
        return
    code = await known.create_claim_code()
    with pytest.raises(RecordNotFound):
        await known.handle_stranger(
            said(f"claim {code}"), "telegram:7", direct=True, changes_of=lambda _: refused
        )
    assert not known.has_admin
    claimed = await known.handle_stranger(said(f"claim {code}"), "telegram:7", direct=True)
    assert claimed.notice is NoticeId.CLAIMED
