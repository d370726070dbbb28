"""Secrets that appear only when Markdown is drawn."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.observe.redact import Redactor
from gateway.observe.redact_drawn import redact_markdown
from platforms.core.document import Paragraph, parse, to_plain_text
from sessions.values.secret import Secret

_KEY = "sk-a1b2c3d4-e5f6a7b8c9d0_x1"
_CLEAN = Redactor([Secret("opensesame"), Secret("open-sesame")])


def _drawn(text: str) -> str:
    return "\n".join(
        to_plain_text(block.children, urls=False)
        for block in parse(text)
        if isinstance(block, Paragraph)
    )


@pytest.mark.parametrize(
    "text",
    [
        "It is opensesame.",
        "It is open**sesame**.",
        "It is **open**sesame.",
        "It is *open*sesame.",
        "It is open\\-sesame.",
        "It is open&#45;sesame.",
        "It is open&#x2d;sesame.",
        "It is &#111;pensesame.",
        "It is open~~sesame~~.",
        "It is `open`sesame.",
        "It is o||pensesame||.",
        f"It is {_KEY[:9]}**{_KEY[9:]}**.",
        "Fine *text*.\n\nIt is open**sesame**.\n\n- fine",
        "It is [open](https://example.org)sesame.",
        "It is o[pen](https://example.org 'or so')sesame.",
        "It is [open][1]sesame.\n\n[1]: https://example.org",
        "It is open[sesame].\n\n[sesame]: https://example.org",
        "It is [open][1]sesame.\n\n> [1]: https://example.org",
        "It is [open][1]sesame.\n\n- [1]: https://example.org",
        "It is [open][1\n2]sesame.\n\n[1\n2]: https://example.org",
        "> It is open**sesame**.",
        "- It is open**sesame**.",
        "It is open<b></b>sesame.",
        "It is open<b>sesame</b>.",
        "It is <i>open</i>sesame.",
        "It is open<u>ses</u>ame.",
        "It is open<code>sesame</code>.",
        "It is open<kbd>sesame</kbd>.",
        "It is o<SUB>pen</SUB>ses<sup>ame</sup>.",
        'It is <a href="https://example.org">open</a>sesame.',
        "It is open<a class=x href='https://example.org'>sesame</a>.",
    ],
)
def test_a_secret_split_by_markup_is_masked(text: str) -> None:
    shown = _drawn(redact_markdown(text, _CLEAN))
    for secret in ("opensesame", "open-sesame", _KEY):
        assert secret not in shown
    assert "***" in shown


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("MTk4NjIyNDgzNDcxOTI1MjQ4.GaBcDe.", "x" * 38, id="a token of Discord"),
        pytest.param("-----BEGIN PRIVATE ", "KEY-----\nMIIEabc", id="a private key"),
        pytest.param("-----BEGIN ", "PRIVATE KEY-----\nMIIEabc", id="a private key, earlier"),
    ],
)
def test_a_token_split_by_markup_is_masked(before: str, after: str) -> None:
    shown = _drawn(redact_markdown(f"It is {before}**{after}**", _CLEAN))
    assert shown == "It is ***"


@pytest.mark.parametrize(
    "head", ["-----BEGIN **RSA** PRIVATE KEY-----", "-----**BEGIN** RSA PRIVATE KEY-----"]
)
def test_a_private_key_of_several_paragraphs_with_a_split_head_is_masked(head: str) -> None:
    text = (
        f"*Fine.*\n\nopen**sesame** *a*\n\nSee {head}\nProc-Type: 4,ENCRYPTED\n\nMIIE\n\nMIIF\n"
        "-----END RSA PRIVATE KEY-----\n\nThe *end*."
    )
    cleaned = redact_markdown(text, _CLEAN)
    assert cleaned == "*Fine.*\n\n\\*\\*\\* a\n\nSee \\*\\*\\*\n\nThe end."


@pytest.mark.parametrize(
    "text",
    [
        "open **sesame!**",
        "**open** sesame!",
        "_open_ sesame!",
        "open _sesame!_",
        "open sesame`!`",
        "open sesame&#33;",
        "open [sesame](https://example.org)!",
        "|open [sesame](https://example.org)!|second|\n|-|-|",
        "|a|b|\n|-|-|\n|open [sesame](https://example.org)!|second|",
    ],
)
def test_a_secret_of_several_words_split_by_markup_is_masked(text: str) -> None:
    cleaned = redact_markdown(text, Redactor([Secret("open sesame!")]))
    assert "sesame" not in cleaned
    assert "\\*\\*\\*" in cleaned


@pytest.mark.parametrize("text", ["_open_-sesame", "open-_sesame_", "__open__-sesame"])
def test_a_secret_split_by_underscores_is_masked(text: str) -> None:
    assert redact_markdown(text, _CLEAN) == "\\*\\*\\*"


def test_a_percent_encoded_secret_split_by_markup_is_masked() -> None:
    cleaned = redact_markdown("a%2Fb%2Fcdef%**21g**", Redactor([Secret("a/b/cdef!g")]))
    assert cleaned == "\\*\\*\\*"


@pytest.mark.parametrize(
    ("text", "possible"),
    [
        ("It is opensesame", True),
        ("It is opens", False),
        (f"It is {_KEY}", True),
        ("It is sk-learn", False),
        ("It is MTk4NjIyNDgzNDcxOTI1MjQ4.GaBcDe." + "x" * 38, True),
        ("It is a.GaBcDe.x", False),
        ("-----BEGIN PRIVATE KEY-----\nMIIEabc", True),
        ("-----BEGIN", False),
        ("", False),
    ],
)
def test_text_that_cannot_have_had_a_secret_needs_no_drawing(text: str, possible: bool) -> None:
    assert _CLEAN.may_contain(text, _without_dashes) is possible


def _without_dashes(text: str) -> str:
    return text.replace("-", "")


def test_a_secret_added_after_a_check_is_found_by_the_next_one() -> None:
    redactor = Redactor([Secret("opensesame")])
    assert not redactor.may_contain("new secret: swordfish", _without_dashes)
    redactor.add(Secret("sword-fish"))
    assert redactor.may_contain("new secret: swordfish", _without_dashes)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        pytest.param(
            "It is open**sesame**.\n```\nsome code\n```",
            "It is \\*\\*\\*.\n\nsome code",
            id="a code block",
        ),
        pytest.param(
            "|a|b|\n|-|-|\n|open**sesame**|second|",
            "a  b\n\n\\*\\*\\*  second",
            id="a table",
        ),
    ],
)
def test_the_other_words_of_a_paragraph_with_a_secret_stay(text: str, cleaned: str) -> None:
    assert redact_markdown(text, _CLEAN) == cleaned


def test_a_secret_of_two_paragraphs_is_masked() -> None:
    secret = Redactor([Secret("open\n\nsesa")])
    assert redact_markdown("Say &#111;pen\n\nsesa.", secret) == "Say \\*\\*\\*."


def test_other_paragraphs_keep_their_style() -> None:
    text = "Fine **text**.\n\nIt is open**sesame** [x](y).\n\n- *fine*"
    assert redact_markdown(text, _CLEAN).startswith("Fine **text**.\n\n")
    assert redact_markdown(text, _CLEAN).endswith("\n\n- *fine*")


@pytest.mark.parametrize(
    "text",
    ["**bold**ness and `co_de` *2*", "open **sesame**", "foo_bar_baz [a](https://b.example/_c_)"],
)
def test_text_without_secrets_is_unchanged(text: str) -> None:
    assert redact_markdown(text, _CLEAN) == text


_WORDS = Redactor([Secret("open! sesame")])
_PIECES = (
    "open",
    "sesame",
    "-",
    "**",
    "*",
    "_",
    "`",
    "~~",
    "||",
    "\\",
    "&#45;",
    " ",
    "!",
    "\n",
    "[",
    "](x)",
    "](https://x.example)",
    "](https://x.example 'so')",
    "\n\n[open]: https://x.example\n\n",
)


@given(st.lists(st.sampled_from(_PIECES), max_size=12).map("".join))
def test_no_drawn_text_has_the_secret(text: str) -> None:
    shown = _drawn(redact_markdown(text, _CLEAN))
    assert "opensesame" not in shown
    assert "open-sesame" not in shown


@given(st.lists(st.sampled_from(_PIECES), max_size=12).map("".join))
def test_no_drawn_text_has_the_secret_of_several_words(text: str) -> None:
    assert "open! sesame" not in _drawn(redact_markdown(text, _WORDS))
