"""Codes: shown once, stored as hashes, valid for an hour and one use."""

import itertools
import secrets
from collections.abc import Sequence

import msgspec
import pytest

from gateway.access.pairing import (
    CODE_ALPHABET,
    CODE_LIFETIME_MS,
    MAX_OPEN_PER_PLATFORM,
    MAX_WAIT_MS,
    CodeAlreadyOffered,
    CodeExpired,
    CodeInvalid,
    CodeKind,
    CodeRedeemed,
    OfferCode,
    PairingCode,
    PairingFull,
    decide_offer,
    find_claim_code,
    hash_code,
    new_code,
    next_allowed_attempt,
    normalize_code,
    redeem_code,
)

KEY = b"of this installation"


def code(text: str = "ABCDEFGH", person: int = 1, **given: object) -> PairingCode:
    fields = {
        "kind": CodeKind.PAIR,
        "digest": hash_code(text, KEY),
        "platform": "telegram",
        "principal": f"telegram:{person}",
        "created_at": 0,
        **given,
    }
    return PairingCode(**fields)  # type: ignore[arg-type]  # a dict has one type for all its values


def test_the_limits_are_those_of_the_documentation() -> None:
    assert (CODE_LIFETIME_MS, MAX_OPEN_PER_PLATFORM, MAX_WAIT_MS) == (3_600_000, 20, 3_600_000)


@pytest.mark.parametrize("kind", CodeKind)
def test_codes_that_an_older_version_stored_can_be_read(kind: CodeKind) -> None:
    stored = f'{{"kind":"{kind.name.lower()}","digest":"d","platform":"p","principal":"p:1","created_at":5}}'
    assert msgspec.json.decode(stored, type=PairingCode) == PairingCode(
        kind=kind, digest="d", platform="p", principal="p:1", created_at=5, name=""
    )


def test_a_code_has_eight_unambiguous_characters() -> None:
    made = {new_code(secrets.choice) for _ in range(200)}
    assert len(made) == 200
    assert {len(each) for each in made} == {8}
    assert set("".join(made)) <= set(CODE_ALPHABET)
    assert not set("01IO") & set(CODE_ALPHABET)
    assert len(CODE_ALPHABET) == len(set(CODE_ALPHABET)) == 32, "each is as likely as the others"


def test_every_character_of_a_code_is_chosen_separately() -> None:
    turn = itertools.count()

    def choose(signs: Sequence[str]) -> str:
        return signs[next(turn)]

    assert new_code(choose) == CODE_ALPHABET[:8]


@pytest.mark.parametrize("typed", ["ABCDEFGH", "abcdefgh", "abcd-efgh", "ABCD EFGH", " abcdefgh\n"])
def test_a_code_is_recognized_however_it_is_typed(typed: str) -> None:
    assert normalize_code(typed) == "ABCDEFGH"
    assert redeem_code([code()], typed, KEY, CodeKind.PAIR, now=1) == CodeRedeemed(code())


def test_the_stored_hash_does_not_reveal_the_code_and_needs_the_key() -> None:
    assert "ABCDEFGH" not in repr(code())
    assert hash_code("ABCDEFGH", KEY) != hash_code("ABCDEFGH", b"of another")
    assert redeem_code([code()], "ABCDEFGH", b"of another", CodeKind.PAIR, now=1) == CodeInvalid()


@pytest.mark.parametrize(
    ("now", "outcome"),
    [
        (0, CodeRedeemed(code())),
        (CODE_LIFETIME_MS - 1, CodeRedeemed(code())),
        (CODE_LIFETIME_MS, CodeExpired()),
        (CODE_LIFETIME_MS * 30, CodeExpired()),
    ],
)
def test_a_code_is_valid_for_an_hour(now: int, outcome: object) -> None:
    assert redeem_code([code()], "ABCDEFGH", KEY, CodeKind.PAIR, now) == outcome


def test_a_used_code_is_invalid() -> None:
    assert redeem_code([], "ABCDEFGH", KEY, CodeKind.PAIR, now=1) == CodeInvalid()


def test_the_matching_one_of_several_codes_is_found() -> None:
    codes = [code("AAAAAAAA", 1), code("BBBBBBBB", 2), code("CCCCCCCC", 3)]
    assert redeem_code(codes, "BBBBBBBB", KEY, CodeKind.PAIR, now=1) == CodeRedeemed(codes[1])


@pytest.mark.parametrize(
    ("has", "wants"), [(CodeKind.PAIR, CodeKind.CLAIM), (CodeKind.CLAIM, CodeKind.PAIR)]
)
def test_pairing_and_claim_codes_are_not_interchangeable(has: CodeKind, wants: CodeKind) -> None:
    assert redeem_code([code(kind=has)], "ABCDEFGH", KEY, wants, now=1) == CodeInvalid()


def test_a_person_gets_one_code_at_a_time() -> None:
    assert decide_offer([], "telegram", "telegram:1", now=5) == OfferCode()
    assert decide_offer([code()], "telegram", "telegram:1", now=5) == CodeAlreadyOffered(
        CODE_LIFETIME_MS
    )
    assert decide_offer([code()], "telegram", "telegram:2", now=5) == OfferCode()
    assert decide_offer([code()], "telegram", "telegram:1", now=CODE_LIFETIME_MS) == OfferCode()


def test_twenty_people_may_wait_on_a_platform() -> None:
    full = [code(person=number) for number in range(20)]
    assert decide_offer(full[:19], "telegram", "telegram:99", now=5) == OfferCode()
    assert decide_offer(full, "telegram", "telegram:99", now=5) == PairingFull()
    assert decide_offer(full, "telegram", "telegram:3", now=5) == CodeAlreadyOffered(
        CODE_LIFETIME_MS
    )
    assert decide_offer(full, "slack", "slack:T1/U1", now=5) == OfferCode()
    assert decide_offer(full, "telegram", "telegram:99", now=CODE_LIFETIME_MS) == OfferCode()


def test_a_claim_code_does_not_count_as_waiting() -> None:
    claims = [code(person=number, kind=CodeKind.CLAIM) for number in range(20)]
    assert decide_offer(claims, "telegram", "telegram:3", now=5) == OfferCode()


@pytest.mark.parametrize(
    ("failures", "wait"),
    [
        (0, 0),
        (1, 0),
        (3, 0),
        (4, 2_000),
        (5, 4_000),
        (6, 8_000),
        (14, 2_048_000),
        (15, MAX_WAIT_MS),
        (10_000, MAX_WAIT_MS),
    ],
)
def test_wrong_codes_cause_growing_waits(failures: int, wait: int) -> None:
    assert next_allowed_attempt(failures, last_failed_at=7) == 7 + wait


def test_guessing_a_code_within_its_lifetime_is_hopeless() -> None:
    now = tries = 0
    while now < CODE_LIFETIME_MS:
        tries += 1
        now = next_allowed_attempt(tries, now)
    assert tries < 20


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("claim ABCDEFGH", "ABCDEFGH"),
        ("Claim abcd-efgh", "ABCDEFGH"),
        ("/claim ABCDEFGH", "ABCDEFGH"),
        ("/start ABCDEFGH", "ABCDEFGH"),
        ("/start@holdfastbot ABCDEFGH", "ABCDEFGH"),
        ("!start ABCDEFGH", "ABCDEFGH"),
        (" claim   ABCDEFGH \n", "ABCDEFGH"),
        ("/start", None),
        ("claim", None),
        ("ABCDEFGH", None),
        ("claim ABCDEFG", None),
        ("claim ABCDEFGHJ", None),
        ("claim ABCDEFG0", None),
        ("I claim ABCDEFGH", None),
        ("claim ABCDEFGH now", None),
    ],
)
def test_a_claim_code_is_found_in_a_message(text: str, found: str | None) -> None:
    assert find_claim_code(text) == found
