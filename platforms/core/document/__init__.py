"""Markdown text as a small tree that each platform renders.

tree        the nodes, blocks and inlines
blocks      `parse`: lines to blocks
inlines     the text of a paragraph to inlines
references  link definitions and footnotes of one text
rewrite     Markdown for a platform that draws a part of it

The dialect is the one models write: CommonMark with tables, `~~`, `||spoilers||`, task lists,
footnotes, formulas, and emphasis next to Chinese, Japanese and Korean text. Some HTML is read:
`<b>`, `<i>`, `<u>`, `<s>`, `<sub>`, `<sup>`, `<code>`, `<kbd>`, `<a href>`, their synonyms, `<br>` and
`<details>`; other HTML is plain text. Line breaks are kept. Every text can be parsed. Unused
definitions stay visible, because their references may be in another message of the same answer.
"""

from platforms.core.document.blocks import parse
from platforms.core.document.tree import (
    SCRIPTS,
    Block,
    BlockQuote,
    CodeBlock,
    Heading,
    HorizontalRule,
    Inline,
    InlineCode,
    InlineMath,
    Inlines,
    Link,
    ListBlock,
    ListItem,
    MathBlock,
    Paragraph,
    PlainText,
    Styled,
    Table,
    plain_rows,
    script_text,
    to_plain_text,
)

__all__ = [
    "SCRIPTS",
    "Block",
    "BlockQuote",
    "CodeBlock",
    "Heading",
    "HorizontalRule",
    "Inline",
    "InlineCode",
    "InlineMath",
    "Inlines",
    "Link",
    "ListBlock",
    "ListItem",
    "MathBlock",
    "Paragraph",
    "PlainText",
    "Styled",
    "Table",
    "parse",
    "plain_rows",
    "script_text",
    "to_plain_text",
]
