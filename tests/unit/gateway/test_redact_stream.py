"""Masking of secrets in streamed text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.observe.redact import Redactor
from gateway.observe.redact_stream import RedactingStream, hold_back, mask_unfinished
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
    f"hf-{(KEY * 3)[:43]}",
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
@pytest.mark.parametrize("before", ["It is ", "", "ppp\n"])
def test_secret_split_over_chunks_is_masked(secret: str, size: int, before: str) -> None:
    text = f"{before}{secret} and that was it."
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert "".join(shown(pieces)) == Redactor([Secret(OWN)]).redact(text)
    assert "***" in "".join(shown(pieces))


@pytest.mark.parametrize(
    "text",
    ["word ", "Hello, world! ", "日本語のテキスト", "x" * 100, "line\n", "a_b(c)[d]{e} "],
)
def test_ordinary_words_pass_at_once(text: str) -> None:
    assert shown([text, text]) == [text, text, ""]


@pytest.mark.parametrize(
    ("pieces", "seen"),
    [
        pytest.param(["bus", "k-lane"], ["bus", "k-lane", ""], id="no prefix inside a word"),
        pytest.param(["ta", f"sk-{KEY} "], ["ta", f"sk-{KEY} ", ""], id="no token inside a word"),
        pytest.param(
            ["C", f"{'C' * 23}.GaBcDe.{'x' * 38}"], ["C", "***", ""], id="a token shown in part"
        ),
        pytest.param(
            [f"ppp{OWN[:4]}", f"{OWN[4:]}!"], ["ppp", "***!", ""], id="its first letter before"
        ),
    ],
)
def test_the_text_before_a_piece_counts(pieces: list[str], seen: list[str]) -> None:
    assert shown(pieces) == seen


def test_no_more_than_20000_characters_are_held() -> None:
    head = "-----BEGIN PRIVATE KEY-----\n"
    stream = RedactingStream(Redactor())
    assert stream.add(head + "x" * (20_000 - len(head))) == ""
    assert stream.add("x") == "***"


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


@pytest.mark.parametrize("secret", [secret for secret in SECRETS if "://" not in secret])
def test_no_beginning_of_a_secret_is_shown_of_a_growing_text(secret: str) -> None:
    redactor = Redactor([Secret(OWN)])
    whole = f"It is {secret} and so on."
    for end in range(len(whole)):
        text = redactor.redact(hold_back(whole[:end], redactor))
        assert redactor.redact(whole).startswith(text), text


@pytest.mark.parametrize("beginning", ["sk-a1b2", OWN[:4], "-----BEGIN RSA PRIV", "1234:"])
def test_a_secret_at_the_beginning_of_a_growing_text_is_held_back(beginning: str) -> None:
    assert hold_back(beginning, Redactor([Secret(OWN)])) == ""


@pytest.mark.parametrize(("length", "held"), [(20_000, True), (20_001, False)])
def test_no_more_than_20000_characters_of_a_growing_text_are_held(length: int, held: bool) -> None:
    key = "-----BEGIN PRIVATE KEY-----\n".ljust(length, "x")
    assert hold_back(f"word\n{key}", Redactor()) == ("word\n" if held else f"word\n{key}")


@pytest.mark.parametrize("text", ["", "word", "Hello, world!", "line\n", "日本語", "a_b(c)"])
def test_a_growing_text_of_ordinary_words_is_shown_whole(text: str) -> None:
    assert hold_back(text, Redactor([Secret(OWN)])) == text


@pytest.mark.parametrize("part", ["a", "://", "sk-", "-", "1", "M"])
def test_only_the_end_of_a_long_text_is_searched(part: str) -> None:
    text = part * 2_000_000
    assert hold_back("-----BEGIN " + text, Redactor([Secret(OWN)])).startswith("-----BEGIN ")
    assert hold_back(f"{text} -----BEGIN PRIV", Redactor()) == f"{text} "


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("It is sk-a1b2c3d4e5f6", "It is ***"),
        ("It is ghp_a1b2c3d4e5f6", "It is ***"),
        (f"It is {OWN[:12]}", "It is ***"),
        (f"It is {OWN[:8]}", "It is ***"),
        (f"It is {OWN[:7]}", f"It is {OWN[:7]}"),
        (OWN[:12], "***"),
        ("sk-a1b2c3d4e5f6", "***"),
        ("It is sk-a1b2c3d4e5f6, or so", "It is sk-a1b2c3d4e5f6, or so"),
        ("the branch sk-12-fix", "the branch sk-12-fix"),
        ("use sk-learn-and-nothing-else", "use sk-learn-and-nothing-else"),
        ("see http://localhost:8420", "see http://localhost:8420"),
        ("call 1234567890", "call 1234567890"),
        ("a ---", "a ---"),
        ("", ""),
    ],
)
def test_the_end_of_a_cut_text_is_masked_only_if_it_begins_a_secret(text: str, masked: str) -> None:
    assert mask_unfinished(text, Redactor([Secret(OWN)])) == masked
