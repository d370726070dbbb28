"""Outlines of Markdown texts: short HTML in which the parser of chats and the page can be compared.

The page raises the labels of footnotes and links bare addresses, which chats do themselves; an outline
shows neither. In items of lists a paragraph ends with ¶, whether there is space around it or not. `OUTLINE` makes the outline of what the page has rendered.
"""

import html
from collections.abc import Iterable

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
    ListItem,
    MathBlock,
    Paragraph,
    PlainText,
    Table,
    parse,
    to_plain_text,
)

_STYLES = {
    "bold": "b", "italic": "i", "underline": "u", "strikethrough": "s", "subscript": "sub",
    "superscript": "sup", "spoiler": "spoiler",
}  # fmt: skip


def outline(md: str) -> str:
    """Return the outline of a text, as the parser of chats reads it."""
    return _blocks(parse(md))


def _blocks(blocks: Iterable[Block]) -> str:
    return "".join(map(_block, blocks))


def _block(block: Block) -> str:
    match block:
        case Paragraph():
            return f"<p>{_inlines(block.children)}</p>"
        case Heading():
            return f"<h{block.level}>{_inlines(block.children)}</h{block.level}>"
        case CodeBlock():
            language = "" if block.language == "text" else block.language
            return f"<pre {language}>{html.escape(block.text, quote=False)}</pre>"
        case MathBlock():
            return f"<math>{_squeezed(block.text)}</math>"
        case HorizontalRule():
            return "<hr>"
        case BlockQuote() if block.is_foldable:
            summary, *others = block.blocks
            assert isinstance(summary, Paragraph)
            return f"<details><summary>{_inlines(summary.children)}</summary>{_blocks(others)}</details>"
        case BlockQuote():
            return f"<quote>{_blocks(block.blocks)}</quote>"
        case ListBlock():
            name = "ul" if block.start is None else f"ol {block.start}"
            items = "".join(_item(item) for item in block.items)
            return f"<{name}>{items}</{name[:2]}>"
        case Table():
            head = "".join(f"<th>{_inlines(cell)}</th>" for cell in block.header)
            rows = ["".join(f"<td>{_inlines(cell)}</td>" for cell in row) for row in block.rows]
            return f"<table>{''.join(f'<tr>{row}</tr>' for row in (head, *rows))}</table>"


def _item(item: ListItem) -> str:
    inside = "".join(
        f"{_inlines(block.children)}¶" if isinstance(block, Paragraph) else _block(block)
        for block in item.blocks
    )
    mark = "" if item.done is None else " x" if item.done else " -"
    return f"<li{mark}>{inside}</li>"


def _inlines(inside: Inlines) -> str:
    return "".join(map(_inline, inside))


def _inline(node: Inline) -> str:
    match node:
        case PlainText():
            return html.escape(node.text, quote=False).replace("\n", "<br>")
        case InlineCode():
            return f"<code>{html.escape(node.text, quote=False)}</code>"
        case InlineMath():
            return f"<math>{_squeezed(node.text)}</math>"
        case Link():
            words = to_plain_text(node.children, urls=False)
            if words in {node.url, node.url.removeprefix("mailto:")}:
                return html.escape(words, quote=False)
            return (
                f"<a {node.url.removesuffix('/').replace(' ', '%20')}>{_inlines(node.children)}</a>"
            )
        case _:
            name = _STYLES[node.style]
            return f"<{name}>{_inlines(node.children)}</{name}>"


def _squeezed(tex: str) -> str:
    return html.escape(" ".join(tex.split()), quote=False)


OUTLINE = r"""async (texts) => {
    const { renderMarkdown } = await import("/web/static/markdown.js");
    const NAMES = { STRONG: "b", EM: "i", U: "u", DEL: "s", SUB: "sub", SUP: "sup" };
    const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
    const tex = (source) => {
        const text = source.trim().replace(/[ .,]+$/, "");
        const found = /^(?:\$\$(.+)\$\$|\$(.+)\$|\\\((.+)\\\)|\\\[(.+)\\\])$/s.exec(text);
        return escaped((found ? found.slice(1).find((each) => each !== undefined) : text).trim().replace(/\s+/g, " "));
    };
    const inner = (node) => [...node.childNodes].map(outline).join("");
    const BLOCKS = "p, ul, ol, blockquote, details, hr, div, h3, h4, h5, h6, pre";
    function item(node) {
        let [whole, line] = ["", ""];
        const end = () => { whole += line && `${line}¶`; line = ""; };
        for (const child of node.childNodes) {
            if (child.nodeType !== Node.ELEMENT_NODE || !child.matches(BLOCKS)) line += outline(child);
            else {
                end();
                whole += child.localName === "p" ? `${inner(child)}¶` : outline(child);
            }
        }
        end();
        return whole;
    }
    function outline(node) {
        if (node.nodeType === Node.TEXT_NODE) return escaped(node.data);
        if (node.nodeType !== Node.ELEMENT_NODE) return "";
        if (node.localName === "math") return `<math>${tex(node.querySelector("annotation").textContent)}</math>`;
        if (node.classList.contains("math")) return `<math>${tex(node.textContent)}</math>`;
        if (node.classList.contains("formula")) return inner(node);
        if (node.classList.contains("code")) {
            const language = node.querySelector(".code-head span").textContent;
            return `<pre ${language === "text" ? "" : language}>${escaped(node.querySelector("pre").textContent)}</pre>`;
        }
        switch (node.tagName) {
            case "SUP":
                if (/^\[.*\]$/.test(node.textContent)) return escaped(node.textContent);
            // falls through
            case "STRONG": case "EM": case "U": case "DEL": case "SUB":
                return `<${NAMES[node.tagName]}>${inner(node)}</${NAMES[node.tagName]}>`;
            case "SPAN":
                return node.className === "spoiler" ? `<spoiler>${inner(node)}</spoiler>` : inner(node);
            case "CODE": case "KBD":
                return `<code>${escaped(node.textContent)}</code>`;
            case "BR":
                return "<br>";
            case "HR":
                return "<hr>";
            case "A": {
                const href = node.getAttribute("href");
                const plain = (text) => text.replace(/^mailto:/, "").replace(/\/$/, "");
                if (plain(href) === plain(node.textContent)) return escaped(node.textContent);
                return `<a ${href.replace(/\/$/, "")}>${inner(node)}</a>`;
            }
            case "P":
                return `<p>${inner(node)}</p>`;
            case "H3": case "H4": case "H5": case "H6":
                return `<${node.className}>${inner(node)}</${node.className}>`;
            case "BLOCKQUOTE":
                return `<quote>${inner(node)}</quote>`;
            case "DETAILS": case "SUMMARY":
                return `<${node.localName}>${inner(node)}</${node.localName}>`;
            case "UL":
                return `<ul>${inner(node)}</ul>`;
            case "OL":
                return `<ol ${node.start}>${inner(node)}</ol>`;
            case "LI": {
                const box = node.querySelector(":scope > input");
                const mark = box ? (box.checked ? " x" : " -") : "";
                if (box) box.nextSibling.data = box.nextSibling.data.trimStart();
                box?.remove();
                return `<li${mark}>${item(node)}</li>`;
            }
            case "TABLE": {
                const rows = [...node.querySelectorAll("tr")];
                return `<table>${rows.map((row) => `<tr>${[...row.cells].map((cell) => `<${cell.localName}>${inner(cell)}</${cell.localName}>`).join("")}</tr>`).join("")}</table>`;
            }
            default:
                return inner(node);
        }
    }
    return texts.map((text) => {
        const node = document.createElement("div");
        renderMarkdown(node, text);
        return inner(node);
    });
}"""
"""Function for a browser: returns the outlines of texts, as the page renders them."""
