"""Masking of secrets in a text that is shown while it is written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.observe.redact import Redactor
from gateway.observe.redact_growing import GrowingRedaction, redact_shown
from platforms.core.document import CodeBlock, parse, to_plain_text
from platforms.core.document.tree import Paragraph
from sessions.values.secret import Secret
from sessions.values.visible_text import visible_text

_ONE_LINE = Redactor([Secret("opensesame"), Secret("open-sesame")])
_TWO_WORDS = Redactor([Secret("open sesame"), Secret("open-sesame")])
_TWO_LINES = Redactor([Secret("open\n\nsesame")])
_CHARACTERS = Redactor([Secret("pa$$w0rd!")])
_THREE_WORDS = Redactor([Secret("correct horse battery"), Secret("pa$$w0rd!")])
_KEY = "sk-a1b2c3d4-e5f6a7b8c9d0_x1"

_PIECES = (
    *("open", "sesame", "open**sesame**", "open`sesame", "[open][a]sesame", _KEY[:9], _KEY[9:]),
    *(" word ", " é", "Bearer a1b2c3d4e5f6", "g7h8i9j0 ", "\u05d0 ", "$", "&", "earer"),
    *(
        "**",
        "*",
        "_",
        "`",
        "~~",
        "||",
        "\\",
        "-",
        "&#45;",
        "***",
        "[",
        "]",
        "[a]",
        "](https://x.example)",
        "$$",
    ),
    *(" ", "\n", "\n\n", "\n\n\n", "\n \n", "\r\n\r\n", "\r", "\u2028", "\u200d", "\u200e", "\x1b"),
    *(
        "\n- ",
        "\n\n  ",
        "\n\n    ",
        "\n> ",
        "\n1. ",
        "\n```\n",
        "\n\n~~~\n",
        "\n| a | b |\n",
        "|-|-|\n",
    ),
    *(
        "\n[open]: https://x.example\n",
        "\n\n> [a]: https://x.example\n\n",
        "\n- [a]: https://x.example\n\n",
        "\n\n[a\n",
        "]: https://x.example\n",
        "\n[^a]: https://x.example\n",
        "[^a]",
    ),
    *(
        "-----BEGIN",
        " PRIVATE KEY-----",
        "-----END PRIVATE KEY-----",
        "Bearer ",
        "\nxoxb-",
        "1234567890:",
    ),
)

_SPLIT_PIECES = (
    *(
        "pa",
        "$$",
        "$",
        "w0rd",
        "!",
        "pa$**$w0rd!**",
        "pa[$$](https://x.example)w0rd!",
        "pa\\$\\$",
        "&#33;",
        "`!`",
    ),
    *(
        "correct ",
        "horse",
        " battery",
        "**horse** ",
        "_horse_ ",
        "[horse](https://x.example) ",
        "[horse][a] ",
    ),
    *(
        "correct **horse** battery",
        "**correct",
        "  ",
        "&#32;",
        "<br>",
        '[horse](https://x.example "a b") ',
    ),
    *(
        "-----BEGIN **RSA** PRIVATE KEY-----",
        "-----BEGIN ",
        "**RSA** ",
        "PRIVATE KEY-----",
        "-----",
    ),
    *("**BEG**IN ", "-----END RSA PRIVATE KEY-----", "MII", "\n\nMIIE"),
    *(
        " ",
        "\n",
        "\n\n",
        "**",
        "_",
        "`",
        "\\",
        "[",
        "](https://x.example)",
        "](https://x.example 'a ",
        "b')",
        "\n\n[a]: https://x.example\n",
        "word ",
        "é",
    ),
    *("\n- ", "\n> ", "\n```\n", "\n\n    ", "| ", "\n|-|-|\n"),
)
"""Parts of secrets with blanks and characters that are not part of words, split by marks and links."""


def _whole(text: str, redactor: Redactor) -> str:
    return redact_shown(visible_text(text), redactor)


def _assert_same_at_each_prefix(pieces: list[str], redactor: Redactor) -> None:
    redaction, text = GrowingRedaction(redactor), ""
    for piece in pieces:
        text += piece
        assert redaction.redact(text) == _whole(text, redactor)


@pytest.mark.parametrize(
    "redactor", [_ONE_LINE, _TWO_WORDS, _TWO_LINES], ids=["one word", "two words", "two lines"]
)
@given(pieces=st.lists(st.sampled_from(_PIECES), max_size=14))
def test_each_state_is_masked_like_the_whole_text(redactor: Redactor, pieces: list[str]) -> None:
    _assert_same_at_each_prefix(pieces, redactor)


@pytest.mark.parametrize("redactor", [_CHARACTERS, _THREE_WORDS], ids=["characters", "three words"])
@given(pieces=st.lists(st.sampled_from(_SPLIT_PIECES), max_size=14))
def test_each_state_with_a_split_secret_is_masked_like_the_whole_text(
    redactor: Redactor, pieces: list[str]
) -> None:
    _assert_same_at_each_prefix(pieces, redactor)


@given(st.lists(st.sampled_from(_PIECES), max_size=8).map("".join))
def test_each_state_is_masked_alike_when_single_characters_arrive(text: str) -> None:
    _assert_same_at_each_prefix(list(text), _ONE_LINE)


@given(st.lists(st.sampled_from(_PIECES), max_size=14))
def test_no_state_draws_the_secret(pieces: list[str]) -> None:
    redaction, text = GrowingRedaction(_ONE_LINE), ""
    for piece in pieces:
        text += piece
        for block in parse(redaction.redact(text)):
            if isinstance(block, Paragraph):
                drawn = to_plain_text(block.children, urls=False)
            elif isinstance(block, CodeBlock):
                drawn = block.text
            else:
                continue
            assert "opensesame" not in drawn
            assert "open-sesame" not in drawn


@pytest.mark.parametrize(
    "states",
    [
        pytest.param(("Fine.\n\nIt is open", "**sesame**."), id="a word split by marks"),
        pytest.param(
            ("It is [open][a]sesame.\n\nMore.", "\n\n[a]: https://x.example"), id="a link"
        ),
        pytest.param(("[open][a]sesame\n\n- b\n\n", "> - [a]: https://x.example"), id="in a quote"),
        pytest.param(("- fine\n\n", "    open**sesame**"), id="a list item that continues"),
        pytest.param(("```\na\n\n", "b\n```\n\nopen**sesame**"), id="a code block that ends"),
        pytest.param(('[open](https://x.example "a ', 'b")sesame'), id="a link with a title"),
        pytest.param((f"Fine.\n\n{_KEY[:9]}", f"**{_KEY[9:]}**"), id="a token"),
    ],
)
def test_a_secret_that_appears_later_is_masked(states: tuple[str, str]) -> None:
    redaction = GrowingRedaction(_ONE_LINE)
    assert "***" not in redaction.redact(states[0])
    shown = redaction.redact("".join(states))
    assert "*\\*\\*" in shown
    assert shown == _whole("".join(states), _ONE_LINE)


@pytest.mark.parametrize("before", ["", "Here:\n\n"])
def test_a_private_key_of_several_paragraphs_stays_masked(before: str) -> None:
    redaction = GrowingRedaction(_ONE_LINE)
    text = f"{before}-----BEGIN PRIVATE KEY-----\nMII\n\n"
    assert redaction.redact(text) == f"{before}***"
    assert redaction.redact(text + "MIIE\n\nMIIF") == f"{before}***"


@pytest.mark.parametrize(
    "text",
    [
        "It is pa$**$w0rd!**",
        "It is correct **horse** battery",
        "It is [correct](https://x.example) horse battery",
    ],
)
def test_a_split_secret_with_blanks_or_other_characters_is_masked_when_complete(text: str) -> None:
    redaction = GrowingRedaction(_THREE_WORDS)
    for end in range(len(text)):
        redaction.redact(text[:end])
    assert redaction.redact(f"{text}.\n\nMore.") == "It is \\*\\*\\*.\n\nMore."


def test_a_private_key_with_a_split_head_is_masked() -> None:
    redaction = GrowingRedaction(_ONE_LINE)
    text = "Fine.\n\n-----BEGIN **RSA** PRIVATE KEY-----\nMII\n\n"
    masked = "Fine.\n\n\\*\\*\\*"
    assert redaction.redact(text) == masked
    assert redaction.redact(f"{text}MIIE\n\nMIIF") == masked


def test_a_secret_of_several_paragraphs_is_masked() -> None:
    redaction = GrowingRedaction(_TWO_LINES)
    redaction.redact("Say open\n\n")
    assert redaction.redact("Say open\n\nsesame.") == "Say ***."


def test_a_secret_of_two_words_is_masked() -> None:
    redaction = GrowingRedaction(_TWO_WORDS)
    redaction.redact("Say open ")
    assert redaction.redact("Say open sesame.") == "Say ***."


def test_a_token_after_bearer_is_masked() -> None:
    redaction = GrowingRedaction(_ONE_LINE)
    redaction.redact("Send Bearer ")
    assert redaction.redact("Send Bearer a1b2c3d4e5f6g7h8i9") == "Send Bearer ***"


def test_a_secret_added_later_is_masked_in_the_settled_text() -> None:
    redactor = Redactor()
    redaction = GrowingRedaction(redactor)
    text = "It is opensesame.\n\n"
    assert redaction.redact(text) == text
    redactor.add(Secret("opensesame"))
    assert redaction.redact(f"{text}More.") == "It is ***.\n\nMore."


def test_a_replaced_text_is_masked_from_its_start() -> None:
    redaction = GrowingRedaction(_ONE_LINE)
    redaction.redact("First.\n\nSecond")
    assert redaction.redact("Other.\n\nopensesame") == "Other.\n\n***"


class _CountingRedactor(Redactor):
    """Counts the characters that it reads."""

    count = 0

    def redact(self, text: str) -> str:
        self.count += len(text)
        return super().redact(text)


@pytest.mark.parametrize("ending", [".\n\n", " [link](https://x.example).\n\n", " a[1]: é.\n\n"])
def test_finished_paragraphs_are_read_once(ending: str) -> None:
    redactor = _CountingRedactor([Secret("opensesame")])
    redaction, text = GrowingRedaction(redactor), ""
    for number in range(100):
        text += f"Paragraph {number}{ending}"
        assert redaction.redact(text) == text
    assert redactor.count < 2 * len(text)


def test_plain_words_are_read_once() -> None:
    redactor = _CountingRedactor([Secret("opensesame")])
    redaction, text = GrowingRedaction(redactor), ""
    for number in range(1000):
        text += f"word {number} "
        assert redaction.redact(text) == text
    assert redactor.count < 2 * len(text)


@pytest.mark.parametrize("text", ["A finished paragraph, é.\n\n", "\n\n", "Some finished words "])
def test_a_finished_part_is_not_read_again(text: str) -> None:
    redactor = _CountingRedactor([Secret("opensesame")])
    redaction = GrowingRedaction(redactor)
    redaction.redact(text)
    before = redactor.count
    assert redaction.redact(f"{text}More") == f"{text}More"
    assert redactor.count - before == len("More")


def test_an_end_that_may_become_a_secret_is_held_back() -> None:
    assert GrowingRedaction(_ONE_LINE).hold_back("It is open") == "It is "
