"""Slack's markup as plain text, and Markdown as blocks."""

import pytest

from platforms.core.contract import Button
from platforms.slack.format import (
    button_blocks,
    defuse_markdown,
    defuse_mentions,
    emoji_name,
    fallback_text,
    has_mention,
    has_table,
    markdown_blocks,
    plain_blocks,
    to_plain_text,
    without_partial_mention,
)

NAMES = {"U2": "Gus"}


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("Hello", "Hello"),
        ("<@U0> hello", "hello"),  # a leading mention of the app is dropped
        ("  <@U0|bot>: hello", "hello"),
        ("hello <@U0>", "hello @U0"),
        ("ask <@U2> or <@U3>", "ask @Gus or @U3"),
        ("in <#C1|general>", "in #general"),
        ("see <https://x.org/a?b=1&amp;c=2>", "see https://x.org/a?b=1&c=2"),
        ("see <https://x.org|the page>", "see the page (https://x.org)"),
        ("see <http://x.org|x.org>", "see http://x.org"),
        ("write to <mailto:a@b.org|a@b.org>", "write to a@b.org"),
        ("<!here> look", "@here look"),
        ("<!subteam^S1|@team> look", "@team look"),
        ("a &lt; b &amp;&amp; c &gt; d", "a < b && c > d"),
    ],
)
def test_markup_is_converted_to_plain_text(written: str, read: str) -> None:
    assert to_plain_text(written, NAMES, "U0") == read


def test_a_mention_is_recognized_with_and_without_a_label() -> None:
    assert has_mention("hey <@U0>", "U0")
    assert has_mention("hey <@U0|bot>", "U0")
    assert not has_mention("hey <@U01>", "U0")


@pytest.mark.parametrize(
    "text",
    [
        *("<!channel> a", "<!here|x>", "<!everyone>", "<!subteam^S1>", "@channel", "hi @Here!"),
        *("<@U1>", "<@W0AB|ann>"),
    ],
)
def test_mentions_are_defused(text: str) -> None:
    assert defuse_mentions(text) != text
    assert defuse_mentions(text).replace("\u200b", "") == text


@pytest.mark.parametrize("text", ["<!-- note -->", "a@heredity.org", "<@1>", "vector<int>"])
def test_text_without_mentions_is_unchanged(text: str) -> None:
    assert defuse_mentions(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "say <!channel> <@U12ABC>, <@U> and @here to <!subteam^S1|x> a@b.org <!-- @everyone -->@hereabouts @channel"
    ],
)
def test_every_prefix_of_a_text_is_shown_as_a_prefix_of_the_rest(text: str) -> None:
    shown = ""
    for end in range(len(text) + 1):
        now = defuse_mentions(without_partial_mention(text[:end]))
        assert now.startswith(shown)
        shown = now
    assert defuse_mentions(text).startswith(shown)


def test_the_fallback_text_escapes_markup_and_is_never_too_long() -> None:
    assert fallback_text("a < b & c <!channel>") == "a &lt; b &amp; c &lt;!channel&gt;"
    for text in ("&" * 9000, "🙂" * 9000, "x" * 9000):
        assert len(fallback_text(text).encode()) <= 4000
    assert fallback_text("")


def test_buttons_are_placed_below_the_text_in_blocks_of_25() -> None:
    buttons = [Button(f"{number} " + "x" * 100, f"do:{number}") for number in range(30)]
    text, first, second = markdown_blocks("Which?", buttons)
    assert text == {"type": "markdown", "text": "Which?"}
    assert (len(first["elements"]), len(second["elements"])) == (25, 5)
    assert all(len(each["text"]["text"]) <= 75 for each in first["elements"])
    assert second["elements"][0]["value"] == "do:25"
    assert button_blocks(()) == []


def test_plain_blocks_contain_the_whole_text() -> None:
    text = "word " * 2000
    shown = "".join(block["text"]["text"] for block in plain_blocks(text, ()))
    assert shown == text
    calls = [block["text"]["text"] for block in plain_blocks("@here " * 1000, ())]
    assert "".join(calls) == defuse_mentions("@here " * 1000)
    assert max(map(len, calls)) <= 3000


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("| a | b |\n|---|---|\n| 1 | 2 |", True),
        ("a | b\n--- | ---\n1 | 2", True),
        ("a || b", False),
        ("---\n|", False),
    ],
)
def test_tables_are_recognized(text: str, found: bool) -> None:
    assert has_table(text) is found


@pytest.mark.parametrize(
    ("sign", "name"),
    [
        ("👀", "eyes"),
        ("⚠️", "warning"),
        ("party_parrot", "party_parrot"),
        (":x:", "x"),
        ("🦆", None),
    ],
)
def test_emoji_have_names(sign: str, name: str | None) -> None:
    assert emoji_name(sign) == name


def test_html_can_neither_mention_nor_hide_an_address() -> None:
    assert "<!channel>" not in defuse_markdown("<<b></b>!channel> <b>@</b>channel")
    shown = defuse_markdown("<a href='https://real.example'>https://bank.example</a>")
    assert shown == "[https://bank.example](https://real.example) (https://real.example)"
