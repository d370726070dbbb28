"""Text of others, without characters that control, hide or reorder other text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from platforms.core.document import Paragraph, parse, to_plain_text
from sessions.values.visible_text import escape_markdown, visible_line, visible_text

_NEEDED = "\u061c\u180e\u200c\u200d\u200e\u200f\ufe0e\ufe0f"
_HIDING = "\x00\x07\x1b\r\x7f\x9b\xad\u2028\u202e\u2066\u2069\u200b\u2060\ufeff\ud800\U000e0041"
_LETTERS = "ab _*\u0633\u0639\u0915\u094d👩💻❤🏴\n\t"
_TEXTS = st.text(st.sampled_from(_NEEDED + _HIDING + _LETTERS) | st.characters(), max_size=40)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("a\x1b]52;c;YQ==\x07b", "a␛]52;c;YQ==␇b", id="a clipboard command"),
        pytest.param("a\x00b\x7fc", "a␀b␡c", id="NUL and DEL"),
        pytest.param("a\x9b31mb", "a\ufffd31mb", id="a C1 control character"),
        pytest.param("a\r\nb\rc\u2028d\u2029e\x85f", "a\nb\nc\nd\ne\nf", id="line ends"),
        pytest.param("a\tb\n", "a\tb\n", id="tabs and newlines stay"),
        pytest.param("evil\u202egpj.exe", "evilgpj.exe", id="an override"),
        pytest.param("if x\u2066 // \u2069\u2067y\u2069", "if x // y", id="isolates"),
        pytest.param("pay\u200bpal\ufeff\u2060\u00ad", "paypal", id="zero-width characters"),
        pytest.param("a\u200db\u200cc", "abc", id="joiners between Latin letters"),
        pytest.param(
            "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
            "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
            id="the non-joiner of Persian",
        ),
        pytest.param(
            "\u0d15\u0d4d\u200d \u0916", "\u0d15\u0d4d\u200d \u0916", id="a joiner after a virama"
        ),
        pytest.param(
            "👩\u200d💻 ❤️\u200d🔥 👩🏽\u200d🔬",
            "👩\u200d💻 ❤️\u200d🔥 👩🏽\u200d🔬",
            id="joined emoji",
        ),
        pytest.param("👩\u200dx", "👩x", id="a joiner between emoji and letter"),
        pytest.param("☎️ ☎\ufe0f\ufe0e\ufe0f", "☎️ ☎️", id="one variation selector is enough"),
        pytest.param("a\U000e0101\U000e0102", "a\U000e0101", id="data in variation selectors"),
        pytest.param("x\U000e0041\U000e0042", "x", id="data in tag characters"),
        pytest.param(
            "🏴\U000e0067\U000e0062\U000e007f", "🏴\U000e0067\U000e0062\U000e007f", id="a flag"
        ),
        pytest.param(
            "\u05e9\u05dc\u05d5\u05dd\u200f!",
            "\u05e9\u05dc\u05d5\u05dd\u200f!",
            id="a direction mark after Hebrew",
        ),
        pytest.param("pay\u200fpal", "paypal", id="a direction mark without such letters"),
        pytest.param("\u3164\uffa0x", "x", id="fillers that look like nothing"),
        pytest.param("a\ud800b", "a\ufffdb", id="half a character"),
        pytest.param("Grüße, 世界! 🎉", "Grüße, 世界! 🎉", id="ordinary text"),
    ],
)
def test_hidden_characters_are_removed_or_shown(text: str, shown: str) -> None:
    assert visible_text(text) == shown


@given(_TEXTS)
def test_visible_text_has_no_control_characters_and_stays_as_it_is(text: str) -> None:
    shown = visible_text(text)
    assert not any(ord(char) < 0x20 and char not in "\n\t" for char in shown)
    assert not set(shown) & set(_HIDING)
    assert visible_text(shown) == shown


@given(_TEXTS, st.integers(0, 40))
def test_a_growing_text_only_grows(text: str, length: int) -> None:
    assert visible_text(text).startswith(visible_text(text[:length]))


def test_many_direction_marks_on_one_line_take_no_long_time() -> None:
    assert visible_text("\u200f" * 100_000) == ""


def test_a_visible_line_has_no_line_breaks() -> None:
    assert visible_line("a\nb\tc\r\nd\u2028e") == "a b c d e"


@pytest.mark.parametrize("name", ["Ann", "eve_x", "Ann O'Neil (work)", "José-Luís, 3rd"])
def test_ordinary_names_need_no_escapes(name: str) -> None:
    assert escape_markdown(name) == name


@pytest.mark.parametrize(
    "name",
    ["[https://bank.example](https://evil.example)", "**Admin**", "`x`", "a\nb", "&#42;", "$x^2$"],
)
def test_an_escaped_name_is_drawn_as_it_is(name: str) -> None:
    (block,) = parse(f"x {escape_markdown(name)} y")
    assert isinstance(block, Paragraph)
    assert to_plain_text(block.children) == f"x {visible_line(name)} y"


@given(st.text(st.sampled_from("ab \\`*_~|[]()<>&#;$!:/") | st.characters(), max_size=20))
def test_every_escaped_text_is_plain_text(text: str) -> None:
    words = " ".join(visible_line(text).split())
    (block,) = parse(f"x{escape_markdown(words)}x")
    assert isinstance(block, Paragraph)
    assert to_plain_text(block.children) == f"x{words}x"
