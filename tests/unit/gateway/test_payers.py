"""The people, keys and users whose limits a request counts against."""

import pytest

from gateway.access.api_keys import KeyLimits, KeyRole, Requester
from gateway.settings import LimitSettings, UserLimits
from gateway.spending.payers import Payer, message_limits, payers_of

ANN = "telegram:1001"
LIMITS = LimitSettings(
    messages_per_minute=20,
    tokens_per_day=100,
    users={
        "telegram:1002": UserLimits(tokens_per_day=7),
        "api:laptop": UserLimits(messages_per_minute=3),
        "api:key/ada": UserLimits(tokens_per_day=9),
        "telegram:1003": UserLimits(usd_per_day=0.5),
        "telegram:1004": UserLimits(messages_per_minute=3),
    },
    usd_per_day=8.0,
)
DEFAULT = UserLimits(messages_per_minute=20, tokens_per_day=100, usd_per_day=8.0)
KEY = KeyLimits(messages_per_minute=5, usd_per_day=1.0)
OF_KEY = UserLimits(messages_per_minute=5, usd_per_day=1.0)
ALL_OF_KEY = KeyLimits(messages_per_minute=5, tokens_per_day=6, usd_per_day=1.0)
NONE = UserLimits()


def key(person: str = "api:team", **more: object) -> Requester:
    fields = {"key": "team.1", "name": "team", "person": person, "role": KeyRole.MEMBER} | more
    return Requester(**{"has_own_person": person == "api:team", **fields})  # type: ignore[arg-type] # by name


def payer(person: str, limits: UserLimits, label: str = "each person") -> Payer:
    return Payer(f"user {person}", label, limits)


@pytest.mark.parametrize(
    ("person", "requester", "expected"),
    [
        pytest.param(ANN, None, [payer(ANN, DEFAULT)], id="a person in a chat"),
        pytest.param(
            "telegram:1002",
            None,
            [
                payer(
                    "telegram:1002",
                    UserLimits(messages_per_minute=20, tokens_per_day=7, usd_per_day=8.0),
                    "telegram:1002",
                )
            ],
            id="a person with limits of their own",
        ),
        pytest.param(
            "telegram:1003",
            None,
            [
                payer(
                    "telegram:1003",
                    UserLimits(messages_per_minute=20, tokens_per_day=100, usd_per_day=0.5),
                    "telegram:1003",
                )
            ],
            id="a person with a limit in dollars of their own",
        ),
        pytest.param(
            "telegram:1004",
            None,
            [
                payer(
                    "telegram:1004",
                    UserLimits(messages_per_minute=3, tokens_per_day=100, usd_per_day=8.0),
                )
            ],
            id="a person whose own limit counts messages only",
        ),
        pytest.param(
            ANN,
            key(ANN, limits=ALL_OF_KEY),
            [
                payer(ANN, DEFAULT),
                Payer(
                    "key team.1",
                    "this API key",
                    UserLimits(messages_per_minute=5, tokens_per_day=6, usd_per_day=1.0),
                ),
            ],
            id="all limits of a key",
        ),
        pytest.param("web:owner", None, [payer("web:owner", NONE)], id="the owner"),
        pytest.param("", None, [], id="nobody"),
        pytest.param("api:key", Requester(), [payer("api:key", NONE)], id="the configured key"),
        pytest.param("api:team", key(), [payer("api:team", DEFAULT)], id="a key without limits"),
        pytest.param(
            "api:team",
            key(limits=KEY),
            [
                payer(
                    "api:team",
                    UserLimits(messages_per_minute=5, tokens_per_day=100, usd_per_day=1.0),
                    "this API key",
                )
            ],
            id="limits of a key replace the defaults for its own person",
        ),
        pytest.param(
            "api:laptop",
            key("api:laptop", has_own_person=True, limits=KEY),
            [
                payer(
                    "api:laptop",
                    UserLimits(messages_per_minute=3, tokens_per_day=100, usd_per_day=1.0),
                    "this API key",
                )
            ],
            id="limits.users takes precedence over the key",
        ),
        pytest.param(
            ANN,
            key(ANN, limits=KEY),
            [payer(ANN, DEFAULT), Payer("key team.1", "this API key", OF_KEY)],
            id="a key of a person counts besides the person",
        ),
        pytest.param(ANN, key(ANN), [payer(ANN, DEFAULT)], id="only the person has limits"),
        pytest.param(
            "api:key",
            Requester(user="eve"),
            [payer("api:key", NONE), payer("api:key/eve", DEFAULT)],
            id="a user below the configured key",
        ),
        pytest.param(
            "api:key",
            Requester(user="ada"),
            [
                payer("api:key", NONE),
                payer(
                    "api:key/ada",
                    UserLimits(messages_per_minute=20, tokens_per_day=9, usd_per_day=8.0),
                    "api:key/ada",
                ),
            ],
            id="a user with limits of their own",
        ),
        pytest.param(
            "api:team",
            key(limits=KEY, user="eve"),
            [payer("api:team", OF_KEY, "this API key"), payer("api:team/eve", DEFAULT)],
            id="limits of a key bound all its users together",
        ),
        pytest.param(
            ANN,
            key(ANN, user="eve"),
            [payer(ANN, NONE), payer(f"{ANN}/eve", DEFAULT)],
            id="the defaults hold for each user, not for all together",
        ),
    ],
)
def test_payers_of_a_request(
    person: str, requester: Requester | None, expected: list[Payer]
) -> None:
    assert payers_of(LIMITS, person, requester) == expected


def test_message_limits_are_those_of_the_payers_that_have_one() -> None:
    assert message_limits(LIMITS, "web:owner") == {}
    assert message_limits(LIMITS, "", None) == {}
    found = message_limits(LIMITS, "api:key", Requester(user="eve"))
    assert found == {"user api:key/eve": 20}
    found = message_limits(LIMITS, ANN, key(ANN, limits=KEY))
    assert found == {f"user {ANN}": 20, "key team.1": 5}
