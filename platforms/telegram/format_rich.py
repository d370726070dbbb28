"""Sans-IO: a Markdown text as a rich message, which shows tables, headings and formulas as such.

Written as HTML out of the parsed tree, not passed on as Markdown: Telegram's own reading of it joins
lines, takes prices for formulas, loads pictures by itself, and would make a button of a
`<tg-button>` that a model wrote.
"""

import html

from platforms.core.document import (
    Block,
    BlockQuote,
    Code,
    Display,
    Formula,
    Heading,
    Inline,
    Inlines,
    Link,
    Listing,
    Mono,
    Paragraph,
    Plain,
    Rule,
    Styled,
    Table,
)

LONGEST = 32_768
MOST_BLOCKS = 500
MOST_COLUMNS = 20
DEEPEST = 16

_TAGS = {"bold": "b", "italic": "i", "strikethrough": "s", "spoiler": "tg-spoiler"}


def gains(blocks: tuple[Block, ...]) -> bool:
    """Tell whether a rich message shows something that entities can only imitate.

    Everything else is sent as a plain message with entities: older clients show nothing at all of a
    rich one.
    """
    return any(_gains(block) for block in blocks)


def _gains(block: Block) -> bool:
    match block:
        case Heading():
            return bool(block.inside)
        case Display():
            return bool(block.text)
        case Table():
            return True
        case Paragraph():
            return any(map(_has_formula, block.inside))
        case BlockQuote():
            return gains(block.blocks)
        case Listing():
            return any(
                entry.done is not None
                or gains(entry.blocks)
                or any(isinstance(each, Listing) for each in entry.blocks)
                for entry in block.entries
            )
        case Code() | Rule():
            return False


def _has_formula(node: Inline) -> bool:
    if isinstance(node, Styled | Link):
        return any(map(_has_formula, node.inside))
    return isinstance(node, Formula)


def fits(blocks: tuple[Block, ...]) -> bool:
    """Tell whether a text stays within the limits of a rich message."""
    return _count(blocks) <= MOST_BLOCKS and _depth(blocks) <= DEEPEST and _narrow(blocks)


def draw(blocks: tuple[Block, ...]) -> str:
    """Write a text as rich HTML."""
    return "".join(map(_block, blocks))


def _block(block: Block) -> str:
    match block:
        case Paragraph():
            return f"<p>{_inlines(block.inside)}</p>"
        case Heading():
            return f"<h{block.level}>{_inlines(block.inside)}</h{block.level}>"
        case Code():
            if not block.language:
                return f"<pre>{_text(block.text)}</pre>"
            language = html.escape(block.language)
            return f'<pre><code class="language-{language}">{_text(block.text)}</code></pre>'
        case Display():
            return f"<tg-math-block>{_text(block.text)}</tg-math-block>"
        case Rule():
            return "<hr/>"
        case BlockQuote():
            return f"<blockquote>{draw(block.blocks)}</blockquote>"
        case Listing():
            return _listing(block)
        case Table():
            return _table(block)


def _listing(block: Listing) -> str:
    entries = "".join(
        f"<li>{_box(entry.done)}{_entry(entry.blocks)}</li>" for entry in block.entries
    )
    if block.start is None:
        return f"<ul>{entries}</ul>"
    start = "" if block.start == 1 else f' start="{block.start}"'
    return f"<ol{start}>{entries}</ol>"


def _box(done: bool | None) -> str:
    if done is None:
        return ""
    return '<input type="checkbox" checked>' if done else '<input type="checkbox">'


def _entry(blocks: tuple[Block, ...]) -> str:
    """A point that is one paragraph needs no block of its own."""
    if blocks and isinstance(blocks[0], Paragraph):
        return _inlines(blocks[0].inside) + draw(blocks[1:])
    return draw(blocks)


def _table(block: Table) -> str:
    rows = [_row("th", block.header, block.aligned)] if block.header else []
    rows += [_row("td", row, block.aligned) for row in block.rows]
    return f"<table bordered>{''.join(rows)}</table>"


def _row(tag: str, cells: tuple[Inlines, ...], aligned: tuple[str, ...]) -> str:
    drawn = "".join(_cell(tag, *each) for each in zip(cells, aligned, strict=True))
    return f"<tr>{drawn}</tr>"


def _cell(tag: str, cell: Inlines, where: str) -> str:
    align = f' align="{where}"' if where else ""
    return f"<{tag}{align}>{_inlines(cell)}</{tag}>"


def _inlines(inside: Inlines) -> str:
    return "".join(map(_inline, inside))


def _inline(node: Inline) -> str:
    match node:
        case Plain():
            return _text(node.text).replace("\n", "<br>")
        case Mono():
            return f"<code>{_text(node.text)}</code>"
        case Formula():
            return f"<tg-math>{_text(node.text)}</tg-math>"
        case Styled():
            tag = _TAGS[node.style]
            return f"<{tag}>{_inlines(node.inside)}</{tag}>"
        case Link():
            return f'<a href="{html.escape(node.url)}">{_inlines(node.inside)}</a>'


def _text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


# --- limits ----------------------------------------------------------------------------------


def _count(blocks: tuple[Block, ...]) -> int:
    found = 0
    for block in blocks:
        found += 1
        match block:
            case BlockQuote():
                found += _count(block.blocks)
            case Listing():
                found += sum(1 + _count(entry.blocks) for entry in block.entries)
            case Table():
                found += 1 + len(block.rows)
            case _:
                pass
    return found


def _depth(blocks: tuple[Block, ...]) -> int:
    return 1 + max(map(_block_depth, blocks), default=0)


def _block_depth(block: Block) -> int:
    match block:
        case BlockQuote():
            return _depth(block.blocks)
        case Listing():
            return 1 + max((_depth(entry.blocks) for entry in block.entries), default=0)
        case Paragraph() | Heading():
            return max(map(_inline_depth, block.inside), default=0)
        case _:
            return 1


def _inline_depth(node: Inline) -> int:
    if isinstance(node, Styled | Link):
        return 1 + max(map(_inline_depth, node.inside), default=0)
    return 1


def _narrow(blocks: tuple[Block, ...]) -> bool:
    for block in blocks:
        if isinstance(block, Table) and len(block.aligned) > MOST_COLUMNS:
            return False
        if isinstance(block, BlockQuote) and not _narrow(block.blocks):
            return False
        if isinstance(block, Listing) and not all(_narrow(each.blocks) for each in block.entries):
            return False
    return True
