"""Sans-IO: formatter from parsed Markdown to the HTML of a rich message.

Rich messages have native tables, headings and formulas. Their Markdown mode is unsuitable for
model output: Telegram's parser joins lines, reads prices as formulas, loads pictures, and turns
a `<tg-button>` that a model wrote into a button.
"""

import html

from platforms.core.document import (
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
    MathBlock,
    Paragraph,
    PlainText,
    Styled,
    Table,
)

MAX_HTML_CHARS = 32_768
_MAX_BLOCKS = 500
_MAX_COLUMNS = 20
_MAX_DEPTH = 16

_TAGS = {
    "bold": "b",
    "italic": "i",
    "underline": "u",
    "strikethrough": "s",
    "spoiler": "tg-spoiler",
    "subscript": "sub",
    "superscript": "sup",
}


def needs_rich_format(blocks: tuple[Block, ...]) -> bool:
    """Return whether the text has elements that entities can only approximate.

    Other texts go out as plain messages with entities, because older clients show nothing for a
    rich message.
    """
    return any(_block_needs_rich(block) for block in blocks)


def _block_needs_rich(block: Block) -> bool:
    match block:
        case Heading():
            return bool(block.children)
        case MathBlock():
            return bool(block.text)
        case Table():
            return True
        case Paragraph():
            return any(map(_has_formula, block.children))
        case BlockQuote():
            return needs_rich_format(block.blocks)
        case ListBlock():
            return any(
                entry.done is not None
                or needs_rich_format(entry.blocks)
                or any(isinstance(child, ListBlock) for child in entry.blocks)
                for entry in block.items
            )
        case CodeBlock() | HorizontalRule():
            return False


def _has_formula(node: Inline) -> bool:
    if isinstance(node, Styled | Link):
        return any(map(_has_formula, node.children))
    return isinstance(node, InlineMath)


def fits_limits(blocks: tuple[Block, ...]) -> bool:
    """Return whether a text stays within the block, depth and column limits of rich messages."""
    return (
        _count_blocks(blocks) <= _MAX_BLOCKS
        and _depth(blocks) <= _MAX_DEPTH
        and _tables_fit(blocks)
    )


def format_html(blocks: tuple[Block, ...]) -> str:
    """Return the HTML of a rich message."""
    return "".join(map(_format_block, blocks))


def _format_block(block: Block) -> str:
    match block:
        case Paragraph():
            return f"<p>{_inlines(block.children)}</p>"
        case Heading():
            return f"<h{block.level}>{_inlines(block.children)}</h{block.level}>"
        case CodeBlock():
            if not block.language:
                return f"<pre>{_text(block.text)}</pre>"
            language = html.escape(block.language)
            return f'<pre><code class="language-{language}">{_text(block.text)}</code></pre>'
        case MathBlock():
            return f"<tg-math-block>{_text(block.text)}</tg-math-block>"
        case HorizontalRule():
            return "<hr/>"
        case BlockQuote():
            return _quote(block)
        case ListBlock():
            return _listing(block)
        case Table():
            return _table(block)


def _quote(block: BlockQuote) -> str:
    if not block.is_foldable:
        return f"<blockquote>{format_html(block.blocks)}</blockquote>"
    first, *others = block.blocks
    title = _inlines(first.children) if isinstance(first, Paragraph) else "…"
    return f"<details><summary>{title}</summary>{format_html(tuple(others))}</details>"


def _listing(block: ListBlock) -> str:
    entries = "".join(
        f"<li>{_checkbox(entry.done)}{_list_item(entry.blocks)}</li>" for entry in block.items
    )
    if block.start is None:
        return f"<ul>{entries}</ul>"
    start = "" if block.start == 1 else f' start="{block.start}"'
    return f"<ol{start}>{entries}</ol>"


def _checkbox(done: bool | None) -> str:
    if done is None:
        return ""
    return '<input type="checkbox" checked>' if done else '<input type="checkbox">'


def _list_item(blocks: tuple[Block, ...]) -> str:
    """Format a list item; a leading paragraph needs no `<p>`."""
    if blocks and isinstance(blocks[0], Paragraph):
        return _inlines(blocks[0].children) + format_html(blocks[1:])
    return format_html(blocks)


def _table(block: Table) -> str:
    rows = [_row("th", block.header, block.alignments)] if block.header else []
    rows += [_row("td", row, block.alignments) for row in block.rows]
    return f"<table bordered>{''.join(rows)}</table>"


def _row(tag: str, cells: tuple[Inlines, ...], alignments: tuple[str, ...]) -> str:
    columns = zip(cells, alignments, strict=True)
    return f"<tr>{''.join(_cell(tag, *column) for column in columns)}</tr>"


def _cell(tag: str, cell: Inlines, alignment: str) -> str:
    align = f' align="{alignment}"' if alignment else ""
    return f"<{tag}{align}>{_inlines(cell)}</{tag}>"


def _inlines(inside: Inlines) -> str:
    return "".join(map(_inline, inside))


def _inline(node: Inline) -> str:
    match node:
        case PlainText():
            return _text(node.text).replace("\n", "<br>")
        case InlineCode():
            return f"<code>{_text(node.text)}</code>"
        case InlineMath():
            return f"<tg-math>{_text(node.text)}</tg-math>"
        case Styled():
            tag = _TAGS[node.style]
            return f"<{tag}>{_inlines(node.children)}</{tag}>"
        case Link():
            return f'<a href="{html.escape(node.url)}">{_inlines(node.children)}</a>'


def _text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


# --- limits ----------------------------------------------------------------------------------


def _count_blocks(blocks: tuple[Block, ...]) -> int:
    count = 0
    for block in blocks:
        count += 1
        match block:
            case BlockQuote():
                count += _count_blocks(block.blocks)
            case ListBlock():
                count += sum(1 + _count_blocks(entry.blocks) for entry in block.items)
            case Table():
                count += 1 + len(block.rows)
            case Paragraph() | Heading() | CodeBlock() | MathBlock() | HorizontalRule():
                pass
    return count


def _depth(blocks: tuple[Block, ...]) -> int:
    return 1 + max(map(_block_depth, blocks), default=0)


def _block_depth(block: Block) -> int:
    match block:
        case BlockQuote():
            return _depth(block.blocks)
        case ListBlock():
            return 1 + max((_depth(entry.blocks) for entry in block.items), default=0)
        case Paragraph() | Heading():
            return max(map(_inline_depth, block.children), default=0)
        case CodeBlock() | MathBlock() | HorizontalRule() | Table():
            return 1


def _inline_depth(node: Inline) -> int:
    if isinstance(node, Styled | Link):
        return 1 + max(map(_inline_depth, node.children), default=0)
    return 1


def _tables_fit(blocks: tuple[Block, ...]) -> bool:
    for block in blocks:
        if isinstance(block, Table) and len(block.alignments) > _MAX_COLUMNS:
            return False
        if isinstance(block, BlockQuote) and not _tables_fit(block.blocks):
            return False
        if isinstance(block, ListBlock) and not all(
            _tables_fit(entry.blocks) for entry in block.items
        ):
            return False
    return True
