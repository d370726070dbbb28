"""Markdown texts parsed into the tree that all renderers draw."""
# ruff: noqa: RUF001 - samples in many scripts

import pytest

from platforms.core.document import (
    Block,
    BlockQuote,
    CodeBlock,
    Heading,
    Inline,
    InlineCode,
    InlineMath,
    Inlines,
    Link,
    ListBlock,
    MathBlock,
    Paragraph,
    PlainText,
    Styled,
    Table,
    parse,
    plain_rows,
    to_plain_text,
)

DOCS = Link("https://e.org/docs", (PlainText("docs"),))


def inside(md: str) -> Inlines:
    """Return the inline nodes of a text with a single paragraph."""
    (block,) = parse(md)
    assert isinstance(block, Paragraph)
    return block.children


def plain(md: str) -> str:
    """Return the text of a single paragraph without styles."""
    (node,) = inside(md)
    assert isinstance(node, PlainText)
    return node.text


# --- reference links -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "definition",
    [
        "[r]: https://e.org/docs",
        "[R]: <https://e.org/docs>",
        '[r]: https://e.org/docs "A title"',
        "[r]: https://e.org/docs 'A title'",
        "[r]: https://e.org/docs (A title)",
        "[r]:\n  https://e.org/docs\n  'A title'",
        "   [r]:   https://e.org/docs   ",
        "[other]: https://e.org/\n[r]: https://e.org/docs\n\n[other]",
        "> [r]: https://e.org/docs",
    ],
)
@pytest.mark.parametrize("use", ["[docs][r]", "[docs][R]"])
def test_a_reference_links_to_the_url_of_its_definition(definition: str, use: str) -> None:
    assert parse(f"{use}\n\n{definition}")[0] == Paragraph((DOCS,))
    assert DOCS in inside_all(parse(f"{definition}\n\n{use}"))


def inside_all(blocks: tuple[Block, ...]) -> list[Inline]:
    """Return the inline nodes of all top-level paragraphs."""
    return [node for block in blocks if isinstance(block, Paragraph) for node in block.children]


@pytest.mark.parametrize("use", ["[docs]", "[docs][]", "[docs][ DOCS ]"])
def test_a_short_reference_uses_its_words_as_the_label(use: str) -> None:
    assert parse(f"See {use}.\n\n[Docs]: https://e.org/docs") == (
        Paragraph((PlainText("See "), DOCS, PlainText("."))),
    )


def test_labels_ignore_case_and_the_width_of_blanks() -> None:
    md = "[docs][The  MANUAL\nof it]\n\n[the manual of IT]: https://e.org/docs"
    assert parse(md) == (Paragraph((DOCS,)),)


def test_the_text_of_a_reference_keeps_its_style() -> None:
    md = "[**docs**][r] and ![docs][r]\n\n[r]: https://e.org/docs"
    assert inside(md) == (
        Link("https://e.org/docs", (Styled("bold", (PlainText("docs"),)),)),
        PlainText(" and "),
        Link("https://e.org/docs", (PlainText("docs"),), is_image=True),
    )


@pytest.mark.parametrize(
    "md",
    [
        "[docs][r] and [r]",
        "[docs][r]\n[r]: https://e.org/docs",  # a definition cannot interrupt a paragraph
        "[docs][r] and `[r]: https://e.org/docs`",
    ],
)
def test_a_reference_without_definition_is_shown_as_written(md: str) -> None:
    assert parse(md)[0] != Paragraph((DOCS,))
    assert "[docs][r]" in str(inside_all(parse(md))[0])


def test_references_work_in_every_kind_of_block() -> None:
    md = (
        "# [docs]\n\n- [docs]\n\n> [docs]\n\n| a |\n|---|\n| [docs] |\n\n[docs]: https://e.org/docs"
    )
    heading, listing, quote, table = parse(md)
    assert heading == Heading(1, (DOCS,))
    assert isinstance(listing, ListBlock)
    assert listing.items[0].blocks == (Paragraph((DOCS,)),)
    assert quote == BlockQuote((Paragraph((DOCS,)),))
    assert (DOCS,) in table.rows[0]  # type: ignore[union-attr]


def test_the_first_definition_of_a_label_counts_and_the_other_stays_visible() -> None:
    md = "[docs]\n\n[docs]: https://e.org/docs\n[docs]: https://e.org/other"
    assert parse(md) == (
        Paragraph((DOCS,)),
        Paragraph((PlainText("[docs]: https://e.org/other"),)),
    )


def test_a_second_definition_does_not_count_as_a_use() -> None:
    md = "[docs]: https://e.org/docs\n\n[docs]: https://e.org/other"
    assert str(parse(md)).count("[docs]: https://e.org/") == 2


def test_an_unused_definition_stays_visible() -> None:
    """The reference may be in an earlier message of the same answer."""
    md = "Words\n\n[1]: https://e.org/a_b_c\n[2]: https://e.org/2"
    assert parse(md) == (
        Paragraph((PlainText("Words"),)),
        Paragraph((PlainText("[1]: https://e.org/a_b_c\n[2]: https://e.org/2"),)),
    )


def test_only_unused_definitions_are_shown() -> None:
    md = "[a][1]\n\n[1]: https://e.org/1\n[2]: https://e.org/2\n[3]: https://e.org/3"
    assert parse(md)[1:] == (Paragraph((PlainText("[2]: https://e.org/2\n[3]: https://e.org/3"),)),)


def test_definitions_in_code_define_nothing() -> None:
    md = "[docs]\n\n```\n[docs]: https://e.org/docs\n```"
    assert parse(md) == (
        Paragraph((PlainText("[docs]"),)),
        CodeBlock("[docs]: https://e.org/docs"),
    )


def test_a_reference_in_code_does_not_hide_the_definition() -> None:
    md = "`[docs]`\n\n[docs]: https://e.org/docs"
    assert parse(md)[1] == Paragraph((PlainText("[docs]: https://e.org/docs"),))


def test_a_reference_to_a_relative_url_shows_the_url() -> None:
    assert plain("[file][r]\n\n[r]: docs/a.md") == "file (docs/a.md)"


def test_a_speaker_before_a_colon_is_no_definition() -> None:
    assert plain("[Ann]: hello there, [Ann]") == "[Ann]: hello there, [Ann]"


def test_references_inside_link_text_are_not_resolved() -> None:
    md = "[see [docs] here](https://e.org/all)\n\n[docs]: https://e.org/docs"
    first, second = parse(md)
    assert first == Paragraph((Link("https://e.org/all", (PlainText("see [docs] here"),)),))
    assert "https://e.org/docs" in str(second)


def test_a_definition_is_not_part_of_an_underlined_heading() -> None:
    md = "[docs]: https://e.org/docs\nTitle [docs]\n==="
    assert parse(md) == (Heading(1, (PlainText("Title "), DOCS)),)


def test_a_rule_below_a_definition_stays_a_rule() -> None:
    blocks = parse("[docs]\n\n[docs]: https://e.org/docs\n---")
    assert [type(block).__name__ for block in blocks] == ["Paragraph", "HorizontalRule"]


def test_an_unfinished_definition_is_text_while_the_answer_grows() -> None:
    md = "[docs]\n\n[docs]: https://e.org/docs"
    for end in range(len("[docs]\n\n[docs]:") + 1):
        assert not any(isinstance(node, Link) for node in inside_all(parse(md[:end])))


@pytest.mark.parametrize(
    "md",
    [
        "[a" * 20_000 + "\n\n[a]: https://e.org",
        "[" * 20_000 + "]" * 20_000 + "\n\n[a]: https://e.org",
        "\\[" * 20_000 + "\n[a]: https://e.org",
        "[a]: https://e.org\n" * 5_000,
        "[a]: https://e.org 'b\n" * 5_000,
        "".join(f"[^{number}]: a\n\n    b\n\n" for number in range(2_000)) + "[^7]",
        "$$a " * 10_000,
        "日**(" * 10_000,
    ],
    ids=["open", "nested", "escaped", "same", "titles", "notes", "dollars", "emphasis"],
)
@pytest.mark.timeout(10)
def test_long_texts_are_parsed_in_linear_time(md: str) -> None:
    assert parse(md)


# --- footnotes -------------------------------------------------------------------------------


def test_a_footnote_and_its_reference_show_the_same_label() -> None:
    md = "A claim[^1] and [^two].\n\n[^1]: The **source**.\n[^two]: https://e.org/a_b"
    first, second = parse(md)
    assert first == Paragraph((PlainText("A claim[1] and [two]."),))
    assert second == Paragraph(
        (
            PlainText("[1]: The "),
            Styled("bold", (PlainText("source"),)),
            PlainText(".\n[two]: https://e.org/a_b"),
        )
    )


@pytest.mark.parametrize(
    "md", ["A claim[^1].", "[^1]: The source.", "Match [^a] and [^ab] in `[^a]`"]
)
def test_a_note_or_reference_alone_is_shown_as_written(md: str) -> None:
    assert "".join(str(node) for node in inside(md)).count("[^") == md.count("[^")


def test_indented_paragraphs_of_a_footnote_are_no_code() -> None:
    md = "A claim[^1].\n\n[^1]: The source.\n\n    More *of* it.\n\n    - a point\n\nafter"
    assert parse(md)[1:] == (
        Paragraph((PlainText("[1]: The source."),)),
        Paragraph((PlainText("More "), Styled("italic", (PlainText("of"),)), PlainText(" it."))),
        parse("- a point")[0],
        Paragraph((PlainText("after"),)),
    )


def test_a_link_definition_directly_below_a_footnote_is_a_definition() -> None:
    _, note = parse(
        "See [docs] and a note[^1].\n\n[^1]: Words\nand more.\n[docs]: https://e.org/docs"
    )
    assert note == Paragraph((PlainText("[1]: Words\nand more."),))


def test_indented_code_after_other_paragraphs_stays_code() -> None:
    md = "A[^1].\n\n[^1]: note\n\nwords\n\n    code"
    assert parse(md)[-1] == CodeBlock("code")


# --- emphasis --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("md", "bold"),
    [
        ("これは**重要です。**次の文", "重要です。"),
        ("**注意：**请先备份", "注意："),
        ("请看**“引号”**的用法", "“引号”"),
        ("使用**`pip`**安装", None),
        ("한국어**(강조)**입니다", "(강조)"),
        ("参见**[文档](https://e.org)**。", None),
        ("これは**(強調)**です", "(強調)"),
        ("中文**hello!**中文", "hello!"),
        ("ｱ**(ｲ)**ｳ", "(ｲ)"),
    ],
)
def test_chinese_japanese_and_korean_need_no_blank_beside_emphasis(
    md: str, bold: str | None
) -> None:
    (node,) = [node for node in inside(md) if isinstance(node, Styled)]
    assert node.style == "bold"
    if bold is not None:
        assert node.children == (PlainText(bold),)


@pytest.mark.parametrize(
    "md", ["これは~~古い。~~次の文", "答えは||秘密。||です", "これは*重要。*次の文"]
)
def test_other_marks_follow_the_same_rule(md: str) -> None:
    assert any(isinstance(node, Styled) for node in inside(md))


@pytest.mark.parametrize(
    "md",
    [
        "a**(b)**c",  # as CommonMark says
        "これは ** 記号 ** です",
        "日本_語_の",
        "🎉**!**x",  # an emoji is wide, but no letter
    ],
)
def test_marks_that_pair_with_nothing_stay_as_written(md: str) -> None:
    assert plain(md) == md


def test_combining_marks_are_letters() -> None:
    """Neither accents nor vowel signs are punctuation."""
    for word in ("e\u0301te\u0301", "क्षि"):
        assert inside(f"**{word}**s") == (Styled("bold", (PlainText(word),)), PlainText("s"))


# --- formulas --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("md", "tex"),
    [
        ("$a_1*b*c_2$", "a_1*b*c_2"),
        ("\\(a_1 * b_2\\)", "a_1 * b_2"),
        ("\\[a_1 * b_2\\]", "a_1 * b_2"),
        ("$$a_1*b*c_2$$", "a_1*b*c_2"),
        ("$$\na*b*c\n= d\n$$", "a*b*c\n= d"),
        ("$\\{x \\mid x_1\\}$", "\\{x \\mid x_1\\}"),
    ],
)
@pytest.mark.parametrize("around", ["so {} it *is*", "- so {} it *is*", "*x* {}, then"])
def test_a_formula_in_a_line_is_kept_as_written(md: str, tex: str, around: str) -> None:
    if "\n" in md and around.startswith("-"):
        md = md.replace("\n", "\n  ")
    (block,) = parse(around.format(md))
    nodes = block.items[0].blocks[0].children if isinstance(block, ListBlock) else block.children  # type: ignore[union-attr]
    assert InlineMath(tex) in nodes


@pytest.mark.parametrize(
    "environment", ["align", "align*", "equation", "gather", "multline", "eqnarray"]
)
def test_an_environment_of_latex_is_a_formula(environment: str) -> None:
    tex = f"\\begin{{{environment}}}\na &= b_1 * c_2 \\\\\n- d &= e * f\n\\end{{{environment}}}"
    assert parse(f"So:\n{tex}\nand on") == (
        Paragraph((PlainText("So:"),)),
        MathBlock(tex),
        Paragraph((PlainText("and on"),)),
    )


@pytest.mark.parametrize(
    "md",
    [
        "$5 and $10",
        "US$$ and HK$$",
        "costs $$5, then $$6",
        "$$ alone",
        "\\begin{align} never ends",
        "\\begin{itemize}",
        "a $$ and $$ c",
    ],
)
def test_dollars_outside_formulas_stay_as_written(md: str) -> None:
    assert plain(md) == md


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[https://bank.example](https://evil.example/x)", "https://evil.example/x"),
        ("[see https://bank.example/login now](https://evil.example)", "https://evil.example"),
        ("[**https://**bank.example](https://evil.example)", "https://evil.example"),
        ("[www.bank.example](https://evil.example)", "https://evil.example"),
        ("[bank.com](https://evil.example)", "https://evil.example"),
        ("[https://bank.example@evil.example](https://bank.example)", "https://bank.example"),
        ("[https://bank.example](https://bank.example.evil.example)", None),
        ("[https://bank.example][1]\n\n[1]: https://evil.example", "https://evil.example"),
        ("[https://bank.example/a](https://www.bank.example/b)", "https://bank.example/a"),
        ("[Bank.Com](https://bank.com/login)", "Bank.Com"),
        ("[main.py](https://git.example/main.py)", "main.py"),
        ("![https://bank.example](https://evil.example)", "https://evil.example"),
        ("[the bank](https://bank.example)", "the bank"),
    ],
)
def test_a_link_whose_text_is_another_address_shows_the_real_one(
    text: str, words: str | None
) -> None:
    block = parse(text)[0]
    assert isinstance(block, Paragraph)
    (link,) = block.children
    assert isinstance(link, Link)
    assert to_plain_text(link.children) == (words or link.url)


@pytest.mark.parametrize("sign", ["\0", "\x7f", "\u00ad", "\u200b", "\u202e", "\u2060", "\ufeff"])
@pytest.mark.parametrize(
    "md", ["[docs](h{}ttps://e.org/do{}cs)", "<a href='https://e{}.org/docs'>docs</a>"]
)
def test_invisible_signs_in_the_url_of_a_link_are_removed(md: str, sign: str) -> None:
    assert inside(md.replace("{}", sign)) == (DOCS,)
    assert inside(f"<https://e.org/{sign}>") == (
        Link("https://e.org/", (PlainText("https://e.org/"),)),
    )


def test_invisible_signs_do_not_hide_an_unsafe_scheme() -> None:
    assert plain("[x](java\u200bscript:alert)") == "x (javascript:alert)"


@pytest.mark.parametrize("fence", ["```p\u00ady", "~~~\u200bpy", "```py\ufeff title=1"])
def test_invisible_signs_in_the_language_of_code_are_removed(fence: str) -> None:
    assert parse(f"{fence}\nx\n{fence[:3]}") == (CodeBlock("x", "py"),)


def test_text_right_below_a_table_is_a_paragraph() -> None:
    table, text = parse("a | b\n--|--\n1 | 2\nso it is")
    assert isinstance(table, Table)
    assert len(table.rows) == 1
    assert text == Paragraph((PlainText("so it is"),))


# --- HTML ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("md", "style"),
    [
        ("<b>x</b>", "bold"),
        ("<strong>x</strong>", "bold"),
        ("<I>x</i>", "italic"),
        ("<em>x</em>", "italic"),
        ("<u>x</u>", "underline"),
        ("<ins>x</ins>", "underline"),
        ("<s>x</s>", "strikethrough"),
        ("<del>x</del>", "strikethrough"),
        ("<sub>x</sub>", "subscript"),
        ("<sup>x</sup>", "superscript"),
    ],
)
def test_a_pair_of_html_tags_is_a_style(md: str, style: str) -> None:
    assert inside(md) == (Styled(style, (PlainText("x"),)),)


def test_markdown_inside_and_around_html_tags_is_read() -> None:
    assert inside("**a <u>b *c*</u>**") == (
        Styled(
            "bold",
            (
                PlainText("a "),
                Styled("underline", (PlainText("b "), Styled("italic", (PlainText("c"),)))),
            ),
        ),
    )


@pytest.mark.parametrize("name", ["code", "kbd"])
def test_nothing_is_markup_in_a_code_tag(name: str) -> None:
    assert inside(f"<{name}>a*b*c &lt;b></{name}>") == (InlineCode("a*b*c <b>"),)


@pytest.mark.parametrize(
    "md",
    [
        "vector<b>",
        "a </b> c",
        "<b>open",
        "<b>x</i>",
        "`<b>`x</b>",
        "\\<b>x</b>",
        "<b class='x'>x</b>",
        "<img src='https://e.org/pixel.png'>",
        "<a name='x'>x</a>",
        "<script>x</script>",
    ],
)
def test_other_html_is_shown_as_written(md: str) -> None:
    assert to_plain_text(inside(md)) == md.replace("`", "").replace("\\", "")


def test_marks_do_not_pair_across_a_tag() -> None:
    assert inside("*a<b>b*</b>") == (PlainText("*a"), Styled("bold", (PlainText("b*"),)))


def test_an_empty_tag_is_nothing_and_joins_the_words_around() -> None:
    assert plain("one<b></b>two") == "onetwo"


@pytest.mark.parametrize(
    "attributes",
    [
        'href="https://e.org/docs"',
        "class=x href='https://e.org/docs' target=_blank",
        "HREF=https://e.org/docs",
    ],
)
def test_an_html_link_is_a_link(attributes: str) -> None:
    assert inside(f"<a {attributes}>docs</a>") == (DOCS,)


def test_an_html_link_follows_the_rules_of_links() -> None:
    real = Link("https://real.example/", (PlainText("https://real.example/"),))
    assert inside('<a href="https://real.example/">https://bank.example</a>') == (real,)
    assert plain('<a href="javascript:alert(1)">x</a>') == "x (javascript:alert(1))"
    assert plain('<a href="src/b.py">x</a>') == "x (src/b.py)"
    (link,) = inside('<a href="https://e.org/?a=1&amp;b=2">x</a>')
    assert isinstance(link, Link)
    assert link.url == "https://e.org/?a=1&b=2"


def test_scripts_in_table_cells_can_be_told_from_other_text() -> None:
    (table,) = parse("| x<sup>2</sup> | H<sub>2</sub>O | e<sup>two words</sup> |\n|---|---|---|")
    assert isinstance(table, Table)
    assert plain_rows(table) == [["x²", "H₂O", "e^(two words)"]]


def foldable(summary: str, *blocks: Block) -> BlockQuote:
    return BlockQuote((Paragraph((PlainText(summary),)), *blocks), is_foldable=True)


@pytest.mark.parametrize(
    "md",
    [
        "<details>\n<summary>More</summary>\n\nhidden\n\n</details>\n\nafter",
        "<details open><summary>More</summary>hidden</details>after",
        "<DETAILS>\n  <summary>\n  More\n  </summary>\n  hidden\n</DETAILS>\nafter",
    ],
)
def test_a_details_element_is_a_section_that_can_be_folded(md: str) -> None:
    hidden, after = Paragraph((PlainText("hidden"),)), Paragraph((PlainText("after"),))
    assert parse(md) == (foldable("More", hidden), after)


def test_a_section_holds_blocks_and_ends_at_its_own_end() -> None:
    md = "a\n<details>\n\n```\n</details>\n```\n<details>x</details>\n- b\n</details>\n- c"
    _, section, after = parse(md)
    assert isinstance(section, BlockQuote)
    _, code, inner, listing = section.blocks
    assert code == CodeBlock("</details>")
    assert inner == foldable("…", Paragraph((PlainText("x"),)))
    assert isinstance(listing, ListBlock)
    assert isinstance(after, ListBlock)


def test_a_section_without_end_lasts_until_the_text_ends() -> None:
    assert parse("<details><summary>Mo") == (foldable("Mo"),)
    assert parse("<details>\nx\n\ny") == (
        foldable("…", Paragraph((PlainText("x"),)), Paragraph((PlainText("y"),))),
    )


def test_the_end_of_a_section_from_an_earlier_message_is_not_shown() -> None:
    assert parse("x\n\n</details>\ny") == (
        Paragraph((PlainText("x"),)),
        Paragraph((PlainText("y"),)),
    )


def test_a_section_after_a_list_is_not_in_the_list() -> None:
    listing, section = parse("- a\n<details>x</details>")
    assert isinstance(listing, ListBlock)
    assert isinstance(section, BlockQuote)


@pytest.mark.parametrize(
    "md",
    [
        "<b>" * 20_000,
        "<b>" * 20_000 + "</i>" * 20_000,
        "<b><i>" * 10_000 + "</i></b>" * 10_000,
        "<a href='x' " * 9_000,
        "<details>\n" * 5_000,
        "*a _b " * 9_000 + "b_ a* " * 9_000,
        "[" * 9_000 + "x" + "](https://e.org)" * 9_000,
    ],
    ids=["open", "wrong end", "nested", "links", "sections", "marks", "brackets"],
)
def test_deep_nesting_is_parsed_and_can_be_walked(md: str) -> None:
    def walk(block: Block) -> str:
        if isinstance(block, BlockQuote):
            return "".join(map(walk, block.blocks))
        assert isinstance(block, Paragraph)
        return to_plain_text(block.children)

    assert "".join(map(walk, parse(md)))


# --- escaped brackets ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("md", "shown"),
    [
        (r"See \[1\] for it", "See [1] for it"),
        (r"a\[0\] = 5", "a[0] = 5"),
        (r"\(optional\) words", "(optional) words"),
        (r"the mass \(x\) of it", "the mass (x) of it"),
        (r"\[1-3\], \(and/or\), \(self-made\)", "[1-3], (and/or), (self-made)"),
        (r"\[not a link\](http://x.example)", "[not a link](http://x.example)"),
    ],
)
def test_escaped_brackets_around_words_are_brackets(md: str, shown: str) -> None:
    assert plain(md) == shown


@pytest.mark.parametrize(
    "tex", ["x_1", "a + b", "f(x)", r"\alpha", "x = 1", "n!", "x^2", "{x}", "a < b"]
)
def test_escaped_brackets_around_a_formula_are_a_formula(tex: str) -> None:
    assert inside(rf"so \({tex}\) is") == (PlainText("so "), InlineMath(tex), PlainText(" is"))


def test_escaped_brackets_in_a_line_of_their_own_are_a_formula() -> None:
    assert inside("where\n\\(x\\).\nholds")[1] == InlineMath("x")
    assert parse("\\[x\\]") == (MathBlock("x"),)


def test_every_environment_of_latex_is_kept_as_written() -> None:
    tex = "\\begin{cases} a_1 *b* \\\\\n*c* \\end{cases}"
    assert parse(tex) == (MathBlock(tex),)
