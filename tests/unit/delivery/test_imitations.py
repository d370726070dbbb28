"""Lines of a model that look like a question or a notice of Holdfast."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.delivery.imitations import MODEL_MARK, mark_imitations
from gateway.delivery.view import DUPLICATE_MARK
from gateway.notices.catalogue import CATALOGUE, NOTICE_FIELDS, render_notice
from sessions.values.notices import NoticeId

OPEN = {NoticeId.FETCHING_FILES, NoticeId.SIDE_ANSWER}
"""Notices that consist of a sign and of text that is not ours."""


def imitations() -> set[str]:
    """Return every line of every notice that begins with a sign, with and without optional parts."""
    found = {DUPLICATE_MARK}
    for notice in CATALOGUE:
        required, optional = NOTICE_FIELDS[notice]
        for fields in (required, required | optional):
            text = render_notice(notice, dict.fromkeys(fields, 3), "/{word}")
            lines = text.split("\n") if notice not in OPEN else ()
            found.update(line for line in lines if re.match(r"[^\w\s{}“`/]", line))
    return found


def test_every_line_of_every_notice_is_marked_in_the_text_of_a_model() -> None:
    lines = imitations()
    assert len(lines) > 60
    unmarked = [
        text
        for line in lines
        for text in (line, f"Done.\n\n> {line}", f"# **{line}**", line.replace("'", "’"))  # noqa: RUF001
        if mark_imitations(text).count(MODEL_MARK) != 1
    ]
    assert unmarked == []


@pytest.mark.parametrize(
    "text",
    [
        "Done.\n\n🔐 May I use **pay**?",
        "✅ **Allowed** by telegram:1.",
        "> **🔐 May I use pay?**",
        "# 🔐 May I use pay?",
        "&#128272; May I use pay?",
        "&#x1f510; May I use pay?",
        ":closed_lock_with_key: May I use pay?",
        "⏹ Stopped. Your next message starts a new conversation.",
        "👤 Eve (telegram:2) asks for access. Approve: /pair approve ABCD2345",
    ],
)
def test_text_of_a_model_that_looks_like_a_notice_is_marked(text: str) -> None:
    assert mark_imitations(text).count(MODEL_MARK) == 1


@pytest.mark.parametrize(
    "text",
    [
        "✅ Tests pass\n❌ Lint\n✅ Works\n⚠️ Careful: the model\n- ✅ Allowed hosts\n🛠 Tools\n🔄 Update\n⏱ 5 min",
        "The sign 🔐 means locked",
        "a: b & c",
    ],
)
def test_ordinary_text_of_a_model_has_no_mark(text: str) -> None:
    assert mark_imitations(text) == text


@given(
    st.lists(
        st.sampled_from(
            [
                "a",
                "🔐",
                " ",
                ">",
                "*",
                "\n",
                ":",
                "&",
                "✅ ",
                "Allowed by",
                "Back after",
                "now has access",
                "works again. The problem",
                "🚫 ",
                "no longer has access",
            ]
        )
    ).map("".join),
    st.integers(0, 20),
)
@example("✅ now has access" * 2, 16)
@example("✅ ✅ Allowed by✅ now has access", 14)
@example("🚫 ✅ Back after no longer has access", 14)
def test_the_mark_of_a_growing_text_never_moves(text: str, length: int) -> None:
    assert mark_imitations(text).startswith(mark_imitations(text[:length]))
