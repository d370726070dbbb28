"""Sans-IO: the nodes of a parsed Markdown text."""

import msgspec

# --- inlines ---------------------------------------------------------------------------------


class PlainText(msgspec.Struct, frozen=True):
    """Text without markup."""

    text: str


class InlineCode(msgspec.Struct, frozen=True):
    """Code inside a line."""

    text: str


class InlineMath(msgspec.Struct, frozen=True):
    """LaTeX inside a line."""

    text: str


class Styled(msgspec.Struct, frozen=True):
    """Styled text.

    `style` is `bold`, `italic`, `underline`, `strikethrough`, `spoiler`, `subscript` or `superscript`.
    """

    style: str
    children: tuple["Inline", ...]


class Link(msgspec.Struct, frozen=True):
    """A link or an image."""

    url: str
    children: tuple["Inline", ...]
    is_image: bool = False


Inline = PlainText | InlineCode | InlineMath | Styled | Link
Inlines = tuple[Inline, ...]


# --- blocks ----------------------------------------------------------------------------------


class Paragraph(msgspec.Struct, frozen=True):
    """A paragraph."""

    children: Inlines


class Heading(msgspec.Struct, frozen=True):
    """A heading."""

    level: int
    children: Inlines


class CodeBlock(msgspec.Struct, frozen=True):
    """A code block."""

    text: str
    language: str = ""


class MathBlock(msgspec.Struct, frozen=True):
    """LaTeX as a block."""

    text: str


class HorizontalRule(msgspec.Struct, frozen=True):
    """A horizontal rule."""


class BlockQuote(msgspec.Struct, frozen=True):
    """A block quote, or a section that can be folded; its first block is then the summary."""

    blocks: tuple["Block", ...]
    is_foldable: bool = False


class ListItem(msgspec.Struct, frozen=True):
    """A list item; `done` is None unless the item is a task."""

    blocks: tuple["Block", ...]
    done: bool | None = None


class ListBlock(msgspec.Struct, frozen=True):
    """A list; `start` is None unless the list is numbered."""

    items: tuple[ListItem, ...]
    start: int | None = None
    is_loose: bool = False


class Table(msgspec.Struct, frozen=True):
    """A table; `alignments` holds `left`, `center`, `right` or "" for each column.

    A table that continues one from an earlier message has no header.
    """

    header: tuple[Inlines, ...]
    alignments: tuple[str, ...]
    rows: tuple[tuple[Inlines, ...], ...]


def to_plain_text(inside: Inlines, *, urls: bool = True, scripts: bool = False) -> str:
    """Return the text without styles.

    `urls` adds the URLs of links in parentheses, `scripts` writes subscripts and superscripts so
    that they can be told from other text.
    """
    return "".join(_node_text(node, urls=urls, scripts=scripts) for node in inside)


def _node_text(node: Inline, *, urls: bool, scripts: bool) -> str:
    if isinstance(node, PlainText | InlineCode | InlineMath):
        return node.text
    if scripts and isinstance(node, Styled) and node.style in SCRIPTS:
        return to_plain_text(script_text(node), urls=urls, scripts=scripts)
    words = to_plain_text(node.children, urls=urls, scripts=scripts)
    if urls and isinstance(node, Link) and words not in node.url:
        return f"{words} ({node.url})"
    return words


def plain_rows(table: Table) -> list[list[str]]:
    """Return the rows of a table, header first, with each cell as plain text on one line."""
    rows = ((table.header,) if table.header else ()) + table.rows
    return [[" ".join(to_plain_text(cell, scripts=True).split()) for cell in row] for row in rows]


SCRIPTS = {
    "subscript": (
        "_",
        str.maketrans("0123456789+-=()aehijklmnoprstuvx", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ"),
    ),
    "superscript": (
        "^",
        str.maketrans(
            "0123456789+-=()abcdefghijklmnoprstuvwxyz", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻ"
        ),
    ),
}
"""Sign and Unicode characters of each script style."""


def script_text(node: Styled) -> Inlines:
    """Return a subscript or superscript for platforms without the style: x², or x^(two words)."""
    sign, table = SCRIPTS[node.style]
    text = to_plain_text(node.children, urls=False)
    plain = all(isinstance(child, PlainText) for child in node.children)
    if plain and all(ord(char) in table for char in text):
        return (PlainText(text.translate(table)),)
    return (PlainText(f"{sign}("), *node.children, PlainText(")"))


Block = (
    Paragraph | Heading | CodeBlock | MathBlock | HorizontalRule | BlockQuote | ListBlock | Table
)
