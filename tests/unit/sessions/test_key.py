import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.key import SessionKey, parse_key

PART = st.text(min_size=1, max_size=12)
OPTIONAL = st.one_of(st.just(""), PART)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("telegram:1001", SessionKey(platform="telegram", chat="1001")),
        ("telegram:-100123:u=1001", SessionKey(platform="telegram", chat="-100123", user="1001")),
        ("telegram:-100123:t=7", SessionKey(platform="telegram", chat="-100123", thread="7")),
        ("slack:T1/D1", SessionKey(platform="slack", chat="T1/D1")),
        (
            "slack@work:T1/C1:t=9.1",
            SessionKey(platform="slack", chat="T1/C1", account="work", thread="9.1"),
        ),
    ],
)
def test_keys_are_written_as_documented(text: str, key: SessionKey) -> None:
    assert parse_key(text) == key
    assert str(key) == text


@given(PART, PART, OPTIONAL, OPTIONAL, OPTIONAL)
def test_every_key_can_be_parsed_back(
    platform: str, chat: str, account: str, thread: str, user: str
) -> None:
    key = SessionKey(platform=platform, chat=chat, account=account, thread=thread, user=user)
    assert parse_key(str(key)) == key


@pytest.mark.parametrize("text", ["", "telegram", "telegram:", ":1", "a:b:c", "a:b:u="])
def test_an_invalid_key_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="is not a session key"):
        parse_key(text)
