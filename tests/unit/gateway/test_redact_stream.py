"""Masking of secrets in streamed text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.observe.redact import Redactor
from gateway.observe.redact_stream import RedactingStream
from sessions.values.secret import Secret

KEY = "abcdefghij0123456789ABCDEFGHIJ"
OWN = "p@ss word, 7 of them"
SECRETS = [
    "123456789:AAF-abcdefghij0123456789ABCDEFGHIJ",
    f"xoxb-{KEY}",
    f"xapp-1-A0-{KEY}",
    f"sk-{KEY}",
    f"sk-proj-{KEY}",
    f"Bearer {KEY}",
    f"bearer {KEY}==",
    f"ghp_{KEY}{KEY}",
    f"github_pat_{KEY}_{KEY}",
    "AKIA0123456789ABCDEF",
    "AIza" + "x" * 35,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    f"MTk4NjIyNDgzNDcxOTI1MjQ4.GaBcDe.{'x' * 38}",
    "hooks.slack.com/services/T0/B0/abc",
    "postgresql://ann:pw@db/x",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc-def\n-----END RSA PRIVATE KEY-----",
    OWN,
    "p%40ss%20word%2C%207%20of%20them",
]


def shown(pieces: list[str]) -> list[str]:
    veil = RedactingStream(Redactor([Secret(OWN)]))
    return [*map(veil.add, pieces), veil.flush()]


@pytest.mark.parametrize("secret", SECRETS, ids=range(len(SECRETS)))
@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_secret_split_over_chunks_is_masked(secret: str, size: int) -> None:
    text = f"It is {secret} and that was it."
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert "".join(shown(pieces)) == Redactor([Secret(OWN)]).redact(text)
    assert "***" in "".join(shown(pieces))


@pytest.mark.parametrize(
    "text",
    ["word ", "Hello, world! ", "日本語のテキスト", "x" * 100, "line\n", "a_b(c)[d]{e} "],
)
def test_ordinary_words_pass_at_once(text: str) -> None:
    assert shown([text, text]) == [text, text, ""]


_words = st.sampled_from([*SECRETS, "ask-me", "a", "sk-learn", "12:30", "x", "---", "://", "Magic"])


@settings(deadline=None)
@given(st.lists(_words | st.text(max_size=4), max_size=6), st.data())
def test_chunking_does_not_change_the_masked_text(words: list[str], data: st.DataObject) -> None:
    text = " ".join(words)
    pieces = []
    while text:
        size = data.draw(st.integers(1, len(text)))
        pieces.append(text[:size])
        text = text[size:]
    assert "".join(shown(pieces)) == Redactor([Secret(OWN)]).redact("".join(pieces))
