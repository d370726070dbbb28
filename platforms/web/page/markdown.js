// Renders Markdown as DOM nodes. It never creates HTML from text: words can only become text nodes.
// `blocks.js` parses headings, lists, code and other blocks, `inline.js` the text inside a line.

import { readBlocks } from "./blocks.js";
import { highlight } from "./highlight.js";
import { renderInline } from "./inline.js";

const GROWING_CODE = 8_000; // characters up to which growing code is highlighted

/** Create an element; children are nodes or strings. */
export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  node.append(...children); // first: with dir="auto" set, the browser would check each child again
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  return node;
}

/** Create one of the icons declared in index.html. */
export function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(space, "use");
  use.setAttribute("href", `#i-${name}`);
  svg.append(use);
  return svg;
}

/** Create an element that shows a text as it is. */
export function plainWords(text) {
  const words = element("div", { class: "words", dir: "auto" });
  words.textContent = text;
  return words;
}

/** A text that may grow: only changed blocks are rendered again. */
export class MarkdownView {
  #node;
  #text = "";
  #blocks = []; // blocks from readBlocks, each with its node
  #isPlain = false; // the text could not be rendered

  constructor(node) {
    this.#node = node;
  }

  get text() {
    return this.#text;
  }

  /** Show this text; `growing` means that more will follow. A text that cannot be rendered is
      shown as it is. */
  update(text, growing = false) {
    if (this.#isPlain && growing) {
      this.#showPlain(text);
      return;
    }
    try {
      if (this.#isPlain) this.#reset();
      this.#render(text, growing);
    } catch (error) {
      console.warn("A text is shown without its formatting:", error);
      this.#showPlain(text);
    }
  }

  #showPlain(text) {
    this.#isPlain = true;
    this.#blocks = [];
    this.#text = text;
    this.#node.replaceChildren(plainWords(text));
  }

  #reset() {
    this.#isPlain = false;
    this.#text = "";
    this.#node.replaceChildren();
  }

  #render(text, growing) {
    const kept = this.#keep(text);
    const start = kept.length ? kept.at(-1).end : 0;
    const fresh = readBlocks(text, start);
    const old = this.#blocks.slice(kept.length);
    fresh.forEach((block, index) => {
      const before = old[index];
      block.plain = growing && block.type === "code" && block.open && block.text.length > GROWING_CODE;
      if (before && before.raw === block.raw && before.plain === block.plain) {
        block.node = before.node;
        return;
      }
      block.node = renderBlock(block);
      if (before) before.node.replaceWith(block.node);
      else this.#node.append(block.node);
    });
    for (const gone of old.slice(fresh.length)) gone.node.remove();
    this.#blocks = [...kept, ...fresh];
    this.#text = text;
  }

  /** Blocks to keep: if the text has only grown, all but the last two. The growing line may still
      change the meaning of itself and of the line before it, but nothing further back. */
  #keep(text) {
    if (!this.#text || !text.startsWith(this.#text)) return [];
    return this.#blocks.slice(0, -2);
  }
}

/** Render a whole text at once. */
export function renderMarkdown(node, text) {
  new MarkdownView(node).update(text);
}

function renderBlock(block) {
  switch (block.type) {
    case "heading":
      return element(`h${Math.min(block.level + 2, 6)}`, { dir: "auto", class: `h${block.level}` }, ...renderInline(block.text));
    case "rule":
      return element("hr");
    case "code":
      return renderCode(block);
    case "math":
      return element("pre", { class: "math", dir: "ltr", tabindex: "0" }, block.text);
    case "quote":
      return element("blockquote", { dir: direction(block) }, ...block.blocks.map(renderBlock));
    case "list":
      return renderList(block);
    case "table":
      return renderTable(block);
    default:
      return element("p", { dir: "auto" }, ...renderInline(block.text));
  }
}

const LETTER = /\p{L}/u;
const RIGHT_TO_LEFT = /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\p{Script=Adlam}]/u;

/** Return the direction of the first letter. The browser's own choice (`auto`) leaves out children that
    choose for themselves, and the numbers of a list must be on the side of its margin. */
function direction(block) {
  const letter = LETTER.exec(wordsOf(block));
  return letter && RIGHT_TO_LEFT.test(letter[0]) ? "rtl" : "ltr";
}

function wordsOf(block) {
  switch (block.type) {
    case "list":
      return block.items.map((item) => item.blocks.map(wordsOf).join(" ")).join(" ");
    case "quote":
      return block.blocks.map(wordsOf).join(" ");
    case "table":
      return [...block.head, ...block.rows.flat()].join(" ");
    case "heading":
    case "paragraph":
      return block.text.replace(/`[^`]*`/g, " ");
    default:
      return "";
  }
}

function renderCode(block) {
  const code = element("code", {}, ...(block.plain ? [block.text] : highlight(block.text, block.language)));
  const copy = element("button", { type: "button", class: "copy", "data-copy": "code", "aria-label": "Copy this code" }, icon("copy"), "Copy");
  const head = element("div", { class: "code-head" }, element("span", {}, block.language || "text"), copy);
  const body = element("pre", { tabindex: "0", dir: "ltr" }, code);
  return element("div", { class: "code" }, head, body);
}

function renderList(block) {
  const items = block.items.map((item) => {
    const parts = item.blocks.flatMap((child) =>
      child.type === "paragraph" && !block.loose ? renderInline(child.text) : [renderBlock(child)],
    );
    if (item.checked === undefined) return element("li", {}, ...parts);
    const box = element("input", { type: "checkbox", disabled: true, checked: item.checked, "aria-label": item.checked ? "done" : "to do" });
    return element("li", { class: "task" }, box, " ", ...parts);
  });
  const dir = direction(block);
  if (!block.ordered) return element("ul", { dir }, ...items);
  return element("ol", { dir, start: block.start === 1 ? undefined : String(block.start) }, ...items);
}

function renderTable(block) {
  const row = (cells, tag) =>
    element("tr", {}, ...block.align.map((side, index) => element(tag, { dir: "auto", class: side || undefined }, ...renderInline(cells[index] ?? ""))));
  const table = element(
    "table",
    {},
    element("thead", {}, row(block.head, "th")),
    element("tbody", {}, ...block.rows.map((cells) => row(cells, "td"))),
  );
  return element("div", { class: "table", dir: direction(block), tabindex: "0", role: "region", "aria-label": "Table" }, table);
}
