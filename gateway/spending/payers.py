"""Sans-IO: the people, API keys and users whose limits a request counts against.

The limits of a key replace `[limits]` for a person of the key's own. For another person, whose
messages in chats count too, the key has a count besides the person's. With users below a key, the
values of `[limits]` hold for each user, and the limits of key and person for all users together.
"""

import msgspec

from gateway.access.api_keys import KeyLimits, Requester
from gateway.access.policy import OWNERS
from gateway.settings import LimitSettings, UserLimits


class Payer(msgspec.Struct, frozen=True):
    """A person, key or user with limits; None in a limit means no limit."""

    name: str  # of the row that holds the usage
    label: str  # completes "the limit … for"
    limits: UserLimits


def payers_of(
    limits: LimitSettings, person: str, requester: Requester | None = None
) -> list[Payer]:
    """Return everyone whose limits a request of a person counts against.

    `requester` is the sender of an API request.
    """
    if not person:
        return []
    user = requester.user if requester else ""
    key = requester.limits if requester else KeyLimits()
    key_limits = UserLimits(
        messages_per_minute=key.messages_per_minute,
        tokens_per_day=key.tokens_per_day,
        usd_per_day=key.usd_per_day,
    )
    is_own = requester is not None and requester.has_own_person
    default = UserLimits() if person in OWNERS or user else _default_limits(limits)
    if is_own:
        default = _first_given(key_limits, default)
    payers = [_person_payer(limits, person, default, is_key=is_own and key != KeyLimits())]
    if requester and not is_own and requester.limits != KeyLimits():
        payers.append(Payer(f"key {requester.key}", "this API key", key_limits))
    if user:
        payers.append(_person_payer(limits, f"{person}/{user}", _default_limits(limits)))
    return payers


def message_limits(
    limits: LimitSettings, person: str, requester: Requester | None = None
) -> dict[str, int]:
    """Return the messages per minute of all payers of a request that have such a limit, by name."""
    return {
        payer.name: payer.limits.messages_per_minute
        for payer in payers_of(limits, person, requester)
        if payer.limits.messages_per_minute is not None
    }


def _person_payer(
    limits: LimitSettings, person: str, default: UserLimits, *, is_key: bool = False
) -> Payer:
    personal = limits.users.get(person)
    named = personal and (personal.tokens_per_day is not None or personal.usd_per_day is not None)
    label = "this API key" if is_key else person if named else "each person"
    given = _first_given(personal, default) if personal else default
    return Payer(f"user {person}", label, given)


def _default_limits(limits: LimitSettings) -> UserLimits:
    return UserLimits(
        messages_per_minute=limits.messages_per_minute,
        tokens_per_day=limits.tokens_per_day,
        usd_per_day=limits.usd_per_day,
    )


def _first_given(first: UserLimits, second: UserLimits) -> UserLimits:
    """Return the limits of the first record, and of the second one where the first has none."""
    given = {
        name: getattr(first, name)
        for name in UserLimits.__struct_fields__
        if getattr(first, name) is not None
    }
    return UserLimits(**(msgspec.structs.asdict(second) | given))
